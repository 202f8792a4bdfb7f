"""Ranking of the pixels that a network uses above the provably unused ones, by magnitude.

A used pixel may be evidence for or against the class, so these metrics use the magnitude of the map, where
:mod:`xaibench.metrics.localization.roc_auc` ranks by value. The masks are of the network, as in :mod:`.mass_outside`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.component.info import MetricInfo
from xaibench.core.types import Reduction
from xaibench.metrics.localization.chance_levels import expected_average_precision, half
from xaibench.metrics.localization.roc_auc import area_under_roc, mean_precision
from xaibench.metrics.shared.map_inputs import Scores, score_pairs
from xaibench.metrics.shared.undefined_scores import EMPTY_MASK, FULL_MASK, ZERO_MAP

if TYPE_CHECKING:
    from xaibench.core.types import Array

_ZHOU = (
    "Zhou, Booth, Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022, "
    "arXiv 2104.14403"
)


@MetricInfo(
    "Use AUC",
    higher_is_better=True,
    attains_ends=True,
    meaning="Probability that a pixel that the network uses has a larger magnitude than one that it does not "
    "use. 0.5: no better than noise.",
    pitfalls="A used pixel may have no effect in *this* image (with AND, if the other pixel is missing), and a "
    "map that correctly shows this loses here: use `shapley_error` where the values are known.",
    map_sign="own",
    undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
    chance="One half.",
    chance_level=half,
    class_name="UseAUC",
    citation=_ZHOU,
    truth="use",
)
def use_auc(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Area under the ROC curve of used against unused pixels, by magnitude.

    .. math:: P(|s_i| > |s_j|) + \tfrac12 P(|s_i| = |s_j|), \qquad i \in U^+,\; j \in U^-

    over all pairs of a pixel that the network uses and one that it does not. In [0, 1], higher is better; 0.5 for a
    random map and for a constant one. :func:`xaibench.metrics.roc_auc` of the magnitude.

    Departures: Zhou et al. (2022) weight pixels by their value, like :func:`xaibench.metrics.mass_outside`; here only
    their order counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = the network uses the pixel.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for one that covers the whole image (pairs do not exist), and for a map
        that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> use_auc(np.array([[0.9, -0.4, 0.3, 0.0]]), np.array([[1, 1, 0, 0]]))
        1.0
    """
    return score_pairs(_by_magnitude_roc, maps, masks, reduction)


def _by_magnitude_roc(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    return area_under_roc(np.abs(maps), masks)


@MetricInfo(
    "Use AP",
    higher_is_better=True,
    attains_ends=True,
    meaning="Average precision in finding the pixels that the network uses. Chance is their share of the image.",
    pitfalls="The chance level is the used share of the image: networks that use shares of different size are "
    "not comparable. As with `use_auc`, a used pixel may have no effect in some images.",
    map_sign="own",
    undefined=(EMPTY_MASK, ZERO_MAP),
    chance="A little more than the share of the image that is used.",
    chance_level=expected_average_precision,
    class_name="UseAP",
    citation=_ZHOU,
    truth="use",
)
def use_ap(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Average precision of used against unused pixels, by magnitude.

    .. math:: \sum_n (R_n - R_{n-1})\, P_n

    with precision and recall of the used pixels at the n-th of the map's different magnitudes, from the largest down.
    In [0, 1], higher is better; a constant map scores the share of the image that is used.
    :func:`xaibench.metrics.average_precision` of the magnitude.

    Departures: Zhou et al. (2022) weight pixels by their value, like :func:`xaibench.metrics.mass_outside`; here only
    their order counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = the network uses the pixel.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> use_ap(np.array([[0.9, 0.2, -0.5, 0.1]]), np.array([[1, 1, 0, 0]]))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    return score_pairs(_by_magnitude_precision, maps, masks, reduction)


def _by_magnitude_precision(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    return mean_precision(np.abs(maps), masks)
