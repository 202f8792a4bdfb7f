"""Expected earth mover's distance between the ground truth and a map of independent uniform noise.

No formula is known. The expectation is the mean over :func:`draws` fixed draws, in antithetic pairs (``u`` and ``1 -
u``, whose errors nearly cancel). From 8×8 on and for masks of up to two fifths of the image, its standard error is
below 0.3 % of the distance (and so below 0.003 of a skill), and smaller for smaller masks. The remaining error is the
same for all maps of a mask. Masks that are equal up to the order and the direction of their axes have the same distance
(the spacing of the pixels turns with them), so few masks have to be integrated, each once per process.
"""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.localization.emd_bounds import Diameter, diameters, marks_few, wasserstein, wasserstein_to_few
from xaibench.metrics.shared.spacing import Spacing, pixel_spacing

#: Total number of noise pixels, and the maximum number of pairs of draws.
_PIXELS, _MOST_PAIRS = 2**11, 64

#: Caches: hash of a mask and a spacing -> expected distance. The second has the first of a mask's turns; the first has
#: masks as they are, because turning a mask takes longer than its hash.
_BY_MASK: dict[bytes, float] = {}
_BY_SYMMETRY: dict[bytes, float] = {}


def draws(*shape: int) -> int:
    """Return the number of noise draws: fewer for larger images, where a single draw is more precise.

    Example:
        >>> draws(8, 8), draws(16, 16), draws(64, 64)
        (64, 16, 2)
    """
    return 2 * min(_MOST_PAIRS, max(1, _PIXELS // math.prod(shape)))


def expected_distance(masks: NDArray[np.bool_], *, spacing: Spacing = None) -> NDArray[np.float64]:
    """Return the expected distance of noise to each mask.

    Args:
        masks: ``[N, H, W]``.
        spacing: As in :func:`xaibench.metrics.emd`.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    pairs = zip(masks, pixel_spacing(spacing, masks.shape), strict=True)
    return np.array([_cached_distance(*pair) if pair[0].any() else math.nan for pair in pairs], dtype=np.float64)


def expected_performance(
    masks: NDArray[np.bool_], *, diameter: Diameter = "image", spacing: Spacing = None
) -> NDArray[np.float64]:
    """Return the score of noise in :func:`xaibench.metrics.emd_perf`.

    Args:
        masks: ``[N, H, W]``.
        diameter: As in that function.
        spacing: As in that function.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    largest = diameters(masks.shape[1:], pixel_spacing(spacing, masks.shape), diameter)
    return 1.0 - expected_distance(masks, spacing=spacing) / largest


def noise_distances(mask: NDArray[np.bool_], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distances of the draws, whose mean is the expected distance.

    Args:
        mask: ``[H, W]``, not empty.
        lengths: ``[axes]``, the spacing along each axis, which is the unit of the distances.

    Returns:
        One number per antithetic pair, with a relative error of at most 0.15 %, or more in large volumes
        (:func:`~xaibench.metrics.localization.emd_bounds.wasserstein`). Their standard deviation divided by the square
        root of their number is the standard error.
    """
    pairs = draws(*mask.shape) // 2
    noise = np.random.default_rng(0).random((pairs, *mask.shape))
    both = np.concatenate([noise, 1 - noise])
    if marks_few(mask[None])[0]:
        same = np.broadcast_to(mask, both.shape), np.broadcast_to(lengths, (len(both), mask.ndim))
        found = wasserstein_to_few(np.arange(len(both)), both, *same)[:, 1]
    else:
        target = mask / mask.sum()
        # For large problems, the middle of bounds 0.3 % apart is precise enough.
        found = np.array([sum(wasserstein(one / one.sum(), target, lengths, exact=False)) / 2 for one in both])
    return np.asarray(found.reshape(2, pairs).mean(axis=0))


def _cached_distance(mask: NDArray[np.bool_], lengths: NDArray[np.float64]) -> float:
    given = _hash(mask, lengths)
    if given not in _BY_MASK:
        _BY_MASK[given] = _distance_of_symmetric(mask, lengths)
    return _BY_MASK[given]


def _distance_of_symmetric(mask: NDArray[np.bool_], lengths: NDArray[np.float64]) -> float:
    turned = [(np.transpose(mask, order), lengths[list(order)]) for order in itertools.permutations(range(mask.ndim))]
    directions = [
        tuple(slice(None, None, way) for way in ways) for ways in itertools.product((1, -1), repeat=mask.ndim)
    ]
    symmetric = [(side[flip], spaces) for side, spaces in turned for flip in directions]
    first = min(symmetric, key=lambda pair: (pair[0].shape, pair[1].tolist(), pair[0].tobytes()))
    key = _hash(*first)
    if key not in _BY_SYMMETRY:
        _BY_SYMMETRY[key] = float(noise_distances(*first).mean())
    return _BY_SYMMETRY[key]


def _hash(mask: NDArray[np.bool_], lengths: NDArray[np.float64]) -> bytes:
    return hashlib.sha256(repr((mask.shape, lengths.tolist())).encode() + np.packbits(mask).tobytes()).digest()
