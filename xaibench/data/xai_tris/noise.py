"""The noise of XAI-TRIS: WHITE and CORR backgrounds, drawn in blocks so that any share of the work gives the same bits.

Every block of :data:`BLOCK` samples has a generator of its own, derived from the seed and the block's number. Which
worker draws a block, and beside which others, therefore changes nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.data.xai_tris.patterns import smoothing_matrix

Background: TypeAlias = Literal["white", "corr", "imagenet"]

BACKGROUNDS: tuple[Background, ...] = get_args(Background)

#: Samples that share one random generator. A change gives other samples for the same seed.
BLOCK = 128

#: Standard deviation of the Gaussian that correlates the noise, for each image size.
CORR_SIGMA: dict[int, float] = {8: 3.0, 64: 10.0}

_LAYOUT, _NOISE, _IMAGES = range(3)


def layout_rng(seed: int) -> np.random.Generator:
    """Generator of what a sample shows: splits, cases, rotations and places."""
    return np.random.default_rng(_seed_sequence(seed, _LAYOUT))


def images_rng(seed: int) -> np.random.Generator:
    """Generator of the choice and order of background images."""
    return np.random.default_rng(_seed_sequence(seed, _IMAGES))


def fill_noise(background: Background, seed: int, start: int, out: NDArray[np.float32]) -> None:
    """Write the backgrounds of some samples, before any normalisation.

    Args:
        background: ``"white"``: standard normal pixels; ``"corr"``: the same, smoothed by a Gaussian of sigma 10
            (64×64) or 3 (8×8), as ``scipy.ndimage.gaussian_filter`` does it.
        seed: Seed of the set.
        start: The first of the samples; a multiple of :data:`BLOCK`.
        out: ``[N, size, size]``, where the samples from ``start`` on are written.
    """
    size = out.shape[1]
    smooth = smoothing_matrix(size, CORR_SIGMA[size]).astype(np.float32)
    white = np.empty((BLOCK, size, size), dtype=np.float32)
    for first in range(0, len(out), BLOCK):
        block = out[first : first + BLOCK]
        # torch draws normal numbers three times as fast as NumPy does, and they are most of the work.
        state = _seed_sequence(seed, _NOISE, (start + first) // BLOCK).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        pixels = block if background == "white" else white[: len(block)]
        torch.from_numpy(pixels).normal_(generator=generator)
        if background == "corr":
            # One small product an image, whose bits do not depend on how many images are smoothed together.
            np.matmul(smooth @ pixels, smooth.T, out=block)


def _seed_sequence(seed: int, *stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=stream)
