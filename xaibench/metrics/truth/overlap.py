r"""Does the map, cut at a threshold, cover the ground truth?

With :math:`M = \{s > \tau\}` the marked pixels and :math:`F^+` the ground truth,

======================  ==========================================================  ===================
metric                  equation                                                    default :math:`\tau`
======================  ==========================================================  ===================
:func:`iou`             :math:`|M \cap F^+| \,/\, |M \cup F^+|`                     0.0
:func:`precision`       :math:`|M \cap F^+| \,/\, |M|`                              0.0
:func:`recall`          :math:`|M \cap F^+| \,/\, |F^+|`                            0.5
:func:`f1`              :math:`2\,|M \cap F^+| \,/\, (|M| + |F^+|)`                 0.0
======================  ==========================================================  ===================

The thresholds of the first three are those of the published functions (Zhang et al. 2023), in which they differ; give
one explicit ``threshold`` to all of them to compare them. Nothing is done to the map before: no magnitude is taken and
nothing is scaled, so pass ``abs(maps)`` or maps scaled to [0, 1] where that is meant. Maps are compared with the
threshold in float64, whatever they come in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_finite_number, flat, score_pairs, share
from xaibench.metrics.shared.undefined_scores import EMPTY_MASK, NOTHING_ABOVE
from xaibench.metrics.truth.chance_levels import expected_f1, expected_iou, expected_precision, expected_recall

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_Counts: TypeAlias = NDArray[np.int64]

_ZHANG = "Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537"


@described(
    MetricInfo(
        "IoU",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Pixels that the map marks and the ground truth holds, over those that either does. 1: the same "
        "pixels.",
        pitfalls="A score of the threshold as much as of the map. Give all methods one threshold, on maps that are "
        "scaled alike; [suites](saliency-bench.md#how-maps-are-cut) name theirs. Maps with a few high peaks mark next "
        "to nothing at half of their maximum.",
        thresholded=True,
        undefined=(EMPTY_MASK,),
        chance="About s/(1 + s) where half of the image is marked, s being the share that the ground truth covers.",
        chance_level=expected_iou,
        picture="cut map: of either",
        class_name="IoU",
        citation=_ZHANG,
    )
)
def iou(maps: Array, masks: Array, *, threshold: float = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Intersection over union of the pixels above the threshold and the ground truth.

    .. math:: |M \cap F^+| \,/\, |M \cup F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1, also called the Jaccard index. In [0, 1], higher is better. With the default
    threshold of 0 every pixel of a positive map is marked, so the score is the share of the image that the mask takes.

    Departures: none from the published function (``xaibenchmark``), which leaves a sample with an empty mask out of the
    mean as well. Quantus, Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, taken as they are.
        masks: Of the same shape, binary, ``True`` = important.
        threshold: :math:`\tau`; a pixel is marked when it is strictly above.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask. A map with no pixel above the threshold scores 0.

    Raises:
        ValueError: For shapes that differ, maps or a threshold that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> iou(np.array([[0.9, 0.2, -0.5, 0.7]]), np.array([[1, 1, 0, 0]]))
        0.6666666666666666
    """
    check_finite_number(threshold, "threshold")

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        n = _count(maps, masks, threshold)
        return share(n.both, n.marked + n.truth - n.both, n.truth > 0)

    return score_pairs(kernel, maps, masks, reduction)


