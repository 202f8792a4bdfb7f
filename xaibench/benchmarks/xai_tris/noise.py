"""The noise of XAI-TRIS: WHITE and CORR backgrounds, drawn in blocks that can be computed in any order.

Every block of :data:`BLOCK` samples has its own generator, derived from the seed and the number of the block. The
result therefore does not depend on how the blocks are distributed over workers.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.patterns import smoothing_matrix

Background: TypeAlias = Literal["white", "corr", "imagenet"]

BACKGROUNDS: tuple[Background, ...] = get_args(Background)

#: Number of samples per random generator. Changing it changes the samples of every seed.
BLOCK = 128

#: Standard deviation of the Gaussian that smooths the noise, by image size.
CORR_SIGMA: dict[int, float] = {8: 3.0, 64: 10.0}

_LAYOUT, _NOISE, _IMAGES = range(3)


def layout_rng(seed: int) -> np.random.Generator:
    """Return the generator of splits, cases and placements."""
    return np.random.default_rng(_seed_sequence(seed, _LAYOUT))


def images_rng(seed: int) -> np.random.Generator:
    """Return the generator of the choice and order of background images."""
    return np.random.default_rng(_seed_sequence(seed, _IMAGES))


def fill_noise(background: Background, seed: int, start: int, out: NDArray[np.float32]) -> None:
    """Write the backgrounds of consecutive samples, before any normalization.

    Args:
        background: ``"white"``: standard normal pixels; ``"corr"``: the same, smoothed by a Gaussian of sigma 10
            (64×64) or 3 (8×8), as in ``scipy.ndimage.gaussian_filter``.
        seed: Seed of the data set.
        start: Number of the first sample; a multiple of :data:`BLOCK`.
        out: ``[N, size, size]`` output array for the samples from ``start`` on.
    """
    size = out.shape[1]
    smooth = smoothing_matrix(size, CORR_SIGMA[size]).astype(np.float32)
    white = np.empty((BLOCK, size, size), dtype=np.float32)
    for first in range(0, len(out), BLOCK):
        block = out[first : first + BLOCK]
        # torch draws normal numbers three times as fast as NumPy, which is most of the work.
        state = _seed_sequence(seed, _NOISE, (start + first) // BLOCK).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        pixels = block if background == "white" else white[: len(block)]
        torch.from_numpy(pixels).normal_(generator=generator)
        if background == "corr":
            # One small product per image, so that the result does not depend on the number of images in the block.
            np.matmul(smooth @ pixels, smooth.T, out=block)


def _seed_sequence(seed: int, *stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=stream)
