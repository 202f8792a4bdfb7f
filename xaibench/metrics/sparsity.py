"""Concentration of the map on few pixels; no ground truth is used.

Both metrics treat the map as a distribution of its mass ``|s|`` over the pixels and depend only on its values, not on
their positions. A concentrated map is easier to read; the metrics do not measure whether it is right.
"""

from __future__ import annotations

import math

import numpy as np

from xaibench.core.types import Array, Floats, Reduction
from xaibench.metrics.shared.inputs import Scores, flat, score_maps
from xaibench.registry.info import MetricInfo

_CHALASANI = (
    "Chalasani, Chen, Chowdhury, Jha, Wu: Concise explanations of neural networks using adversarial training, ICML "
    "2020, arXiv 1810.06583"
)
_BHATT = (
    "Bhatt, Weller, Moura: Evaluating and aggregating feature-based model explanations, IJCAI 2020, arXiv 2005.00631"
)


@MetricInfo(
    "Sparseness",
    "map",
    higher_is_better=True,
    meaning="Gini index of the map’s magnitude: 0 where all pixels have the same value, near 1 where one pixel "
    "has all of the mass. It does not measure whether the map is right.",
    pitfalls="It does not measure whether the map is right: one wrong pixel is as sparse as one right pixel. "
    "Maps that are enlarged from a coarse layer (the CAM family) are dense by construction.",
    picture="sorted mass",
    citation=_CHALASANI,
)
def sparseness(maps: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Gini index of the map's magnitude: 0 for a constant map, nearly 1 when one pixel has all of the mass.

    .. math:: 1 - 2 \sum_{k=1}^{d} \frac{v_{(k)}}{\|v\|_1} \, \frac{d - k + 1/2}{d}, \qquad v = |s|

    with :math:`v_{(1)} \le \dots \le v_{(d)}` the sorted magnitudes of the ``d`` pixels (Chalasani et al. 2020).
    From 0 to :math:`1 - 1/d`, higher is better.

    Departures: Quantus (``Sparseness``) adds 1e-7 to each value, which changes the score of maps with small values and
    scores a map of zeros as 0; here scaling a map changes nothing, and a map of zeros is undefined.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The index; ``nan`` for a map that is all zero, which has no mass.

    Raises:
        ValueError: If maps have another shape or are not finite.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> sparseness(np.array([[0.0, 0.0, 0.0, -2.0]])), sparseness(np.ones((2, 2)))
        (0.75, 0.0)
    """
    return score_maps(_sparseness, maps, reduction)


def _sparseness(maps: Floats) -> Floats:
    ascending = np.sort(_scaled_magnitude(maps), axis=1)
    pixels = ascending.shape[1]
    # Terms k and d + 1 - k are paired, so that all terms are positive and nothing cancels.
    half = pixels // 2
    gaps = ascending[:, : -half - 1 : -1] - ascending[:, :half]
    spread = (gaps * (pixels + 1 - 2 * np.arange(1, half + 1))).sum(axis=1)
    return np.asarray(spread / (pixels * ascending.sum(axis=1)))


@MetricInfo(
    "Complexity",
    "map",
    higher_is_better=False,
    range=(0.0, math.inf),
    meaning="Entropy of the map’s magnitude, in nats: 0 where one pixel has all of the mass, the logarithm of "
    "the number of pixels where all have the same value.",
    pitfalls="As for `sparseness`. It grows with the logarithm of the number of pixels.",
    picture="mass of each pixel",
    citation=_BHATT,
)
def complexity(maps: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Entropy of the map's mass, in nats: 0 when one pixel has all of it, largest for a constant map.

    .. math:: -\sum_i p_i \ln p_i, \qquad p_i = |s_i| \,/\, \textstyle\sum_j |s_j|

    Bhatt, Weller and Moura (2020). From 0 to :math:`\ln d` for ``d`` pixels, lower is better. Maps of different sizes
    are not comparable.

    Departures: Quantus (``Complexity``) is the same for positive maps, but takes the logarithm of signed shares, which
    is NaN for negative values unless its ``abs`` is switched on.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The entropy; ``nan`` for a map that is all zero, which is not a distribution.

    Raises:
        ValueError: If maps have another shape or are not finite.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> complexity(np.array([[0.0, 0.0, 0.0, -2.0]])), round(complexity(np.ones((2, 2))), 4)  # ln 4
        (0.0, 1.3863)
    """
    return score_maps(_complexity, maps, reduction)


def _complexity(maps: Floats) -> Floats:
    mass = _scaled_magnitude(maps)
    mass /= mass.sum(axis=1, keepdims=True)
    surprise = np.zeros_like(mass)
    np.log(mass, out=surprise, where=mass > 0)  # pixels without mass add nothing
    entropy = np.abs((mass * surprise).sum(axis=1))  # no term is positive
    return np.asarray(np.minimum(entropy, math.log(mass.shape[1])))  # larger only by rounding


def _scaled_magnitude(maps: Floats) -> Floats:
    """Return ``|s|`` as ``[N, d]`` divided by its maximum, which avoids overflow; NaN for a map of zeros."""
    magnitude = np.abs(flat(maps))
    peak = magnitude.max(axis=1, keepdims=True)
    magnitude /= np.where(peak > 0, peak, np.nan)
    return magnitude
