r"""Skill scores: metrics of this package relative to chance.

.. math:: \text{skill} = \frac{\text{score} - \text{chance}}{\text{best} - \text{chance}}

per sample, where *chance* is the mean score of maps of independent uniform noise for the same ground truth
(:func:`xaibench.metrics.chance_level`) and *best* the score of the ground truth itself. 0 is chance, 1 is perfect,
below 0 is worse than noise, for every metric and every size of the ground truth; so skills are comparable where scores
are not. Within a sample, a skill ranks maps as its metric does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from xaibench.core.types import Array, Reduction
from xaibench.metrics.localization.chance import skill_scores
from xaibench.metrics.localization.emd import emd_perf
from xaibench.metrics.localization.fni_emd import PATTERN_GAM, fni_emd
from xaibench.metrics.localization.iou import iou
from xaibench.metrics.localization.roc_auc import average_precision
from xaibench.metrics.localization.topk_precision import topk_precision
from xaibench.metrics.shared.inputs import (
    EMPTY_MASK,
    PERFECT_CHANCE,
    ZERO_MAP,
    Scores,
    Spacing,
    check_reduction,
    reduce_scores,
)
from xaibench.registry.info import MetricInfo
from xaibench.registry.parameters import Frozen

_SKILL = functools.partial(
    MetricInfo,
    higher_is_better=True,
    range=(-math.inf, 1.0),
    chance="0, by construction.",
    undefined=(EMPTY_MASK, PERFECT_CHANCE, ZERO_MAP),
    picture="score, chance and best",
)


@_SKILL(
    "EMD skill",
    meaning="How much nearer than noise the map is to the ground truth: one minus its earth mover’s distance "
    "divided by that of noise. 0: no better than noise, 1: perfect, below 0: worse than noise.",
    pitfalls="Scores below noise are common and mean little by themselves: a concentrated map at a wrong place "
    "is farther from the ground truth than noise, which is spread over the image.",
    skill_of="emd_perf",
    sample_inputs=("spacing",),
    class_name="EMDSkill",
    citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
)
def emd_skill(
    maps: Array,
    masks: Array,
    *,
    spacing: Spacing = None,
    workers: int = 1,
    time_limit: float | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""EMD performance relative to chance: 0 for noise, 1 for the ground truth itself, below 0 if worse than noise.

    .. math:: \frac{\mathbb{E}[W_1(u, q)] - W_1(p, q)}{\mathbb{E}[W_1(u, q)]}

    with :math:`p` the map and :math:`q` the ground truth, both scaled to sum one, and :math:`u` a map of independent
    uniform noise, scaled in the same way; the skill of :func:`emd_perf`, for any diameter. At most 1, higher is better.
    At 8×8 noise has an EMD performance of about 0.8; the skill subtracts this reward for being spread out.

    The expectation is integrated over fixed draws (64 at 8×8, 2 at 64×64, in antithetic pairs), once per mask, with a
    standard error of the skill below 0.003 (:mod:`xaibench.metrics.localization.emd`).

    Departures: the paper reports only the performance.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        spacing: As in :func:`emd`; only its ratios matter.
        workers: As in :func:`emd`.
        time_limit: As in :func:`emd`.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The skill; ``nan`` for a map that is all zero and for an empty mask, and for an image of one pixel.

    Raises:
        ValueError: If shapes differ, maps are not finite, masks are not binary, ``spacing`` is not positive or does not
            match the maps, ``workers`` is below 1, or ``time_limit`` is negative.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
        TransportError: If the optimum is not reached; the message contains the known bounds.

    Example:
        >>> import numpy as np
        >>> mask = np.zeros((8, 8), dtype=bool)
        >>> mask[2:4, 2:4] = True
        >>> emd_skill(mask, mask), round(emd_skill(np.ones((8, 8)), mask), 1), emd_skill(mask[::-1, ::-1], mask) < 0
        (1.0, 0.0, True)
    """
    return _skill(emd_perf, maps, masks, reduction, {"spacing": spacing}, workers=workers, time_limit=time_limit)


@_SKILL(
    "FNI-EMD skill",
    meaning="How much less than with noise the mass outside of the ground truth must move. 0: no better than "
    "noise, 1: all mass is on the ground truth, below 0: worse than noise.",
    pitfalls="Below noise it means little: a concentrated map at a wrong place is farther away than noise, which "
    "is spread over the image.",
    skill_of="fni_emd",
    sample_inputs=("spacing",),
    class_name="FNIEMDSkill",
    citation=PATTERN_GAM,
)
def fni_emd_skill(maps: Array, masks: Array, *, spacing: Spacing = None, reduction: Reduction = "mean") -> Scores:
    r"""FNI-EMD performance relative to chance: 0 for noise, 1 if all mass is on the ground truth.

    .. math:: \frac{\text{score} - c}{1 - c}

    with :math:`c` the mean :func:`fni_emd` of maps of independent uniform noise. At most 1, higher is better.

    Departures: the paper reports only the performance.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        spacing: As in :func:`fni_emd`.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The skill; ``nan`` for a map that is all zero, for an empty mask, and for one of the whole image.

    Raises:
        ValueError: As in :func:`fni_emd`.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
        TransportError: If the optimum is not reached; the message contains the known bounds.

    Example:
        >>> import numpy as np
        >>> mask = np.zeros((8, 8), dtype=bool)
        >>> mask[2:4, 2:4] = True
        >>> fni_emd_skill(mask, mask), round(fni_emd_skill(np.ones((8, 8)), mask), 1)
        (1.0, 0.0)
    """
    return _skill(fni_emd, maps, masks, reduction, {"spacing": spacing})


