"""Shares of a map on the background and on each part of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xaibench.core.types import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_reduction, checked_maps, flat, mean_of_defined

if TYPE_CHECKING:
    from xaibench.core.types import Array


def part_shares(maps: Array, parts: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of a map's magnitude on the background and on each part.

    .. math:: \sum_{p \in P_i} |s_p| \,/\, \sum_p |s_p|, \qquad i = 0 \text{ (background)}, 1, \dots, P

    The shares of a sample sum to 1. Compare them with the share of the image that the part covers, which is the share
    of a map of noise, and with the parts that decide the class or that the network uses (:func:`xaibench.part_rank`). A
    large share on the background or on a part without information has no direction by itself: the network may use it.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        parts: Same shape, integers: the number of the part that is visible in each pixel, starting at 1; 0 is the
            background. ``data.test.parts`` of ``xb.load("parts/creatures-96x96")``.
        reduction: ``"mean"`` over the samples in which a share is defined, or ``"none"`` for all samples.

    Returns:
        ``[1 + P]`` float64 for ``"mean"``, otherwise ``[N, 1 + P]``, where P is the largest number of a part; ``nan``
        for a map that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or a number of a part is negative.
        TypeError: If an input is not a numpy array or torch tensor of real numbers, or parts are not integers.

    Example:
        >>> import numpy as np
        >>> part_shares(np.array([[1.0, -1.0, 4.0, 2.0]]), np.array([[0, 1, 2, 2]]))
        array([0.125, 0.125, 0.75 ])
    """
    check_reduction(reduction)
    values, numbers = checked_maps(maps), np.asarray(parts)
    if numbers.dtype.kind not in "iu":
        raise TypeError(
            f"parts are {numbers.dtype}, expected integers: the number of the part of each pixel, 0 = none."
        )
    numbers = numbers if numbers.ndim > 2 else numbers[None]
    if numbers.shape != values.shape:
        raise ValueError(
            f"maps and parts must have the same shape [N, H, W] or [H, W] (volumes: [N, D, H, W]), got maps "
            f"{list(values.shape)} and parts {list(numbers.shape)}."
        )
    if numbers.size and numbers.min() < 0:
        raise ValueError(f"parts contain {numbers.min()}, expected numbers from 1, and 0 for the background.")
    magnitude = np.abs(flat(values))
    peak = magnitude.max(axis=1, keepdims=True)
    mass = magnitude / np.where(peak > 0, peak, np.nan)  # avoids overflow and underflow of the sum
    sums = np.stack(
        [np.where(flat(numbers) == part, mass, 0.0).sum(axis=1) for part in range(numbers.max(initial=0) + 1)]
    )
    shares = (sums / mass.sum(axis=1)).T
    shares[np.isnan(mass).any(axis=1)] = np.nan
    return np.array([mean_of_defined(part) for part in shares.T]) if reduction == "mean" else shares
