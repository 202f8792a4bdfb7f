"""Ranking of the pixels of the ground truth above the others, at all thresholds.

The map is treated as the scores of a pixel classifier, the mask as the labels; both metrics depend only on the order of
the pixels. Tied pixels are treated exactly: a threshold reaches all of them at once.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.chance import expected_average_precision, half
from xaibench.metrics.shared.inputs import EMPTY_MASK, FULL_MASK, ZERO_MAP, Scores, flat, score_pairs, share
from xaibench.metrics.shared.ranks import ascending_steps, tie_tolerance
from xaibench.registry.info import MetricInfo

_Counts: TypeAlias = NDArray[np.int64]

_ROC = "Fawcett: An introduction to ROC analysis, Pattern Recognition Letters 27, 2006"
_PR = "Davis, Goadrich: The relationship between precision-recall and ROC curves, ICML 2006"


@MetricInfo(
    "ROC AUC",
    higher_is_better=True,
    attains_ends=True,
    meaning="Probability that a pixel of the ground truth has a higher value than a pixel outside. 0.5: no "
    "better than noise.",
    pitfalls="If the ground truth is small, nearly all pixels outside are easy, and a map whose top pixels all "
    "miss may still score 0.9; `average_precision` emphasizes the top pixels.",
    undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
    chance="One half.",
    chance_level=half,
    picture="every threshold: outside and inside",
    class_name="ROCAUC",
    citation=_ROC,
)
def roc_auc(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Area under the receiver operating characteristic: how often a pixel inside ranks above a pixel outside.

    .. math:: P(s_i > s_j) + \tfrac12 P(s_i = s_j), \qquad i \in F^+,\; j \notin F^+

    over all such pairs of pixels, which is the Mann–Whitney U statistic over :math:`|F^+|\,|F^-|` (Fawcett 2006,
    Section 7). Pairs are counted in integers, so the score is exact up to one rounding. In [0, 1], higher is better;
    0.5 for a random map and for a constant one.

    Departures: neighboring values that differ by at most 1e-9 of the map's largest magnitude are equal here, so that
    rounding does not decide; otherwise none from ``sklearn.metrics.roc_auc_score`` per sample, up to rounding, nor from
    Quantus (``AUC``), except that the latter scores a map of zeros as 0.5, and warns about a mask without background.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for one that covers the whole image (pairs do not exist), and for a map
        that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> roc_auc(np.array([[0.9, 0.2, 0.5, 0.2]]), np.array([[1, 1, 0, 0]]))  # 2 of 4 pairs won, one tied
        0.625
    """
    return score_pairs(area_under_roc, maps, masks, reduction)


def area_under_roc(maps: Floats, masks: Bools) -> Floats:
    """Return :func:`roc_auc` per sample, for checked maps and masks."""
    groups = _tied_groups(maps, masks)
    outside = groups.size - groups.inside
    below = groups.pixels_below - groups.inside_below  # background pixels
    # Twice the number of pairs that pixels inside win; a tie counts one half.
    won = np.add.reduceat(groups.inside * (2 * below + outside), groups.first)
    n_inside = np.count_nonzero(flat(masks), axis=1)
    pairs = n_inside * (masks[0].size - n_inside)
    return share(won, 2 * pairs, (pairs > 0) & flat(maps).any(axis=1))


@MetricInfo(
    "Average precision",
    higher_is_better=True,
    attains_ends=True,
    meaning="Precision averaged over all recalls, without a threshold. Chance is about the share of the image "
    "that the ground truth covers.",
    pitfalls="The chance level depends on the size of the ground truth, so data sets with objects of different "
    "sizes are not comparable; `average_precision_skill` is.",
    chance="A little more than the share of the image that the ground truth covers.",
    chance_level=expected_average_precision,
    picture="every threshold: precision",
    citation=_PR,
)
def average_precision(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Mean precision over the pixels of the ground truth, each at the threshold that just includes it.

    .. math:: \sum_n (R_n - R_{n-1})\, P_n

    with precision :math:`P_n` and recall :math:`R_n` at the n-th distinct value of the map, from the largest down: the
    area under the precision-recall curve as a step function. (Its trapezoid would be too optimistic: Davis and Goadrich
    2006.) In [0, 1], higher is better; a constant map scores the share of the image that the mask covers.

    Departures: values are equal as in :func:`roc_auc`; otherwise none from ``sklearn.metrics.average_precision_score``
    per sample, up to rounding. Quantus does not
    provide this metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero. For a mask that covers the whole image it
        is 1 for any map.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> average_precision(np.array([[0.9, 0.2, 0.5, 0.1]]), np.array([[1, 1, 0, 0]]))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    return score_pairs(mean_precision, maps, masks, reduction)


def mean_precision(maps: Floats, masks: Bools) -> Floats:
    """Return :func:`average_precision` per sample, for checked maps and masks."""
    groups = _tied_groups(maps, masks)
    n_inside = np.count_nonzero(flat(masks), axis=1)
    inside_from_here_up = np.repeat(n_inside, groups.per_sample) - groups.inside_below
    pixels_from_here_up = masks[0].size - groups.pixels_below
    steps = np.add.reduceat(groups.inside * (inside_from_here_up / pixels_from_here_up), groups.first)
    return share(steps, n_inside, (n_inside > 0) & flat(maps).any(axis=1))


class _Groups(NamedTuple):
    """Groups of tied pixels of all samples, one sample after the other, from the smallest value up.

    Ties are defined in :mod:`xaibench.metrics.shared.ranks`.

    Attributes:
        size: Number of pixels per group ``[G]``.
        inside: Number of these inside the ground truth ``[G]``.
        pixels_below: Number of pixels of the same sample below the group ``[G]``.
        inside_below: Number of these inside the ground truth ``[G]``.
        first: Index of each sample's first group ``[N]``.
        per_sample: Number of groups per sample ``[N]``.
    """

    size: _Counts
    inside: _Counts
    pixels_below: _Counts
    inside_below: _Counts
    first: _Counts
    per_sample: _Counts


def _tied_groups(maps: Floats, masks: Bools) -> _Groups:
    values, inside = flat(maps), flat(masks)
    pixels = values.shape[1]
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    opens = np.ones(ascending.shape, dtype=np.bool_)  # is a pixel the first of its group
    np.greater(ascending_steps(ascending), tie_tolerance(values), out=opens[:, 1:])
    starts = np.flatnonzero(opens)
    counted = np.cumsum(np.take_along_axis(inside, order, axis=1).ravel(), dtype=np.int64)
    before = np.concatenate([[0], counted])  # pixels inside before each pixel, also of previous samples
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