@_SKILL(
    "Precision skill",
    attains_ends=True,
    meaning="Precision (top k) relative to noise, whose precision is the share of the image that the ground "
    "truth covers. 0: no better than noise, 1: perfect, below 0: worse than noise.",
    pitfalls="It cannot be far below 0 if the ground truth is small: a map that misses a ground truth of 5 % of "
    "the image scores -0.05.",
    skill_of="topk_precision",
    class_name="PrecisionSkill",
    citation="Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816",
)
def precision_skill(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Precision among the top k pixels relative to chance: 0 for noise, 1 if all of them are in the ground truth.

    .. math:: \frac{\text{precision} - R/N}{1 - R/N}

    with :math:`R` of the :math:`N` pixels in the ground truth; the skill of :func:`topk_precision`. At most 1, higher
    is better.

    Departures: the paper reports only the precision.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The skill; ``nan`` for a map that is all zero, for an empty mask and for one that covers the whole image.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> round(precision_skill(np.array([[0.1, -5.0, 3.0, 0.0]]), np.array([[0, 1, 0, 0]])), 3)
        1.0
    """
    return _skill(topk_precision, maps, masks, reduction)


@_SKILL(
    "IoU skill",
    attains_ends=True,
    meaning="IoU at the mask’s area, relative to noise. 0: no better than noise, 1: perfect, below 0: worse than "
    "noise.",
    pitfalls="Only for maps cut at the mask’s area: the IoU at another threshold depends on how many pixels the "
    "threshold marks, so noise is no fair comparison there.",
    skill_of="iou",
    skill_parameters=Frozen({"threshold": "area"}),
    class_name="IoUSkill",
    citation="Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537",
    revision=2,
)
def iou_skill(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Intersection over union at the mask's area, relative to chance: 0 for noise, 1 for the ground truth itself.

    .. math:: \frac{\text{IoU} - c}{1 - c}, \qquad
        c = \sum_i \binom{R}{i} \binom{N-R}{R-i} \binom{N}{R}^{-1} \frac{i}{2R - i}

    with :math:`R` of the :math:`N` pixels in the ground truth; the skill of :func:`iou` with ``threshold="area"``,
    which marks the :math:`R` largest pixels. The expectation is exact, over all choices of :math:`R` pixels. At most 1,
    higher is better.

    There is no skill for other thresholds. They mark more or fewer pixels than the ground truth has, so a map with few
    high values is below noise even if all of them are inside.

    Departures: the published functions report only the IoU.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The skill; ``nan`` for an empty mask, for one that covers the whole image, and for a map that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 1, 0, 0]])  # noise: 7/18
        >>> round(iou_skill(np.array([[0.9, 0.2, -0.5, 0.7]]), masks), 3)  # (1/3 - 7/18) / (1 - 7/18)
        -0.091
    """
    return _skill(iou, maps, masks, reduction, {"threshold": "area"})


@_SKILL(
    "AP skill",
    meaning="Average precision relative to noise. 0: no better than noise, 1: perfect, below 0: worse than noise.",
    pitfalls="For small ground truths noise scores nearly 0, so the skill is almost equal to the score.",
    skill_of="average_precision",
    citation="Bestgen: Exact expected average precision of the random baseline, 2015",
)
def average_precision_skill(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Average precision relative to chance: 0 for noise, 1 if the whole ground truth ranks above all other pixels.

    .. math:: \frac{\text{AP} - c}{1 - c}, \qquad
        c = \frac1N \Bigl[H_N \frac{N-R}{N-1} + N \frac{R-1}{N-1}\Bigr], \qquad H_N = \sum_{i=1}^N \frac1i

    with :math:`R` of the :math:`N` pixels in the ground truth: the expectation over all orders of the pixels, which is
    larger than :math:`R/N`. At most 1, higher is better.

    Departures: ``sklearn`` and the published functions provide only the average precision.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, ranked by value, not by magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The skill; ``nan`` for an empty mask, for one that covers the whole image, and for a map that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> round(average_precision_skill(np.array([[0.9, 0.2, 0.5, 0.1]]), np.array([[1, 1, 0, 0]])), 3)
        0.478
    """
    return _skill(average_precision, maps, masks, reduction)


def _skill(
    metric: Callable[..., Scores],
    maps: Array,
    masks: Array,
    reduction: Reduction,
    parameters: Mapping[str, Any] = Frozen(),
    **effort: Any,
) -> Scores:
    """Rescale the scores of a metric; its chance level depends on ``parameters``, not on ``effort``."""
    scores = metric(maps, masks, **parameters, **effort, reduction="none")
    check_reduction(reduction)
    return reduce_scores(skill_scores(metric.__name__, scores, masks, parameters), reduction, like=maps)
