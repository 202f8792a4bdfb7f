"""Whose doing it is that a map lies beside the ground truth: the network's, or the explainer's.

A network may rely on pixels that say nothing of the class by themselves: on correlated noise it subtracts with them
what they share with the pattern's (*suppressors*). A map that shows them is right about the network and wrong about
the data. So a map's mass is split by what a perfectly faithful map, the reliance of the network, has on each pixel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_pair, check_reduction, checked_maps, flat, reduce_scores

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


class Shares(NamedTuple):
    """Where the mass of a map lies; the three sum to 1.

    Attributes:
        on_truth: On the ground truth.
        relied_on: Beside it, as far as the network relies on the pixels: the network's doing (suppressors).
        not_relied_on: Beside it, and more than the network relies on the pixels: the explainer's doing.
    """

    on_truth: Scores
    relied_on: Scores
    not_relied_on: Scores


def shares(maps: Array, masks: Array, reliance: Array, *, reduction: Reduction = "mean") -> Shares:
    r"""Split the mass of a map: on the ground truth, beside it with the network, beside it without.

    .. math::
        \sum_{F^+} m, \qquad \sum_{F^-} \min(m, r), \qquad \sum_{F^-} \max(m - r, 0),
        \qquad m = |s| / \textstyle\sum |s|, \quad r = \rho / \sum \rho

    with :math:`s` the map, :math:`F^+` the ground truth, and :math:`\rho` how much the network relies on each pixel
    (:func:`xaibench.reliance`). A share of the mass is the network's doing as far as a perfectly faithful map would
    put it there, too; what goes beyond that on a pixel, no reliance of the network accounts for. Nothing is cut at a
    threshold: a trained network relies a little on nearly every pixel, so that "relies on it at all" would excuse
    everything. The last share is the least mass that has to leave the pixels beside the truth for the map to be
    faithful there, and so the explainer's error is at least that.

    The map of :math:`\rho` itself has 0 there. Noise has not 1 but what lies above the reliance: read a method's share
    beside that of a control. The first share is :func:`xaibench.mass_accuracy`. It is better the larger; the second has
    no better or worse; the third is better the smaller.

    Departures: none, the split is ours. The words are those of Haufe et al. (2024), arXiv 2409.14590.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important by the data.
        reliance: Of the same shape: how much the network relies on each pixel; taken by magnitude.
        reduction: ``"mean"`` over the defined samples, or ``"none"`` for all ``[N]``.

    Returns:
        Three shares in [0, 1]; ``nan`` for a map that is all zero, for a network that relies on no pixel of the image,
        and for an empty mask.

    Raises:
        ValueError: For shapes that differ, numbers that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> truth, relied_on = np.array([[1, 0, 0, 0]]), np.array([[3.0, 1.0, 0.0, 0.0]])
        >>> shares(np.array([[2.0, -2.0, 0.0, 4.0]]), truth, relied_on)  # of the second pixel a faithful map has 1/4
        Shares(on_truth=0.25, relied_on=0.25, not_relied_on=0.5)
    """
    check_reduction(reduction)
    given, faithful = checked_maps(maps), checked_maps(reliance, "reliance")
    _, truth = check_pair(maps, masks)
    if given.shape != faithful.shape:
        raise ValueError(
            f"maps and reliance must have the same shape [N, H, W] or [H, W], got maps {list(given.shape)} and "
            f"reliance {list(faithful.shape)}."
        )
    mass, relied = _mass(given), _mass(faithful)
    true, common = flat(truth), np.minimum(mass, relied)
    undefined = np.isnan(common).any(axis=1) | ~true.any(axis=1)
    parts = np.where(true, mass, 0.0), np.where(true, 0.0, common), np.where(true, 0.0, mass - common)
    found = (np.where(undefined, np.nan, part.sum(axis=1)) for part in parts)
    return Shares(*(reduce_scores(part, reduction, like=maps) for part in found))


def _mass(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, H·W]`` magnitudes that sum to 1; ``nan`` of a map that is all zero."""
    magnitude = np.abs(flat(maps))
    peak = magnitude.max(axis=1, keepdims=True)
    scaled = magnitude / np.where(peak > 0, peak, np.nan)  # whose sum neither over- nor underflows
    mass: NDArray[np.float64] = scaled / scaled.sum(axis=1, keepdims=True)
    return mass
