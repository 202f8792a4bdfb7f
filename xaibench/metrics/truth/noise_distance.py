"""How far is noise from the ground truth? The expected earth mover's distance of a map of independent uniform noise.

It has no formula. It is the mean over :func:`draws` fixed draws, in pairs of opposites (``u`` and ``1 - u``, whose
errors nearly cancel). Its standard error is below 0.3 % of the distance (and so below 0.003 of a skill) from 8×8 on,
where up to two fifths of the image are marked, and less for smaller ground truths; what is left is the same for all
maps of a mask. Masks that are mirrored or turned have the same distance, so that few of them have to be integrated
over, and each once in a process.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.truth.proven_distance import Diameter, diameter_of, marks_few, wasserstein, wasserstein_to_few

#: Pixels of noise to integrate over, and pairs of draws at most.
_PIXELS, _MOST_PAIRS = 2**11, 64

#: Of each mask that was asked for, by its name.
_FOUND: dict[bytes, float] = {}


def draws(height: int, width: int) -> int:
    """How many draws of noise are integrated over: fewer of larger images, of which one says more.

    Example:
        >>> draws(8, 8), draws(16, 16), draws(64, 64)
        (64, 16, 2)
    """
    return 2 * min(_MOST_PAIRS, max(1, _PIXELS // (height * width)))


def expected_distance(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The expected distance of noise to each mask, in pixels.

    Args:
        masks: ``[N, H, W]``.

    Returns:
        ``[N]``; ``nan`` for an empty mask.
    """
    return np.array([_found(mask) if mask.any() else math.nan for mask in masks], dtype=np.float64)


def expected_performance(masks: NDArray[np.bool_], *, diameter: Diameter = "image") -> NDArray[np.float64]:
    """What noise scores by :func:`xaibench.metrics.emd_perf`.

    Args:
        masks: ``[N, H, W]``.
        diameter: As there.

    Returns:
        ``[N]``; ``nan`` for an empty mask.
    """
    height, width = masks.shape[1:]
    return 1.0 - expected_distance(masks) / (diameter_of(height, width, diameter) or 1.0)


def noise_distances(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The distances of the draws, of which the mean is the expected one.

    Args:
        mask: ``[H, W]``, not empty.

    Returns:
        A number for each pair of opposite draws, in pixels, to 0.15 % of it at most. Their standard deviation over the
        root of their number is the standard error.
    """
    pairs = draws(*mask.shape) // 2
    noise = np.random.default_rng(0).random((pairs, *mask.shape))
    both = np.concatenate([noise, 1 - noise])
    if marks_few(mask[None])[0]:
        found = wasserstein_to_few(np.arange(len(both)), both, np.broadcast_to(mask, both.shape))[:, 1]
    else:
        target = mask / mask.sum()
        # Of large problems bounds that are 0.3 % apart, in the middle of which the distance is known well enough.
        found = np.array([sum(wasserstein(one / one.sum(), target, exact=False)) / 2 for one in both])
    return np.asarray(found.reshape(2, pairs).mean(axis=0))


def _found(mask: NDArray[np.bool_]) -> float:
    sides = [np.rot90(side, turns) for side in (mask, mask.T) for turns in range(4)]
    first = min(sides, key=lambda side: (side.shape, side.tobytes()))
    name = hashlib.sha256(repr(first.shape).encode() + np.packbits(first).tobytes()).digest()
    if name not in _FOUND:
        _FOUND[name] = float(noise_distances(first).mean())
    return _FOUND[name]