@described(
    MetricInfo(
        "Precision",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Share of the marked pixels that lie in the ground truth.",
        pitfalls="Undefined where nothing is above the threshold, where IoU and recall are 0: compare methods on the "
        "samples where all are defined. One marked pixel inside scores 1.",
        thresholded=True,
        undefined=(EMPTY_MASK, NOTHING_ABOVE),
        chance="The share of the image that the ground truth covers.",
        chance_level=expected_precision,
        picture="cut map: of the marked",
        citation=_ZHANG,
    )
)
def precision(maps: Array, masks: Array, *, threshold: float = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Share of the pixels above the threshold that lie in the ground truth.

    .. math:: |M \cap F^+| \,/\, |M|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The *precision* of XAI-TRIS is another one:
    :func:`~xaibench.metrics.topk_precision`.

    Departures: the published function (``xaibenchmark``) is ``nan`` for all samples if one map has nothing above 0;
    here that sample alone is undefined, and left out of the mean. Quantus, Captum, torch-cam and pytorch-grad-cam have
    no such metric (Quantus' ``TopKIntersection`` takes a fixed number of pixels).

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, taken as they are.
        masks: Of the same shape, binary, ``True`` = important.
        threshold: :math:`\tau`; a pixel is marked when it is strictly above.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map with no pixel above the threshold.

    Raises:
        ValueError: For shapes that differ, maps or a threshold that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> precision(np.array([[0.9, 0.2, 0.5, 0.7]]), np.array([[1, 1, 0, 0]]))
        0.5
    """
    check_finite_number(threshold, "threshold")

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        n = _count(maps, masks, threshold)
        return share(n.both, n.marked, (n.truth > 0) & (n.marked > 0))

    return score_pairs(kernel, maps, masks, reduction)


@described(
    MetricInfo(
        "Recall",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Share of the ground truth’s pixels that are marked. A map that marks everything has 1.",
        pitfalls="A map that marks everything scores 1: read it beside precision, at the same threshold, which is not "
        "the default of both.",
        thresholded=True,
        undefined=(EMPTY_MASK,),
        chance="The share of the noise that is above the threshold, such as one half.",
        chance_level=expected_recall,
        picture="cut map: of the truth",
        citation=_ZHANG,
    )
)
def recall(maps: Array, masks: Array, *, threshold: float = 0.5, reduction: Reduction = "mean") -> Scores:
    r"""Share of the ground truth that is above the threshold.

    .. math:: |M \cap F^+| \,/\, |F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The published function cuts at 0.5 where
    :func:`iou` and :func:`precision` cut at 0; so do the defaults here.

    Departures: none from the published function (``xaibenchmark``), which leaves a sample with an empty mask out of the
    mean as well. Quantus, Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, taken as they are.
        masks: Of the same shape, binary, ``True`` = important.
        threshold: :math:`\tau`; a pixel is marked when it is strictly above.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask. A map with no pixel above the threshold scores 0.

    Raises:
        ValueError: For shapes that differ, maps or a threshold that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> maps, masks = np.array([[0.9, 0.2, 0.5, 0.7]]), np.array([[1, 1, 0, 0]])
        >>> recall(maps, masks), recall(maps, masks, threshold=0.0)
        (0.5, 1.0)
    """
    check_finite_number(threshold, "threshold")

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        n = _count(maps, masks, threshold)
        return share(n.both, n.truth, n.truth > 0)

    return score_pairs(kernel, maps, masks, reduction)


@described(
    MetricInfo(
        "F1",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Harmonic mean of precision and recall.",
        pitfalls="Within a sample it ranks maps as IoU does; means of the two may still rank methods differently.",
        thresholded=True,
        undefined=(EMPTY_MASK,),
        chance="About 2s/(1 + 2s) where half of the image is marked, s being the share that the ground truth covers.",
        chance_level=expected_f1,
        picture="cut map: of both sizes",
        citation=_ZHANG,
    )
)
def f1(maps: Array, masks: Array, *, threshold: float = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Harmonic mean of precision and recall, both at the same threshold.

    .. math:: 2\,|M \cap F^+| \,/\, (|M| + |F^+|), \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1; also called the Dice coefficient, and equal to ``2 * iou / (1 + iou)`` of the same
    sample. In [0, 1], higher is better. Precision and recall have different defaults; the default here is that of
    :func:`iou`. The score of a batch is the mean of the samples' F1, not the F1 of their mean precision and recall.

    Departures: the paper misprints the denominator. Quantus, Captum, torch-cam and pytorch-grad-cam have no such
    metric.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, taken as they are.
        masks: Of the same shape, binary, ``True`` = important.
        threshold: :math:`\tau`; a pixel is marked when it is strictly above.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask. A map with no pixel above the threshold scores 0 (its precision is
        undefined, its recall is 0).

    Raises:
        ValueError: For shapes that differ, maps or a threshold that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> f1(np.array([[0.9, 0.2, 0.5, 0.7]]), np.array([[1, 1, 0, 0]]), threshold=0.5)
        0.5
    """
    check_finite_number(threshold, "threshold")

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        n = _count(maps, masks, threshold)
        return share(2 * n.both, n.marked + n.truth, n.truth > 0)

    return score_pairs(kernel, maps, masks, reduction)


class _Overlap(NamedTuple):
    """Numbers of pixels ``[N]``: marked by the map, in the ground truth, and both."""

    marked: _Counts
    truth: _Counts
    both: _Counts


def _count(maps: NDArray[np.float64], masks: NDArray[np.bool_], threshold: float) -> _Overlap:
    marked, truth = flat(maps > threshold), flat(masks)
    return _Overlap(*(np.count_nonzero(pixels, axis=1) for pixels in (marked, truth, marked & truth)))
