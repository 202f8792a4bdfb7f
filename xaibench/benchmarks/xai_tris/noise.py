"""The noise of XAI-TRIS: WHITE and CORR backgrounds, drawn in blocks that can be computed in any order.

Every block of :data:`BLOCK` samples has its own generator, derived from the seed and the number of the block. The
result therefore does not depend on how the blocks are distributed over workers.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.patterns import smoothing_matrix, transform_axis
from xaibench.tensors.normal_numbers import normal_numbers

Background: TypeAlias = Literal["white", "corr", "imagenet"]

BACKGROUNDS: tuple[Background, ...] = get_args(Background)

#: Number of samples per random generator. Changing it changes the samples of every seed.
BLOCK = 128

#: Standard deviation of the Gaussian that smooths the noise, by image size.
CORR_SIGMA: dict[int, float] = {8: 3.0, 16: 3.0, 64: 10.0}

#: White noise is a multiple of this, so that its pixels are below 2^23 in units of it: float32 holds them exactly.
WHITE_STEP = 2.0**-20
#: Sums along an axis are below 2^31 in units of this; times weights whose sum is 2^22 in units of
#: :data:`~xaibench.benchmarks.xai_tris.patterns.WEIGHT_STEP`, they are below 2^53.
_SUM_STEP = 2.0**-28

_LAYOUT, _NOISE, _IMAGES, _DISTRACTORS = range(4)


def layout_rng(seed: int) -> np.random.Generator:
    """Return the generator of splits, cases and placements."""
    return np.random.default_rng(_seed_sequence(seed, _LAYOUT))


def images_rng(seed: int) -> np.random.Generator:
    """Return the generator of the choice and order of background images."""
    return np.random.default_rng(_seed_sequence(seed, _IMAGES))


def distractor_rng(seed: int) -> np.random.Generator:
    """Return the generator of the signs of distractors (:mod:`xaibench.benchmarks.pattern_gam.data_sets`)."""
    return np.random.default_rng(_seed_sequence(seed, _DISTRACTORS))


def fill_noise(background: Background, seed: int, start: int, out: NDArray[np.float32]) -> None:
    """Write the backgrounds of consecutive samples, before any normalization.

    White noise is rounded to multiples of :data:`WHITE_STEP`, and the sums of each product but the last to multiples of
    :data:`_SUM_STEP`. Every partial sum of a product is then a multiple of the step of its terms and needs at most 53
    bits: float64 holds it without rounding. So the sums are the same in any order and with any BLAS library.

    Args:
        background: ``"white"``: standard normal pixels; ``"corr"``: the same, smoothed by a Gaussian of sigma 10
            (64×64) or 3 (8×8, 16×16×16), as in ``scipy.ndimage.gaussian_filter``.
        seed: Seed of the data set.
        start: Number of the first sample; a multiple of :data:`BLOCK`.
        out: ``[N, size, size]`` or ``[N, size, size, size]`` output array for the samples from ``start`` on.
    """
    size = out.shape[1]
    smooth = smoothing_matrix(size, CORR_SIGMA[size])
    noise = np.empty((BLOCK, *out.shape[1:]))
    for first in range(0, len(out), BLOCK):
        block = out[first : first + BLOCK]
        white = noise[: len(block)]
        normal_numbers(_seed_sequence(seed, _NOISE, (start + first) // BLOCK), white)
        _round_to(white, WHITE_STEP)
        if background == "white":
            block[:] = white
            continue
        for axis in range(1, white.ndim):
            if axis > 1:
                _round_to(white, _SUM_STEP)
            white = transform_axis(white, smooth, axis)
        block[:] = white


def _round_to(values: NDArray[np.float64], step: float) -> None:
    """Round to multiples of a power of two, and clip to less than 8 (of 10^15 normal numbers, one is larger)."""
    values /= step
    np.rint(values, out=values)
    values *= step
    np.clip(values, step - 8, 8 - step, out=values)


def _seed_sequence(seed: int, *stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=stream)
