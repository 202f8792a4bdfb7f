"""Generated gray images of two classes: a patch of horizontal or vertical stripes on smooth noise.

All arithmetic is on whole numbers, so that the images are bit-identical on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Class names in the order of their index.
CLASSES = ("horizontal", "vertical")
#: Height and width of an image.
SIDE = 64
#: Gray levels of an image.
LEVELS = 256

#: Height and width of the patch with the stripes.
_PATCH = 28
#: Two bright and two dark rows or columns alternate.
_STRIPE = 2
#: The stripes are at most so many gray levels above or below the noise, so that some images are hard to classify.
_CONTRAST = 28
#: Weights of the filter of the noise, along rows and columns.
_FILTER = (1, 4, 6, 4, 1)
_PASSES = 4
#: The smoothed noise is multiplied by this number, which gives it a standard deviation of about 30 gray levels.
_GAIN = 4


def striped_images(targets: NDArray[np.int64], seed: np.random.SeedSequence) -> NDArray[np.float64]:
    """Generate one image per target: stripes at a random position, of random phase and contrast, on smooth noise.

    Args:
        targets: ``[N]``, 0 = horizontal stripes, 1 = vertical stripes.
        seed: Determines every image.

    Returns:
        ``[N, 64, 64]``, multiples of 1/256 in [0, 1).

    Example:
        >>> images = striped_images(np.array([0, 1]), np.random.SeedSequence(0))
        >>> images.shape, bool((images * 256 % 1 == 0).all())
        ((2, 64, 64), True)
    """
    images = np.empty((len(targets), SIDE, SIDE))
    for number, (target, own) in enumerate(zip(targets, seed.spawn(len(targets)), strict=True)):
        words = np.random.Philox(own).random_raw(SIDE * SIDE // 8 + 1)
        levels = _smooth_noise(words[:-1])
        row, column, phase, contrast = (int(words[-1] >> np.uint64(shift)) & 0xFFFF for shift in (0, 16, 32, 48))
        row, column = row % (SIDE - _PATCH + 1), column % (SIDE - _PATCH + 1)
        bright = (np.arange(_PATCH) + phase) // _STRIPE % 2
        stripes = contrast % (_CONTRAST + 1) * (2 * bright - 1)
        levels[row : row + _PATCH, column : column + _PATCH] += stripes if target else stripes[:, None]
        images[number] = np.clip(levels, 0, LEVELS - 1) / LEVELS
    return images


def _smooth_noise(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return smooth noise ``[64, 64]`` around the middle gray level, from random words of 8 bytes."""
    noise = words.astype("<u8").view(np.uint8).astype(np.int64).reshape(SIDE, SIDE)
    for _ in range(_PASSES):
        for axis in (0, 1):
            noise = np.sum([weight * np.roll(noise, shift - 2, axis) for shift, weight in enumerate(_FILTER)], axis=0)
    total = sum(_FILTER) ** (2 * _PASSES)
    # The mean of a byte is 127.5, so the noise is centered exactly.
    centered = 2 * noise - (LEVELS - 1) * total
    levels: NDArray[np.int64] = centered * _GAIN // (2 * total) + LEVELS // 2
    return levels
