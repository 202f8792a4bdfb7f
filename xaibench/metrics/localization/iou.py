r"""Overlap of the ground truth and the map, binarized at a threshold.

With :math:`M = \{s > \tau\}` the marked pixels and :math:`F^+` the ground truth,

======================  ==========================================================  ===================
metric                  equation                                                    default :math:`\tau`
======================  ==========================================================  ===================
:func:`iou`             :math:`|M \cap F^+| \,/\, |M \cup F^+|`                     0.0
:func:`precision`       :math:`|M \cap F^+| \,/\, |M|`                              0.0
:func:`recall`          :math:`|M \cap F^+| \,/\, |F^+|`                            0.5
:func:`f1`              :math:`2\,|M \cap F^+| \,/\, (|M| + |F^+|)`                 0.0
======================  ==========================================================  ===================

The default thresholds of the first three are taken from the published functions (Zhang et al. 2023), where they differ;
pass one explicit ``threshold`` to all of them to compare them. Maps are used as they are, without magnitude or scaling:
pass ``abs(maps)`` or maps scaled to [0, 1] if you want that. Maps are compared with the threshold in float64,
regardless of their precision.

With ``threshold="area"`` the :math:`k = |F^+|` largest pixels are marked, as many as the ground truth has, so that the
score depends on the order of the pixels only. Precision, recall and F1 are then the same number, that of
:func:`xaibench.metrics.topk_precision` (which ranks by magnitude). The score is the expected value over all choices
among the pixels that tie at the cut (:mod:`xaibench.metrics.shared.ranks`). A map that is all zero ranks no pixels, and
its score is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.messages import ParameterWarning, warn_caller
from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.chance import (
    expected_f1,
    expected_iou,
    expected_iou_at_area,
    expected_precision,
    expected_recall,
)
from xaibench.metrics.shared.inputs import (
    EMPTY_MASK,
    NOTHING_ABOVE,
    Scores,
    Threshold,
    check_threshold,
    flat,
    score_pairs,
    share,
)
from xaibench.metrics.shared.ranks import top_pixels
from xaibench.registry.info import MetricInfo

_Counts: TypeAlias = NDArray[np.int64]

_ZHANG = "Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537"


@MetricInfo(
    "IoU",
    higher_is_better=True,
    attains_ends=True,
    meaning="Number of pixels that are both marked by the map and in the ground truth, divided by the number "
    "that are either. 1: the same pixels.",
    pitfalls="At a fixed threshold the score depends on the threshold as much as on the map: maps with a few high "
    'peaks mark almost nothing at half of their maximum. [`threshold="area"`](saliency-bench.md#how-maps-are-cut) '
    "marks as many pixels as the ground truth has, and is the default of `evaluate`.",
    thresholded=True,
    undefined=(EMPTY_MASK,),
    chance="About s/(1 + s) if half of the image is marked, where s is the share covered by the ground truth.",
    chance_level=expected_iou,
    picture="cut map: of either",
    class_name="IoU",
    citation=_ZHANG,
)
def iou(maps: Array, masks: Array, *, threshold: Threshold = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Intersection over union of the pixels above the threshold and the ground truth.

    .. math:: |M \cap F^+| \,/\, |M \cup F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1, also called the Jaccard index. In [0, 1], higher is better. With the default
    threshold of 0 every pixel of a positive map is marked, so the score is the share of the image that the mask covers.

    Departures: none from the published function (``xaibenchmark``), which also excludes samples with an empty mask from
    the mean. Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, used as they are.
        masks: Same shape as the maps, binary; ``True`` = important.
        threshold: :math:`\tau`; pixels with a value strictly above it are marked. ``"area"``: the
            :math:`k = |F^+|` largest pixels are marked.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask, and with ``"area"`` for a map that is all zero. A map with no pixel above
        the threshold scores 0.

    Raises:
        ValueError: If shapes differ, maps or the threshold are not finite, masks are not binary, or the threshold is
            another word than ``"area"``.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Warns:
        ParameterWarning: If every pixel of a map is above the threshold.

    Example:
        >>> import numpy as np
        >>> iou(np.array([[0.9, 0.2, -0.5, 0.7]]), np.array([[1, 1, 0, 0]]))
        0.6666666666666666
        >>> iou(np.array([[0.9, 0.2, -0.5, 0.7]]), np.array([[1, 1, 0, 0]]), threshold="area")
        0.3333333333333333
    """
    if threshold == "area":
        return score_pairs(_iou_at_area, maps, masks, reduction)
    return _score_overlap(
        lambda n: share(n.both, n.marked + n.truth - n.both, n.defined), maps, masks, threshold, reduction
    )


