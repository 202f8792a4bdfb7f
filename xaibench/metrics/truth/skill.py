r"""How far is the map from noise, on the way to the best possible? The metrics of this package, read against chance.

.. math:: \text{skill} = \frac{\text{score} - \text{chance}}{\text{best} - \text{chance}}

sample by sample, *chance* being what a map of independent uniform noise scores on average against the same ground
truth (:func:`xaibench.metrics.chance_level`), *best* the score of the ground truth itself. 0 is chance, 1 is perfect,
below 0 is worse than noise, whatever the metric and however large the ground truth; so that skills compare where scores
do not. Within a sample a skill orders maps as its metric does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_reduction, reduce_scores
from xaibench.metrics.shared.undefined_scores import EMPTY_MASK, PERFECT_CHANCE, ZERO_MAP
from xaibench.metrics.truth.against_chance import skill_scores
from xaibench.metrics.truth.earth_mover import emd_perf
from xaibench.metrics.truth.localization import topk_precision
from xaibench.metrics.truth.overlap import iou
from xaibench.metrics.truth.ranking import average_precision

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_CHANCE = "0, by construction."


@described(
    MetricInfo(
        "EMD skill",
        "ground-truth",
        higher_is_better=True,
        range=(-math.inf, 1.0),
        meaning="How much nearer than noise the map lies to the ground truth: the share of the noise’s earth mover’s "
        "distance that it saves. 0: no better than noise, 1: perfect, below 0: worse than noise.",
        pitfalls="Worse than noise is common and means little by itself: a map that marks one wrong place well is "
        "farther from the ground truth than noise, which lies everywhere a little.",
        chance=_CHANCE,
        skill_of="emd_perf",
        undefined=(EMPTY_MASK, PERFECT_CHANCE, ZERO_MAP),
        picture="score, chance and best",
        class_name="EMDSkill",
        citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
    )
)
def emd_skill(
    maps: Array,
    masks: Array,
    *,
    workers: int = 1,
    time_limit: float | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""EMD performance against chance: 0 for noise, 1 for the ground truth itself, below 0 for worse than noise.

    .. math:: \frac{\mathbb{E}[W_1(u, q)] - W_1(p, q)}{\mathbb{E}[W_1(u, q)]}

    with :math:`p` the map and :math:`q` the ground truth, both scaled to sum one, and :math:`u` such a map of
    independent uniform noise; the skill of :func:`emd_perf`, whatever its diameter. At most 1, higher is better. At 8×8
    noise has an EMD performance of some 0.8, from which this takes away what a map gets for being spread out.

    The expectation is integrated over fixed draws (64 at 8×8, 2 at 64×64, in pairs of opposites), once for each mask,
    with a standard error of the skill below 0.003 (:mod:`xaibench.metrics.truth.noise_distance`).

    Departures: the paper reports the performance alone.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        workers: As for :func:`emd`.
        time_limit: As for :func:`emd`.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The skill; ``nan`` for a map that is all zero and for an empty mask, and for an image of one pixel.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, ``workers`` below 1, a
            negative ``time_limit``.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.
        TransportError: If the optimum is not reached; the message says what is known.

    Example:
        >>> import numpy as np
        >>> mask = np.zeros((8, 8), dtype=bool)
        >>> mask[2:4, 2:4] = True
        >>> emd_skill(mask, mask), round(emd_skill(np.ones((8, 8)), mask), 1), emd_skill(mask[::-1, ::-1], mask) < 0
        (1.0, 0.0, True)
    """
    scores = emd_perf(maps, masks, workers=workers, time_limit=time_limit, reduction="none")
    return _skill("emd_perf", scores, maps, masks, {}, reduction)


