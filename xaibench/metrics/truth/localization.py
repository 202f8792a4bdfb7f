"""Does the map put its weight where the ground truth is?

:func:`topk_precision` counts pixels, :func:`mass_accuracy` weighs them; both look at the magnitude ``|s|`` of a map.
Pixels at a distance of the ground truth are all alike here: :mod:`xaibench.metrics.truth.earth_mover` tells near from
far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, flat, score_pairs, share
from xaibench.metrics.truth.chance_levels import marked_share

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_ARRAS = "Arras, Osman, Samek: CLEVR-XAI, Information Fusion 81, 2022, arXiv 2003.07258"


@described(
    MetricInfo(
        "Precision (top k)",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Of the k most important pixels, the share that lies in the ground truth, k being the number of "
        "pixels of the ground truth. 1: all of them.",
        pitfalls="k is the size of the ground truth, which a box or a generous outline makes larger than what the "
        "network needs. In XAI-TRIS's LIN and MULT the absent shape is ground truth, too: a map that marks only the "
        "shape that is there scores about one half.",
        chance="The share of the image that the ground truth covers.",
        chance_level=marked_share,
        picture="top pixels",
        class_name="TopKPrecision",
        citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
    )
)
def topk_precision(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the ``k`` most important pixels that lie in the ground truth, ``k`` being the size of the ground truth.

    .. math:: |\mathrm{top}_k(|s|) \cap F^+| \,/\, k, \qquad k = |F^+|

    The *precision* of XAI-TRIS (Clark et al. 2024), known as relevance rank accuracy elsewhere (Arras et al. 2022).
    In [0, 1], higher is better; random maps score the share of the image that is marked. Recall is the same number.

    Ties at the cut: the score is the expected value over all orders of the tied pixels, :math:`(a + (k - n)\,b/t)/k`,
    where ``n`` pixels lie above the cut, ``a`` of them inside, and ``t`` on it, ``b`` of them inside.

    Departures: the released XAI-TRIS code and Quantus (``RelevanceRankAccuracy``) take the order in which a sort leaves
    equal pixels, so that the score of a map depends on where in the image its ties are; without ties all agree. Quantus
    ranks by the signed value unless its ``abs`` is switched on, and scores a zero map.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero (it ranks nothing) and for an empty mask.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 1, 0, 0]])
        >>> topk_precision(np.array([[0.1, -5.0, 3.0, 0.0]]), masks)
        0.5
        >>> topk_precision(np.array([[9.0, 1.0, 1.0, 1.0]]), masks)  # the second place is drawn among three
        0.6666666666666666
    """
    return score_pairs(_topk_precision, maps, masks, reduction)


def _topk_precision(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    magnitude, inside = flat(np.abs(maps)), flat(masks)
    k = inside.sum(axis=1)
    ascending = np.sort(magnitude, axis=1)
    cut = np.take_along_axis(ascending, (inside.shape[1] - np.maximum(k, 1))[:, None], axis=1)
    above, tied = magnitude > cut, magnitude == cut
    drawn = k - above.sum(axis=1)  # how many of the tied pixels are among the k
    expected = drawn * (tied & inside).sum(axis=1) / tied.sum(axis=1)
    defined = (k > 0) & (ascending[:, -1] > 0)
    return share((above & inside).sum(axis=1) + expected, k, defined)


@described(
    MetricInfo(
        "Mass accuracy",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Share of the map’s magnitude that lies in the ground truth. 1: all of it.",
        pitfalls="One single pixel inside scores 1. Small values over a large background add up, so that noisy maps "
        "lose more here than by ranks.",
        chance="The share of the image that the ground truth covers.",
        chance_level=marked_share,
        picture="mass inside",
        citation=_ARRAS,
    )
)
def mass_accuracy(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's mass that lies in the ground truth.

    .. math:: \sum_{F^+} |s| \,/\, \sum |s|

    Importance mass accuracy in the journal version of XAI-TRIS, relevance mass accuracy of Arras et al. (2022). In
    [0, 1], higher is better; a constant map scores the share of the image that is marked.

    Departures: Quantus (``RelevanceMassAccuracy``) sums signed values unless its ``abs`` is switched on, which may
    leave the range; its ``AttributionLocalisation`` adds 1e-9 to the sum, so that the scale of the map counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero and for an empty mask (which would make it 0 for every map).

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> mass_accuracy(np.array([[3.0, -3.0, 2.0, 0.0]]), np.array([[1, 1, 0, 0]]))
        0.75
    """
    return score_pairs(_mass_accuracy, maps, masks, reduction)


def _mass_accuracy(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    magnitude, inside = flat(np.abs(maps)), flat(masks)
    peak = magnitude.max(axis=1, keepdims=True)
    defined = (peak[:, 0] > 0) & inside.any(axis=1)
    magnitude /= np.where(peak > 0, peak, 1.0)  # so that the sums of huge and of tiny maps neither over- nor underflow
    within = np.where(inside, magnitude, 0.0).sum(axis=1)
    without = np.where(inside, 0.0, magnitude).sum(axis=1)
    # Both sides are summed apart: all mass inside is exactly 1, and no rounding leaves the range.
    return share(within, within + without, defined)