@MetricInfo(
    "Precision",
    higher_is_better=True,
    attains_ends=True,
    meaning="Share of the marked pixels that are in the ground truth.",
    pitfalls="Undefined where no pixel is above the threshold, while IoU and recall are 0 there: compare methods "
    "on the samples where all are defined. A single marked pixel inside scores 1.",
    thresholded=True,
    undefined=(EMPTY_MASK, NOTHING_ABOVE),
    chance="The share of the image that the ground truth covers.",
    chance_level=expected_precision,
    picture="cut map: of the marked",
    citation=_ZHANG,
)
def precision(maps: Array, masks: Array, *, threshold: Threshold = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Share of the pixels above the threshold that are in the ground truth.

    .. math:: |M \cap F^+| \,/\, |M|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The *precision* of XAI-TRIS is a different metric:
    :func:`~xaibench.metrics.topk_precision`.

    Departures: the published function (``xaibenchmark``) is NaN for all samples if one map has no pixel above 0; here
    only that sample is undefined and excluded from the mean. Captum, Quantus, torch-cam and pytorch-grad-cam do not
    provide this metric (Quantus' ``TopKIntersection`` takes a fixed number of pixels).

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, used as they are.
        masks: Same shape as the maps, binary; ``True`` = important.
        threshold: :math:`\tau`; pixels with a value strictly above it are marked. ``"area"``: the
            :math:`k = |F^+|` largest pixels are marked.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask, for a map with no pixel above the threshold, and with ``"area"`` for a map
        that is all zero.

    Raises:
        ValueError: If shapes differ, maps or the threshold are not finite, masks are not binary, or the threshold is
            another word than ``"area"``.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Warns:
        ParameterWarning: If every pixel of a map is above the threshold.

    Example:
        >>> import numpy as np
        >>> precision(np.array([[0.9, 0.2, -0.5, 0.7]]), np.array([[1, 1, 0, 0]]))
        0.6666666666666666
    """
    return _score_overlap(
        lambda n: share(n.both, n.marked, n.defined & (n.marked > 0)), maps, masks, threshold, reduction
    )


@MetricInfo(
    "Recall",
    higher_is_better=True,
    attains_ends=True,
    meaning="Share of the ground truth’s pixels that are marked. A map that marks everything scores 1.",
    pitfalls="A map that marks everything scores 1: combine it with precision at the same threshold; their "
    "defaults differ.",
    thresholded=True,
    undefined=(EMPTY_MASK,),
    chance="The share of the noise that is above the threshold, for example one half.",
    chance_level=expected_recall,
    picture="cut map: of the truth",
    citation=_ZHANG,
)
def recall(maps: Array, masks: Array, *, threshold: Threshold = 0.5, reduction: Reduction = "mean") -> Scores:
    r"""Share of the ground truth that is above the threshold.

    .. math:: |M \cap F^+| \,/\, |F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The published function has a threshold of 0.5, where
    :func:`iou` and :func:`precision` have 0; the defaults are the same here.

    Departures: none from the published function (``xaibenchmark``), which also excludes samples with an empty mask from
    the mean. Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, used as they are.
        masks: Same shape as the maps, binary; ``True`` = important.
        threshold: :math:`\tau`; pixels with a value strictly above it are marked. ``"area"``: the
            :math:`k = |F^+|` largest pixels are marked.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask, and with ``"area"`` for a map that is all zero. A map with no pixel above
        the threshold scores 0.

    Raises:
        ValueError: If shapes differ, maps or the threshold are not finite, masks are not binary, or the threshold is
            another word than ``"area"``.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Warns:
        ParameterWarning: If every pixel of a map is above the threshold.

    Example:
        >>> import numpy as np
        >>> maps, masks = np.array([[0.9, 0.2, 0.5, 0.0]]), np.array([[1, 1, 0, 0]])
        >>> recall(maps, masks), recall(maps, masks, threshold=0.1)
        (0.5, 1.0)
    """
    return _score_overlap(lambda n: share(n.both, n.truth, n.defined), maps, masks, threshold, reduction)


@MetricInfo(
    "F1",
    higher_is_better=True,
    attains_ends=True,
    meaning="Harmonic mean of precision and recall.",
    pitfalls="Within a sample it ranks maps as IoU does, but the means of the two may rank methods differently.",
    thresholded=True,
    undefined=(EMPTY_MASK,),
    chance="About 2s/(1 + 2s) if half of the image is marked, where s is the share covered by the ground truth.",
    chance_level=expected_f1,
    picture="cut map: of both sizes",
    citation=_ZHANG,
)
def f1(maps: Array, masks: Array, *, threshold: Threshold = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Harmonic mean of precision and recall, both at the same threshold.

    .. math:: 2\,|M \cap F^+| \,/\, (|M| + |F^+|), \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1; also called the Dice coefficient; equal to ``2 * iou / (1 + iou)`` of the same
    sample. In [0, 1], higher is better. Precision and recall have different default thresholds; the default here is
    that of :func:`iou`. The score of a batch is the mean of the samples' F1, not the F1 of their mean precision and
    recall.

    Departures: the paper misprints the denominator. Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this
    metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, used as they are.
        masks: Same shape as the maps, binary; ``True`` = important.
        threshold: :math:`\tau`; pixels with a value strictly above it are marked. ``"area"``: the
            :math:`k = |F^+|` largest pixels are marked.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask, and with ``"area"`` for a map that is all zero. A map with no pixel above
        the threshold scores 0 (its precision is undefined, its recall is 0).

    Raises:
        ValueError: If shapes differ, maps or the threshold are not finite, masks are not binary, or the threshold is
            another word than ``"area"``.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Warns:
        ParameterWarning: If every pixel of a map is above the threshold.

    Example:
        >>> import numpy as np
        >>> f1(np.array([[0.9, 0.2, 0.5, 0.7]]), np.array([[1, 1, 0, 0]]), threshold=0.5)
        0.5
    """
    return _score_overlap(lambda n: share(2 * n.both, n.marked + n.truth, n.defined), maps, masks, threshold, reduction)


class _Overlap(NamedTuple):
    """Numbers of pixels ``[N]``: marked by the map, in the ground truth, and both; and where a score is defined."""

    marked: _Counts
    truth: _Counts
    both: _Counts | Floats
    defined: Bools


def _score_overlap(
    formula: Callable[[_Overlap], Floats], maps: Array, masks: Array, threshold: Threshold, reduction: Reduction
) -> Scores:
    check_threshold(threshold)
    marks_everything = False

    def score(maps: Floats, masks: Bools) -> Floats:
        nonlocal marks_everything
        counts = _count(maps, masks, threshold)
        pixels = flat(maps).shape[1]
        marks_everything |= bool((counts.defined & (counts.marked == pixels) & (counts.truth < pixels)).any())
        return formula(counts)

    scores = score_pairs(score, maps, masks, reduction)
    if marks_everything:
        # The text does not depend on the batch, so that Python shows it once per line of the caller.
        warn_caller(
            f"Every pixel of a map is above threshold={threshold}, so its score depends on the mask alone: IoU and "
            "precision are the mask's share of the image, recall is 1. Pass threshold='area', which marks as many "
            "pixels as the mask has and is the default of xb.evaluate, or a threshold within the range of the maps.",
            ParameterWarning,
        )
    return scores


def _count(maps: Floats, masks: Bools, threshold: Threshold) -> _Overlap:
    truth = flat(masks)
    size = np.count_nonzero(truth, axis=1)
    if threshold == "area":
        top = top_pixels(flat(maps), size)
        expected = top.n_tied * np.count_nonzero(top.tied & truth, axis=1) / np.count_nonzero(top.tied, axis=1)
        both = np.count_nonzero(top.above & truth, axis=1) + expected
        return _Overlap(size, size, both, (size > 0) & flat(maps).any(axis=1))
    marked = flat(maps > threshold)
    both = np.count_nonzero(marked & truth, axis=1)
    return _Overlap(np.count_nonzero(marked, axis=1), size, both, size > 0)


def _iou_at_area(maps: Floats, masks: Bools) -> Floats:
    values, truth = flat(maps), flat(masks)
    k = np.count_nonzero(truth, axis=1)
    top = top_pixels(values, k)
    numbers = zip(
        k.tolist(),
        np.count_nonzero(top.above & truth, axis=1).tolist(),
        np.count_nonzero(top.tied, axis=1).tolist(),
        np.count_nonzero(top.tied & truth, axis=1).tolist(),
        top.n_tied.tolist(),
        strict=True,
    )
    scores = np.array([expected_iou_at_area(*each) if each[0] else np.nan for each in numbers], dtype=np.float64)
    return np.where(values.any(axis=1), scores, np.nan)
