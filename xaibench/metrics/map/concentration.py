"""Is the map concentrated on few pixels? Asked of the map alone, without a ground truth.

Both metrics read the map as a distribution of its mass ``|s|`` over the pixels and depend only on which values occur,
not on where. A concentrated map is easier to read; whether it is right, they do not say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, flat, score_maps

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_CHALASANI = (
    "Chalasani, Chen, Chowdhury, Jha, Wu: Concise explanations of neural networks using adversarial training, ICML "
    "2020, arXiv 1810.06583"
)
_BHATT = (
    "Bhatt, Weller, Moura: Evaluating and aggregating feature-based model explanations, IJCAI 2020, arXiv 2005.00631"
)


@described(
    MetricInfo(
        "Sparseness",
        "map",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Gini index of the map’s magnitude: 0 where all pixels have the same, near 1 where one has it all. "
        "Says nothing of right or wrong.",
        pitfalls="Says nothing of right or wrong: one wrong pixel is as sparse as one right one. Maps enlarged from a "
        "coarse layer (the CAM family) are dense by construction.",
        picture="sorted mass",
        citation=_CHALASANI,
    )
)
def sparseness(maps: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Gini index of the map's magnitude: 0 for a constant map, nearly 1 when one pixel has it all.

    .. math:: 1 - 2 \sum_{k=1}^{d} \frac{v_{(k)}}{\|v\|_1} \, \frac{d - k + 1/2}{d}, \qquad v = |s|

    with :math:`v_{(1)} \le \dots \le v_{(d)}` the sorted magnitudes of the ``d`` pixels (Chalasani et al. 2020).
    From 0 to :math:`1 - 1/d`, higher is better.

    Departures: Quantus (``Sparseness``) adds 1e-7 to each value, which moves the score of maps with small values and
    gives 0 to a map that is all zero; here scaling a map changes nothing and a zero map is undefined.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The index; ``nan`` for a map that is all zero, whose mass lies nowhere.

    Raises:
        ValueError: For maps of another shape or that are not finite.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> sparseness(np.array([[0.0, 0.0, 0.0, -2.0]])), sparseness(np.ones((2, 2)))
        (0.75, 0.0)
    """
    return score_maps(_sparseness, maps, reduction)


def _sparseness(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    ascending = np.sort(_scaled_magnitude(maps), axis=1)
    pixels = ascending.shape[1]
    # The sum over k paired with that over d + 1 - k, so that all terms are positive and nothing cancels.
    half = pixels // 2
    gaps = ascending[:, : -half - 1 : -1] - ascending[:, :half]
    spread = (gaps * (pixels + 1 - 2 * np.arange(1, half + 1))).sum(axis=1)
    return np.asarray(spread / (pixels * ascending.sum(axis=1)))


@described(
    MetricInfo(
        "Complexity",
        "map",
        higher_is_better=False,
        range=(0.0, math.inf),
        meaning="Entropy of the map’s magnitude, in nats: 0 where one pixel has it all, the logarithm of the number "
        "of pixels where all have the same.",
        pitfalls="As of `sparseness`. It grows with the logarithm of the number of pixels.",
        picture="mass of each pixel",
        citation=_BHATT,
    )
)
def complexity(maps: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Entropy of the map's mass, in nats: 0 when one pixel has it all, largest for a constant map.

    .. math:: -\sum_i p_i \ln p_i, \qquad p_i = |s_i| \,/\, \textstyle\sum_j |s_j|

    Bhatt, Weller and Moura (2020). From 0 to :math:`\ln d` for ``d`` pixels, lower is better. Maps of
    different sizes do not compare.

    Departures: Quantus (``Complexity``) is the same for positive maps, but puts signed shares into the logarithm, which
    gives no number for a map with negative values unless its own ``abs`` is switched on.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The entropy; ``nan`` for a map that is all zero, which is no distribution.

    Raises:
        ValueError: For maps of another shape or that are not finite.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> complexity(np.array([[0.0, 0.0, 0.0, -2.0]])), round(complexity(np.ones((2, 2))), 4)  # ln 4
        (0.0, 1.3863)
    """
    return score_maps(_complexity, maps, reduction)


def _complexity(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    mass = _scaled_magnitude(maps)
    mass /= mass.sum(axis=1, keepdims=True)
    surprise = np.zeros_like(mass)
    np.log(mass, out=surprise, where=mass > 0)  # what has no mass adds nothing
    entropy = np.abs((mass * surprise).sum(axis=1))  # no term is positive
    return np.asarray(np.minimum(entropy, math.log(mass.shape[1])))  # only rounding is above


def _scaled_magnitude(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """``|s|`` as ``[N, d]`` over its largest value, so that no sum over- or underflows; ``nan`` if all is zero."""
    magnitude = np.abs(flat(maps))
    peak = magnitude.max(axis=1, keepdims=True)
    magnitude /= np.where(peak > 0, peak, np.nan)
    return magnitude
