"""Share of the map inside the ground truth.

:func:`topk_precision` counts pixels, :func:`mass_accuracy` weights them, and :func:`relative_importance` relates their
mass to the area; all use the magnitude ``|s|`` of a map. The
distance of a pixel from the ground truth does not matter here; see :mod:`xaibench.metrics.localization.emd`.
"""

from __future__ import annotations

import numpy as np

from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.chance import marked_share
from xaibench.metrics.shared.inputs import Scores, flat, score_pairs, share
from xaibench.metrics.shared.ranks import top_pixels
from xaibench.registry.info import MetricInfo

_ARRAS = "Arras, Osman, Samek: CLEVR-XAI, Information Fusion 81, 2022, arXiv 2003.07258"


@MetricInfo(
    "Precision (top k)",
    higher_is_better=True,
    attains_ends=True,
    meaning="Share of the k most important pixels that are inside the ground truth; k is the number of pixels "
    "of the ground truth. 1: all of them.",
    pitfalls="k is the size of the ground truth; a box or a generous outline makes it larger than the area that "
    "the network needs. In XAI-TRIS's LIN and MULT the absent shape is also ground truth: a map that "
    "marks only the present shape scores about one half.",
    map_sign="magnitude",
    chance="The share of the image that the ground truth covers.",
    chance_level=marked_share,
    picture="top pixels",
    class_name="TopKPrecision",
    citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
)
def topk_precision(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the ``k`` most important pixels that are inside the ground truth, where ``k`` is its number of pixels.

    .. math:: |\mathrm{top}_k(|s|) \cap F^+| \,/\, k, \qquad k = |F^+|

    The *precision* of XAI-TRIS (Clark et al. 2024), known as relevance rank accuracy elsewhere (Arras et al. 2022).
    In [0, 1], higher is better; random maps score the share of the image that is marked. Recall is the same number.

    Ties at the cut-off: the score is the expected value over all orders of the tied pixels, :math:`(a + (k -
    n)\,b/t)/k`, where ``n`` pixels are above the cut-off (``a`` of them inside) and ``t`` are equal to it (``b`` of
    them inside). Values are equal if they differ by at most 1e-9 of the map's largest magnitude, so that rounding does
    not decide the score.

    Departures: the released XAI-TRIS code and Quantus (``RelevanceRankAccuracy``) break ties by the order of a sort, so
    the score depends on the positions of the ties; without ties all agree. Quantus ranks by the signed value unless its
    ``abs`` is switched on, and returns a score for a map of zeros.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero (it does not rank pixels) and for an empty mask.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 1, 0, 0]])
        >>> topk_precision(np.array([[0.1, -5.0, 3.0, 0.0]]), masks)
        0.5
        >>> topk_precision(np.array([[9.0, 1.0, 1.0, 1.0]]), masks)  # the second place is tied among three
        0.6666666666666666
    """
    return score_pairs(_topk_precision, maps, masks, reduction)


def _topk_precision(maps: Floats, masks: Bools) -> Floats:
    magnitude, inside = flat(np.abs(maps)), flat(masks)
    k = inside.sum(axis=1)
    top = top_pixels(magnitude, k)
    expected = top.n_tied * (top.tied & inside).sum(axis=1) / top.tied.sum(axis=1)
    defined = (k > 0) & magnitude.any(axis=1)
    return share((top.above & inside).sum(axis=1) + expected, k, defined)


@MetricInfo(
    "Mass accuracy",
    higher_is_better=True,
    attains_ends=True,
    meaning="Share of the map’s magnitude that is inside the ground truth. 1: all of it.",
    pitfalls="A single pixel inside scores 1. Small values over a large background add up, so noisy maps lose "
    "more here than in rank-based metrics.",
    map_sign="magnitude",
    chance="The share of the image that the ground truth covers.",
    chance_level=marked_share,
    picture="mass inside",
    citation=_ARRAS,
)
def mass_accuracy(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's mass that is inside the ground truth.

    .. math:: \sum_{F^+} |s| \,/\, \sum |s|

    Importance mass accuracy in the journal version of XAI-TRIS, relevance mass accuracy of Arras et al. (2022). In
    [0, 1], higher is better; a constant map scores the share of the image that is marked.

    Departures: Quantus (``RelevanceMassAccuracy``) sums signed values unless its ``abs`` is switched on, so that scores
    may be outside [0, 1]; its ``AttributionLocalization`` adds 1e-9 to the sum, so that the scale of the map matters.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero and for an empty mask (for which every map would score 0).

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> mass_accuracy(np.array([[3.0, -3.0, 2.0, 0.0]]), np.array([[1, 1, 0, 0]]))
        0.75
    """
    return score_pairs(_mass_accuracy, maps, masks, reduction)


def _mass_accuracy(maps: Floats, masks: Bools) -> Floats:
    magnitude, inside = flat(np.abs(maps)), flat(masks)
    peak = magnitude.max(axis=1, keepdims=True)
    defined = (peak[:, 0] > 0) & inside.any(axis=1)
    magnitude /= np.where(peak > 0, peak, 1.0)  # avoids overflow and underflow of sums
    within = np.where(inside, magnitude, 0.0).sum(axis=1)
    without = np.where(inside, 0.0, magnitude).sum(axis=1)
    # Inside and outside are summed separately, so that the score is exactly 1 if all mass is inside.
    return share(within, within + without, defined)


def _one_if_marked(masks: Bools) -> Floats:
    """Return 1 where a pixel is marked: noise puts the same expected mass on each pixel."""
    share_of_area = marked_share(masks)
    return share_of_area / share_of_area


@MetricInfo(
    "Relative importance",
    higher_is_better=True,
    range=(0.0, np.inf),
    meaning="Mean magnitude of the map inside the mask, divided by its mean magnitude over the image. 1: as much "
    "as by chance; 2: twice as much.",
    pitfalls="High is good only if the mask is what should be highlighted. A watermark that the network does not "
    "use should not be above 1. The largest score is the number of pixels divided by that of the mask, so scores "
    "of small masks reach further.",
    map_sign="magnitude",
    chance="1.",
    chance_level=_one_if_marked,
    picture="mass inside",
    citation="Clark, Oliveira, Wilming, Haufe: Feature salience, not task-informativeness, drives machine learning "
    "model explanations, 2026, arXiv 2602.09238",
)
def relative_importance(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Mean importance inside the mask, divided by the mean importance over the image.

    .. math:: \frac{1}{|F^+|} \sum_{F^+} |s| \Big/ \frac{1}{N} \sum |s|

    with :math:`N` pixels. The *relative importance of the watermark* (RIW) of Clark et al. (2026), called ``energy`` in
    their code (``watermarks/calculate_energy.py`` of ``braindatalab/debugging_xai``): :func:`mass_accuracy` divided by
    the share of the image that the mask covers. From 0 to :math:`N / |F^+|`; higher is better if the mask is what
    should be highlighted. Random maps score 1 on average, and a constant map 1.

    Departures: the released code adds 1e-12 to the divisor, so that the scale of the map matters and a map of zeros
    scores 0; it is undefined here. An empty mask scores 0 there.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = the region in question, such as a watermark.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero and for an empty mask.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> relative_importance(np.array([[3.0, -3.0, 2.0, 0.0]]), np.array([[1, 1, 0, 0]]))
        1.5
    """
    return score_pairs(lambda s, truth: _mass_accuracy(s, truth) / marked_share(truth), maps, masks, reduction)
