r"""Does the map, cut at a threshold, cover the ground truth? And does its peak lie in it?

With :math:`M = \{s > \tau\}` the marked pixels and :math:`F^+` the ground truth,

======================  ==========================================================  ===================
metric                  equation                                                    default :math:`\tau`
======================  ==========================================================  ===================
:func:`iou`             :math:`|M \cap F^+| \,/\, |M \cup F^+|`                     0.0
:func:`precision`       :math:`|M \cap F^+| \,/\, |M|`                              0.0
:func:`recall`          :math:`|M \cap F^+| \,/\, |F^+|`                            0.5
:func:`f1`              :math:`2\,|M \cap F^+| \,/\, (|M| + |F^+|)`                 0.0
:func:`hit`             the largest pixel lies in :math:`F^+`
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

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_Counts: TypeAlias = NDArray[np.int64]

_ZHANG = "Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537"
_POINTING = (
    "Zhang, Bargal, Lin, Brandt, Shen, Sclaroff: Top-down neural attention by excitation backprop, IJCV 126, 2018"
)


@described(
    MetricInfo(
        "IoU",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        thresholded=True,
        citation=_ZHANG,
    )
)
def iou(maps: Array, masks: Array, *, threshold: float = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Intersection over union of the pixels above the threshold and the ground truth.

    .. math:: |M \cap F^+| \,/\, |M \cup F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1, also called the Jaccard index. In [0, 1], higher is better. With the default
    threshold of 0 every pixel of a positive map is marked, so the score is the share of the image that the mask takes.

    Departures: the published function (``xaibenchmark``) counts a sample without annotation as 0, here it is undefined.
    Quantus, Captum, torch-cam and pytorch-grad-cam have no such metric.

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
        thresholded=True,
        citation=_ZHANG,
    )
)
def precision(maps: Array, masks: Array, *, threshold: float = 0.0, reduction: Reduction = "mean") -> Scores:
    r"""Share of the pixels above the threshold that lie in the ground truth.

    .. math:: |M \cap F^+| \,/\, |M|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The *precision* of XAI-TRIS is another one:
    :func:`~xaibench.metrics.topk_precision`.

    Departures: the published function counts a sample without annotation as 0, here it is undefined. Quantus, Captum,
    torch-cam and pytorch-grad-cam have no such metric (Quantus' ``TopKIntersection`` takes a fixed number of pixels).

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
        thresholded=True,
        citation=_ZHANG,
    )
)
def recall(maps: Array, masks: Array, *, threshold: float = 0.5, reduction: Reduction = "mean") -> Scores:
    r"""Share of the ground truth that is above the threshold.

    .. math:: |M \cap F^+| \,/\, |F^+|, \qquad M = \{s > \tau\}

    Zhang et al. (2023), Section 5.1. In [0, 1], higher is better. The published function cuts at 0.5 where
    :func:`iou` and :func:`precision` cut at 0; so do the defaults here.

    Departures: the published function counts a sample without annotation as 0, here it is undefined. Quantus, Captum,
    torch-cam and pytorch-grad-cam have no such metric.

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
        thresholded=True,
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


@described(MetricInfo("Pointing game", "ground-truth", higher_is_better=True, range=(0.0, 1.0), citation=_POINTING))
def hit(maps: Array, masks: Array, *, tolerance: float = 0, reduction: Reduction = "mean") -> Scores:
    r"""Pointing game: 1 when the largest pixel of the map lies in the ground truth, 0 when it does not.

    .. math:: |\{s = \max s\} \cap F^+_r| \,/\, |\{s = \max s\}|

    Zhang et al. (2018). In [0, 1], higher is better. Where several pixels share the maximum, the score is the share of
    them that lies inside, the expected hit of one drawn among them; a constant map thus scores the share of the image
    that the ground truth takes. The mean is the accuracy that papers report as hits / (hits + misses).

    Departures: Quantus (``PointingGame``) counts a hit when *any* of the tied maxima lies inside, so that a constant
    map always hits (a batch of nothing but one constant is refused), and stores the ``nan`` of an empty mask as a truth
    value, which is a hit. TorchRay (``PointingGame``) takes one point that the caller draws, has a tolerance of 15, and
    asks for a distance below the tolerance, so that at 0 nothing hits; here a distance equal to it counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, the largest value wins, not the largest magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        tolerance: Radius in pixels :math:`r`, at least 0. The ground truth is dilated by a Euclidean disc: pixels whose
            centre is at most this far from the centre of a pixel of the mask are inside as well.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero (it points nowhere).

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, a negative or infinite
            tolerance.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> maps, masks = np.array([[0.1, 0.2, 0.2, 0.9]]), np.array([[1, 1, 0, 0]])
        >>> hit(maps, masks), hit(maps, masks, tolerance=2)
        (0.0, 1.0)
        >>> hit(np.minimum(maps, 0.2), masks)  # one of the three largest pixels lies inside
        0.3333333333333333
    """
    check_finite_number(tolerance, "tolerance", least=0)

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        values, inside = flat(maps), flat(_dilated(masks, tolerance) if tolerance else masks)
        top = values == values.max(axis=1, keepdims=True)
        defined = np.asarray(flat(masks).any(axis=1) & values.any(axis=1))
        return share((top & inside).sum(axis=1), top.sum(axis=1), defined)

    return score_pairs(kernel, maps, masks, reduction)


class _Overlap(NamedTuple):
    """Numbers of pixels ``[N]``: marked by the map, in the ground truth, and both."""

    marked: _Counts
    truth: _Counts
    both: _Counts


def _count(maps: NDArray[np.float64], masks: NDArray[np.bool_], threshold: float) -> _Overlap:
    marked, truth = flat(maps > threshold), flat(masks)
    return _Overlap(*(np.count_nonzero(pixels, axis=1) for pixels in (marked, truth, marked & truth)))


def _dilated(masks: NDArray[np.bool_], radius: float) -> NDArray[np.bool_]:
    """Masks ``[N, H, W]`` and all pixels within ``radius`` of them; an empty mask may become anything."""
    from scipy.ndimage import distance_transform_edt  # imported here: no other metric of this file needs scipy

    grown: NDArray[np.bool_] = np.stack([distance_transform_edt(~mask) <= radius for mask in masks])
    return grown