@described(
    MetricInfo(
        "Precision skill",
        "ground-truth",
        higher_is_better=True,
        range=(-math.inf, 1.0),
        meaning="Precision (top k) against noise, whose precision is the share of the image that the ground truth "
        "covers. 0: no better than noise, 1: perfect, below 0: worse than noise.",
        pitfalls="It cannot be far below 0 where the ground truth is small: a map that misses all of 5 % of the image "
        "has -0.05.",
        chance=_CHANCE,
        skill_of="topk_precision",
        undefined=(EMPTY_MASK, PERFECT_CHANCE, ZERO_MAP),
        picture="score, chance and best",
        class_name="PrecisionSkill",
        citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
    )
)
def precision_skill(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Precision among the top k pixels against chance: 0 for noise, 1 for all of them in the ground truth.

    .. math:: \frac{\text{precision} - R/N}{1 - R/N}

    with :math:`R` of the :math:`N` pixels in the ground truth; the skill of :func:`topk_precision`. At most 1, higher
    is better.

    Departures: the paper reports the precision alone.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The skill; ``nan`` for a map that is all zero, for an empty mask and for one that covers the whole image.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> round(precision_skill(np.array([[0.1, -5.0, 3.0, 0.0]]), np.array([[0, 1, 0, 0]])), 3)
        1.0
    """
    scores = topk_precision(maps, masks, reduction="none")
    return _skill("topk_precision", scores, maps, masks, {}, reduction)


@described(
    MetricInfo(
        "IoU skill",
        "ground-truth",
        higher_is_better=True,
        range=(-math.inf, 1.0),
        meaning="IoU against noise that is cut in the same way. 0: no better than noise, 1: perfect, below 0: worse "
        "than noise.",
        pitfalls="Noise cut halfway marks half of the image, which suits large ground truths; a map that marks little "
        "may have less than 0 there, though all that it marks is right.",
        thresholded=True,
        chance=_CHANCE,
        skill_of="iou",
        undefined=(EMPTY_MASK, PERFECT_CHANCE),
        picture="score, chance and best",
        class_name="IoUSkill",
        citation="Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537",
    )
)
def iou_skill(
    maps: Array, masks: Array, *, threshold: float = 0.0, scaled: bool = False, reduction: Reduction = "mean"
) -> Scores:
    r"""Intersection over union against chance: 0 for noise that is cut in the same way, 1 for the ground truth itself.

    .. math:: \frac{\text{IoU} - c}{1 - c}, \qquad
        c = R\,p \sum_o \binom{N-R}{o} p^o (1-p)^{N-R-o} \frac{1}{R+o}

    with :math:`R` of the :math:`N` pixels in the ground truth and :math:`p` the chance that a pixel of the noise is
    marked: the exact expectation, since inside and outside are marked independently. At most 1, higher is better.

    Departures: the published functions report the IoU alone.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, taken as they are.
        masks: Of the same shape, binary, ``True`` = important.
        threshold: :math:`\tau`; a pixel is marked when it is strictly above.
        scaled: What noise is compared with. ``False``: uniform in [-1, 1), so :math:`p = (1 - \tau) / 2`. ``True``: its
            magnitude, stretched to [0, 1] as the maps have been (by the protocol ``"scaled"``, or by yourself); of
            which the largest pixel is 1, the smallest 0, and :math:`p = 1 - \tau` for the others.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The skill; ``nan`` for an empty mask, and for one that covers the whole image where all noise is marked.

    Raises:
        ValueError: For shapes that differ, maps or a threshold that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> round(iou_skill(np.array([[0.9, 0.2, -0.5, 0.7]]), np.array([[1, 1, 0, 0]])), 3)
        0.484
    """
    scores = iou(maps, masks, threshold=threshold, reduction="none")
    return _skill("iou", scores, maps, masks, {"threshold": threshold, "scaled": scaled}, reduction)


@described(
    MetricInfo(
        "AP skill",
        "ground-truth",
        higher_is_better=True,
        range=(-math.inf, 1.0),
        meaning="Average precision against noise. 0: no better than noise, 1: perfect, below 0: worse than noise.",
        pitfalls="Of small ground truths noise has next to nothing, and the skill is all but the score.",
        chance=_CHANCE,
        skill_of="average_precision",
        undefined=(EMPTY_MASK, PERFECT_CHANCE, ZERO_MAP),
        picture="score, chance and best",
        citation="Bestgen: Exact expected average precision of the random baseline, 2015",
    )
)
def average_precision_skill(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Average precision against chance: 0 for noise, 1 for all of the ground truth above all else.

    .. math:: \frac{\text{AP} - c}{1 - c}, \qquad
        c = \frac1N \Bigl[H_N \frac{N-R}{N-1} + N \frac{R-1}{N-1}\Bigr], \qquad H_N = \sum_{i=1}^N \frac1i

    with :math:`R` of the :math:`N` pixels in the ground truth: the expectation over all orders of the pixels, which is
    above the share :math:`R/N`. At most 1, higher is better.

    Departures: ``sklearn`` and the published functions have the average precision alone.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The skill; ``nan`` for an empty mask, for one that covers the whole image, and for a map that is all zero.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> round(average_precision_skill(np.array([[0.9, 0.2, 0.5, 0.1]]), np.array([[1, 1, 0, 0]])), 3)
        0.478
    """
    scores = average_precision(maps, masks, reduction="none")
    return _skill("average_precision", scores, maps, masks, {}, reduction)


def _skill(
    metric: str, scores: Scores, maps: Array, masks: Array, parameters: Mapping[str, Any], reduction: Reduction
) -> Scores:
    check_reduction(reduction)
    return reduce_scores(skill_scores(metric, scores, masks, parameters), reduction, like=maps)
