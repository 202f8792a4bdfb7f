"""Shares of a map's mass: on the ground truth, due to network and explainer, and on the body parts of an object.

A network may rely on pixels that carry no class information themselves: on correlated noise it uses them to subtract
what they share with the pixels of the pattern (*suppressors*). A map that shows them is right about the network and
wrong about the data. So :func:`shares` compares a map's mass with the reliance of the network on each pixel, which is
the map of a perfectly faithful explainer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xaibench.core.types import Array, Floats, Reduction
from xaibench.metrics.shared.inputs import (
    Scores,
    check_pair,
    check_reduction,
    checked_maps,
    flat,
    mean_of_defined,
    reduce_scores,
)


class Shares(NamedTuple):
    """Shares of a map's mass; the three sum to 1.

    Attributes:
        on_truth: On the ground truth.
        relied_on: Outside of it, on pixels as far as the network relies on them: due to the network (suppressors).
        not_relied_on: Outside of it, beyond the network's reliance on the pixels: due to the explainer.
    """

    on_truth: Scores
    relied_on: Scores
    not_relied_on: Scores


def shares(maps: Array, masks: Array, reliance: Array, *, reduction: Reduction = "mean") -> Shares:
    r"""Split the mass of a map: on the ground truth, outside it due to the network, outside it due to the explainer.

    .. math::
        \sum_{F^+} m, \qquad \sum_{F^-} \min(m, r), \qquad \sum_{F^-} \max(m - r, 0),
        \qquad m = |s| / \textstyle\sum |s|, \quad r = \rho / \sum \rho

    with :math:`s` the map, :math:`F^+` the ground truth, and :math:`\rho` the reliance of the network on each pixel
    (:func:`xaibench.reliance`). Mass on a pixel is due to the network as far as a perfectly faithful map would also put
    it there; the rest is due to the explainer. No threshold is used: a trained network relies a little on nearly every
    pixel, so "relies on it at all" would excuse everything. The last share is the smallest mass that has to be moved
    away from pixels outside the ground truth to make the map faithful there. It is a lower bound of the explainer's
    error.

    For the map :math:`\rho` itself the last share is 0. For noise it is not 1, but the mass above the reliance: compare
    a method's share with that of a control. The first share is :func:`xaibench.mass_accuracy`, and higher is better.
    The second has no direction. For the third, lower is better.

    Departures: none; the split is defined here. The terms are from Haufe et al. (2024), arXiv 2409.14590.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important according to the data.
        reliance: Same shape: reliance of the network on each pixel; its magnitude is used.
        reduction: ``"mean"`` of the defined samples, or ``"none"`` for all ``[N]``.

    Returns:
        Three shares in [0, 1]; ``nan`` for a map that is all zero, for a network that does not rely on any pixel, and
        for an empty mask.

    Raises:
        ValueError: If shapes differ, values are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> truth, relied_on = np.array([[1, 0, 0, 0]]), np.array([[3.0, 1.0, 0.0, 0.0]])
        >>> shares(np.array([[2.0, -2.0, 0.0, 4.0]]), truth, relied_on)  # a faithful map has 1/4 on the second pixel
        Shares(on_truth=0.25, relied_on=0.25, not_relied_on=0.5)
    """
    check_reduction(reduction)
    values, faithful = checked_maps(maps), checked_maps(reliance, "reliance")
    _, truth = check_pair(maps, masks)
    if values.shape != faithful.shape:
        raise ValueError(
            f"maps and reliance must have the same shape [N, H, W] or [H, W], got maps {list(values.shape)} and "
            f"reliance {list(faithful.shape)}."
        )
    mass, relied = _mass(values), _mass(faithful)
    true, common = flat(truth), np.minimum(mass, relied)
    undefined = np.isnan(common).any(axis=1) | ~true.any(axis=1)
    parts = np.where(true, mass, 0.0), np.where(true, 0.0, common), np.where(true, 0.0, mass - common)
    sums = (np.where(undefined, np.nan, masses.sum(axis=1)) for masses in parts)
    return Shares(*(reduce_scores(masses, reduction, like=maps) for masses in sums))


def _mass(maps: Floats) -> Floats:
    """Return ``[N, H·W]`` magnitudes that sum to 1; NaN for a map of zeros."""
    magnitude = np.abs(flat(maps))
    peak = magnitude.max(axis=1, keepdims=True)
    scaled = magnitude / np.where(peak > 0, peak, np.nan)  # avoids overflow and underflow of the sum
    mass: Floats = scaled / scaled.sum(axis=1, keepdims=True)
    return mass


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
