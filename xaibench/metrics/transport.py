"""How far is the map's mass from the ground truth? The earth mover's distance, exact.

With the map normed to a distribution ``p = |s| / sum |s|`` over the pixels and the ground truth to ``q = F+ / |F+|``,
the distance is the least mean way, in pixels, that carries ``p`` into ``q``:

    W1(p, q) = min sum_ij P_ij d(i, j)   over P >= 0 with row sums p and column sums q,

``d`` being the Euclidean distance between the centres of two pixels. Two steps make it cheaper and change nothing:

1. Since ``d`` is a metric, the mass that ``p`` and ``q`` have in common can stay where it is:
   W1(p, q) = W1((p - q)+, (q - p)+). Each pixel is then on one side only, which also makes the problem smaller.
2. The smaller side is made the rows, which is the faster orientation for the network simplex of POT.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.inputs import Scores, score_pairs
from xaibench.types import MetricInfo, Reduction, described

if TYPE_CHECKING:
    from xaibench.types import Array

#: The distance that :func:`emd_perf` divides by.
Diameter: TypeAlias = Literal["image", "released"]

#: Pivots the network simplex may take; a full 64×64 problem needs some 10^5.
_MAX_PIVOTS = 100_000_000

_XAI_TRIS = "Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816"


class TransportError(RuntimeError):
    """The solver did not reach the optimum; there is no score to give."""


@described(MetricInfo("EMD", "ground-truth", higher_is_better=False, range=(0.0, math.inf), citation=_XAI_TRIS))
def emd(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Earth mover's distance between the map and the ground truth, in pixels.

    .. math:: W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr)

    with the Euclidean distance between pixels: the exact optimum, in float64. From 0 (the map is constant on the ground
    truth and zero elsewhere) to the distance between opposite corners; lower is better. Both sides are normed to a mass
    of one here; signs are dropped. Clark et al. (2024), the distance in Equation 5.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The distance; ``nan`` for a map that is all zero and for an empty mask, which are no distributions.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.
        TransportError: If the solver stops short of the optimum.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 0, 0, 0]])
        >>> emd(np.array([[0, 0, 0, -7.0]]), masks)  # everything lies three pixels off
        3.0
    """
    return score_pairs(_distances, maps, masks, reduction)


@described(MetricInfo("EMD performance", "ground-truth", higher_is_better=True, range=(0.0, 1.0), citation=_XAI_TRIS))
def emd_perf(maps: Array, masks: Array, *, diameter: Diameter = "image", reduction: Reduction = "mean") -> Scores:
    r"""Earth mover's distance as a performance: 1 when the map is the ground truth, 0 when it is as far as can be.

    .. math:: 1 - W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr) \,/\, \delta

    Clark et al. (2024), Equation 5; in [0, 1], higher is better. See :func:`emd` for the distance.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        diameter: :math:`\delta`. ``"image"`` is the largest distance between two pixels,
            :math:`\sqrt{(H-1)^2 + (W-1)^2}`, as the paper's text has it; ``"released"`` is :math:`\sqrt{2HW}`, by which
            the authors' code divides (square images only). At 8×8 they are 9.90 and 11.31.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The performance; ``nan`` for a map that is all zero and for an empty mask. In an image of one pixel it is 1.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, an unknown
            ``diameter``, or ``"released"`` for an image that is not square.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.
        TransportError: If the solver stops short of the optimum.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[[1, 1], [0, 0]]])
        >>> emd_perf(masks, masks), round(emd_perf(1 - masks, masks), 3)
        (1.0, 0.293)
    """
    if diameter not in ("image", "released"):
        raise ValueError(f"diameter must be 'image' or 'released', got {diameter!r}.")

    def performance(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        largest = _diameter(maps.shape[1], maps.shape[2], diameter)
        return 1.0 - _distances(maps, masks) / (largest or 1.0)  # one pixel: every distance is 0, whatever divides it

    return score_pairs(performance, maps, masks, reduction)


def _diameter(height: int, width: int, kind: Diameter = "image") -> float:
    if kind == "image":
        return math.hypot(height - 1, width - 1)
    if height != width:
        raise ValueError(
            f"diameter='released' is defined for square images, got {height}×{width}. Use diameter='image'."
        )
    return math.sqrt(2 * height * width)


def _distances(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.array([_distance(values, mask) for values, mask in zip(maps, masks, strict=True)])


def _distance(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    magnitude = np.abs(values)
    peak = magnitude.max()
    if peak == 0 or not mask.any():
        return math.nan
    magnitude /= peak  # so that the sums of huge and of tiny maps neither over- nor underflow
    return wasserstein(magnitude / magnitude.sum(), mask / mask.sum())


def wasserstein(source: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """W1 in pixels between two distributions over the same image ``[H, W]``, each of mass one."""
    surplus = source - target  # what has to move; the common mass stays
    excess, lack = np.argwhere(surplus > 0), np.argwhere(surplus < 0)
    if len(excess) == 0 or len(lack) == 0:  # equal, up to rounding
        return 0.0
    supply, demand = surplus[surplus > 0], -surplus[surplus < 0]
    moved = supply.sum()
    way = _solve_dense(supply / moved, demand / demand.sum(), excess, lack)
    return min(float(moved * way), _diameter(*source.shape))  # no way is longer; rounding may be


def _solve_dense(
    supply: NDArray[np.float64], demand: NDArray[np.float64], origins: NDArray[np.intp], places: NDArray[np.intp]
) -> float:
    """W1 between masses of sum one at the pixels ``[n, 2]`` and ``[m, 2]``, from the full cost matrix ``[n, m]``."""
    # Imported here: POT loads torch where it is installed, and no other metric needs either.
    from ot.lp import emd as simplex
    from scipy.spatial.distance import cdist

    if len(supply) > len(demand):
        supply, demand, origins, places = demand, supply, places, origins
    _, log = simplex(
        supply,
        demand,
        cdist(origins, places),
        numItermax=_MAX_PIVOTS,
        log=True,
        center_dual=False,
        check_marginals=False,  # they sum to one by construction
    )
    if log["result_code"] != 1:
        raise TransportError(
            f"the network simplex ended without an optimum ({log['warning'] or 'unknown cause'}) for "
            f"{len(supply)}×{len(demand)} pixels. Please report this map."
        )
    return float(log["cost"])
