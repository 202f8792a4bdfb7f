"""Expected earth mover's distance between the ground truth and a map of independent uniform noise.

No formula is known. The expectation is the mean over :func:`draws` fixed draws, in antithetic pairs (``u`` and ``1 -
u``, whose errors nearly cancel). From 8×8 on and for masks of up to two fifths of the image, its standard error is
below 0.3 % of the distance (and so below 0.003 of a skill), and smaller for smaller masks. The remaining error is the
same for all maps of a mask. Flipped and rotated masks have the same distance, so few masks have to be integrated, each
once per process.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.localization.emd_bounds import Diameter, diameter_of, marks_few, wasserstein, wasserstein_to_few

#: Total number of noise pixels, and the maximum number of pairs of draws.
_PIXELS, _MOST_PAIRS = 2**11, 64

#: Caches: hash of a mask -> expected distance. The second has the first of a mask's rotations and flips; the first has
#: masks as they are, because turning a mask takes longer than its hash.
_BY_MASK: dict[bytes, float] = {}
_BY_SYMMETRY: dict[bytes, float] = {}


def draws(height: int, width: int) -> int:
    """Return the number of noise draws: fewer for larger images, where a single draw is more precise.

    Example:
        >>> draws(8, 8), draws(16, 16), draws(64, 64)
        (64, 16, 2)
    """
    return 2 * min(_MOST_PAIRS, max(1, _PIXELS // (height * width)))


def expected_distance(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected distance of noise to each mask, in pixels.

    Args:
        masks: ``[N, H, W]``.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    return np.array([_cached_distance(mask) if mask.any() else math.nan for mask in masks], dtype=np.float64)


def expected_performance(masks: NDArray[np.bool_], *, diameter: Diameter = "image") -> NDArray[np.float64]:
    """Return the score of noise in :func:`xaibench.metrics.emd_perf`.

    Args:
        masks: ``[N, H, W]``.
        diameter: As in that function.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    height, width = masks.shape[1:]
    return 1.0 - expected_distance(masks) / (diameter_of(height, width, diameter) or 1.0)


def noise_distances(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the distances of the draws, whose mean is the expected distance.

    Args:
        mask: ``[H, W]``, not empty.

    Returns:
        One number per antithetic pair, in pixels, with a relative error of at most 0.15 %. Their standard deviation
        divided by the square root of their number is the standard error.
    """
    pairs = draws(*mask.shape) // 2
    noise = np.random.default_rng(0).random((pairs, *mask.shape))
    both = np.concatenate([noise, 1 - noise])
    if marks_few(mask[None])[0]:
        found = wasserstein_to_few(np.arange(len(both)), both, np.broadcast_to(mask, both.shape))[:, 1]
    else:
        target = mask / mask.sum()
        # For large problems, the middle of bounds 0.3 % apart is precise enough.
        found = np.array([sum(wasserstein(one / one.sum(), target, exact=False)) / 2 for one in both])
    return np.asarray(found.reshape(2, pairs).mean(axis=0))


def _cached_distance(mask: NDArray[np.bool_]) -> float:
    given = _hash(mask)
    if given not in _BY_MASK:
        _BY_MASK[given] = _distance_of_symmetric(mask)
    return _BY_MASK[given]


def _distance_of_symmetric(mask: NDArray[np.bool_]) -> float:
    symmetric = [np.rot90(side, turns) for side in (mask, mask.T) for turns in range(4)]
    first = min(symmetric, key=lambda side: (side.shape, side.tobytes()))
    key = _hash(first)
    if key not in _BY_SYMMETRY:
        _BY_SYMMETRY[key] = float(noise_distances(first).mean())
    return _BY_SYMMETRY[key]


def _hash(mask: NDArray[np.bool_]) -> bytes:
    return hashlib.sha256(repr(mask.shape).encode() + np.packbits(mask).tobytes()).digest()
