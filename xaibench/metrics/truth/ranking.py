"""Does the map rank the pixels of the ground truth above the others, whatever the threshold?

The map is read as the scores of a pixel classifier, the mask as their labels; both metrics depend only on the order
of the pixels. Ties are exact: equal pixels enter together, as one threshold reaches all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, flat, score_pairs, share
from xaibench.metrics.shared.undefined_scores import EMPTY_MASK, FULL_MASK, ZERO_MAP
from xaibench.metrics.truth.chance_levels import expected_average_precision, half

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_Counts: TypeAlias = NDArray[np.int64]

_ROC = "Fawcett: An introduction to ROC analysis, Pattern Recognition Letters 27, 2006"
_PR = "Davis, Goadrich: The relationship between precision-recall and ROC curves, ICML 2006"


@described(
    MetricInfo(
        "ROC AUC",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Chance that a pixel of the ground truth scores higher than one outside. 0.5: no better than noise.",
        pitfalls="Where the ground truth is small, nearly all pixels outside are easy, and a map whose top pixels all "
        "miss may still score 0.9; `average_precision` looks at the top.",
        undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
        chance="One half.",
        chance_level=half,
        picture="every threshold: outside and inside",
        class_name="ROCAUC",
        citation=_ROC,
    )
)
def roc_auc(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Area under the receiver operating characteristic: how often a pixel inside outranks one outside.

    .. math:: P(s_i > s_j) + \tfrac12 P(s_i = s_j), \qquad i \in F^+,\; j \notin F^+

    over all such pairs of pixels, which is the Mann–Whitney U statistic over :math:`|F^+|\,|F^-|` (Fawcett 2006,
    Section 7). Pairs are counted in integers, so the score is exact up to one rounding. In [0, 1], higher is better;
    0.5 for a random map and for a constant one.

    Departures: none from ``sklearn.metrics.roc_auc_score`` of a sample up to rounding, nor from Quantus (``AUC``), but
    that the latter gives a zero map 0.5, and warns of a mask without any background.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for one that covers the whole image (there are no pairs), and for a map
        that is all zero.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> roc_auc(np.array([[0.9, 0.2, 0.5, 0.2]]), np.array([[1, 1, 0, 0]]))  # 2 pairs of 4 won, one tied
        0.625
    """
    return score_pairs(area_under_roc, maps, masks, reduction)


def area_under_roc(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """:func:`roc_auc` of each sample, of maps and masks that have been checked."""
    groups = _tied_groups(maps, masks)
    outside = groups.size - groups.inside
    below = groups.pixels_below - groups.inside_below  # of the background
    # Twice the pairs that the group's pixels inside win, a tie counting for half.
    won = np.add.reduceat(groups.inside * (2 * below + outside), groups.first)
    n_inside = np.count_nonzero(flat(masks), axis=1)
    pairs = n_inside * (masks[0].size - n_inside)
    return share(won, 2 * pairs, (pairs > 0) & flat(maps).any(axis=1))


@described(
    MetricInfo(
        "Average precision",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Precision averaged over the recall as the threshold falls: needs no threshold. Chance is about the "
        "share of the image that the ground truth covers.",
        pitfalls="Chance follows the share of the image that is marked, so that sets with objects of other sizes do "
        "not compare: `average_precision_skill` does.",
        chance="A little more than the share of the image that the ground truth covers.",
        chance_level=expected_average_precision,
        picture="every threshold: precision",
        citation=_PR,
    )
)
def average_precision(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Mean precision over the pixels of the ground truth, each at the threshold that just reaches it.

    .. math:: \sum_n (R_n - R_{n-1})\, P_n

    with precision :math:`P_n` and recall :math:`R_n` at the n-th of the map's different values, from the largest down:
    the area under the precision-recall curve as a step function. (Its trapezoid would be too optimistic: Davis and
    Goadrich 2006.) In [0, 1], higher is better; a constant map scores the share of the image that the mask takes.

    Departures: none from ``sklearn.metrics.average_precision_score`` of a sample up to rounding. Quantus has no such
    metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero. Of a mask that covers the whole image it
        is 1 for any map.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> average_precision(np.array([[0.9, 0.2, 0.5, 0.1]]), np.array([[1, 1, 0, 0]]))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    return score_pairs(mean_precision, maps, masks, reduction)


def mean_precision(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """:func:`average_precision` of each sample, of maps and masks that have been checked."""
    groups = _tied_groups(maps, masks)
    n_inside = np.count_nonzero(flat(masks), axis=1)
    inside_from_here_up = np.repeat(n_inside, groups.per_sample) - groups.inside_below
    pixels_from_here_up = masks[0].size - groups.pixels_below
    steps = np.add.reduceat(groups.inside * (inside_from_here_up / pixels_from_here_up), groups.first)
    return share(steps, n_inside, (n_inside > 0) & flat(maps).any(axis=1))


class _Groups(NamedTuple):
    """The groups of equal pixels of all samples, one after the other, in each from the smallest value up.

    Attributes:
        size: Pixels of each group ``[G]``.
        inside: Those of them that lie in the ground truth ``[G]``.
        pixels_below: Pixels of the same sample below the group ``[G]``.
        inside_below: Those of them that lie in the ground truth ``[G]``.
        first: Index of each sample's first group ``[N]``.
        per_sample: Groups of each sample ``[N]``.
    """

    size: _Counts
    inside: _Counts
    pixels_below: _Counts
    inside_below: _Counts
    first: _Counts
    per_sample: _Counts


def _tied_groups(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> _Groups:
    values, inside = flat(maps), flat(masks)
    pixels = values.shape[1]
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    opens = np.ones(ascending.shape, dtype=np.bool_)  # whether a pixel is the first of its group
    np.not_equal(ascending[:, 1:], ascending[:, :-1], out=opens[:, 1:])
    starts = np.flatnonzero(opens)
    counted = np.cumsum(np.take_along_axis(inside, order, axis=1).ravel(), dtype=np.int64)
    before = np.concatenate([[0], counted])  # pixels inside before each pixel, of this sample and of those before it
    ends = np.append(starts[1:], opens.size)
    per_sample = np.count_nonzero(opens, axis=1)
    return _Groups(
        size=ends - starts,
        inside=before[ends] - before[starts],
        pixels_below=starts % pixels,
        inside_below=before[starts] - np.repeat(before[:-1:pixels], per_sample),
        first=np.cumsum(per_sample) - per_sample,
        per_sample=per_sample,
    )
