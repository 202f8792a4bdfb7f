r"""Expected scores of a map of independent uniform noise, for a given ground truth.

With :math:`R` of the :math:`N` pixels in the ground truth, every order of the pixels of noise is equally likely, and
each pixel exceeds a threshold :math:`\tau` with the same probability :math:`p = P(u > \tau)`. This gives exactly

==================================  ===================================================================================
score                               expected for noise
==================================  ===================================================================================
top-k precision, mass accuracy,     :math:`R/N`
precision, pointing game
ROC AUC                             :math:`1/2`
average precision                   :math:`\frac1N \bigl[H_N \frac{N-R}{N-1} + N \frac{R-1}{N-1}\bigr]`, :math:`H_N`
                                    being the N-th harmonic number
recall                              :math:`p`
F1                                  :math:`\sum_m P(|M| = m)\, 2 m R / (N (m + R))`
IoU                                 :math:`R\,p\, \sum_o P(|M \setminus F^+| = o) / (R + o)`
==================================  ===================================================================================

(:math:`|M|` and :math:`|M \setminus F^+|` are binomial.) The noise is uniform in [-1, 1), like the control ``uniform``.
If maps are scaled to [0, 1] before the threshold is applied, so is the noise's magnitude: then the largest pixel is
always marked, the smallest never, and the others are as before.

At the threshold ``"area"`` exactly :math:`R` pixels of the noise are marked, and the number of them inside is
hypergeometric. Precision, recall and F1 are :math:`R/N`, and IoU is

.. math:: \sum_i P(|M \cap F^+| = i) \, \frac{i}{2R - i}, \qquad
    P(|M \cap F^+| = i) = \binom{R}{i} \binom{N-R}{R-i} \Big/ \binom{N}{R}

The earth mover's distance of noise has no formula; it is integrated
(:func:`xaibench.metrics.localization.emd.expected_distance`).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Array, Bools, Floats
from xaibench.metrics.shared.inputs import (
    Scores,
    Threshold,
    check_pair,
    flat,
    mean_of_defined,
    pixel_spacing,
    reduce_scores,
)

#: Computes chance levels ``[n]`` from masks ``[n, H, W]`` and the metric's parameters.
ChanceLevel: TypeAlias = Callable[..., Floats]

#: Standard deviations of a binomial that are summed over; the rest is below rounding error.
_REACH = 12


def marked_share(masks: Bools) -> Floats:
    """Return :math:`R/N`, the expected share of randomly chosen pixels that are inside."""
    return _by_count(masks, lambda inside, pixels: inside / pixels)


def half(masks: Bools) -> Floats:
    """Return one half where there are pixels inside and outside."""
    return _by_count(masks, lambda inside, pixels: 0.5 if inside < pixels else math.nan)


def expected_average_precision(masks: Bools) -> Floats:
    """Return the expected average precision over all orders of the pixels."""
    return _by_count(masks, _average_precision)


def expected_recall(masks: Bools, *, threshold: Threshold = 0.5, scaled: bool = False) -> Floats:
    """Return the expected share of pixels above the threshold."""
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        return (certain + free * p) / pixels

    return _by_count(masks, level)


def expected_precision(masks: Bools, *, threshold: Threshold = 0.0, scaled: bool = False) -> Floats:
    """Return :math:`R/N`, given that at least one pixel is above the threshold."""
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        return inside / pixels if certain or free * p > 0 else math.nan

    return _by_count(masks, level)


def expected_f1(masks: Bools, *, threshold: Threshold = 0.0, scaled: bool = False) -> Floats:
    """Return the expected F1: the sum over m of P(m pixels are marked) · 2 m (R / N) / (m + R).

    A marked pixel is inside with probability R / N, for R of N pixels in the mask.
    """
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        marked, chance = _binomial(free, p)
        marked = marked + certain
        return float(chance @ (2 * marked * inside / (pixels * (marked + inside))))

    return _by_count(masks, level)


def expected_iou(masks: Bools, *, threshold: Threshold = 0.0, scaled: bool = False) -> Floats:
    """Return the expected IoU; pixels inside and outside are marked independently, except at the mask's area."""

    def level(inside: int, pixels: int) -> float:
        if threshold == "area":
            return expected_iou_at_area(inside, 0, pixels, inside, inside)
        return _expected_iou(inside, pixels, threshold, scaled)

    return _by_count(masks, level)


def _by_count(masks: Bools, level: Callable[[int, int], float]) -> Floats:
    """Compute a level that depends only on the number of pixels inside, once per number; NaN where there are none."""
    counts, which = np.unique(np.count_nonzero(flat(masks), axis=1), return_inverse=True)
    levels = [level(int(inside), math.prod(masks.shape[1:])) if inside else math.nan for inside in counts]
    return np.array(levels, dtype=np.float64)[which]


@functools.lru_cache(maxsize=2**16)
def expected_iou_at_area(k: int, both: int, tied: int, tied_inside: int, n_tied: int) -> float:
    """Return the expected IoU of ``k`` marked pixels and a ground truth of ``k`` pixels.

    Args:
        k: Number of marked pixels, at least 1.
        both: Number of pixels that are certainly marked and inside.
        tied: Number of pixels from which the other marked ones are drawn.
        tied_inside: Number of these that are inside.
        n_tied: Number of pixels that are drawn.

    Example:
        >>> expected_iou_at_area(2, 1, 4, 1, 1)  # 3 of 4 draws hit nothing more: 3/4 · 1/3 + 1/4 · 1
        0.5
    """
    from scipy.stats import hypergeom  # imported on use, because it is slow to load

    if n_tied == tied:  # all tied pixels are marked, so nothing is random
        drawn, chance = np.array([tied_inside]), np.array([1.0])
    else:
        mean = n_tied * tied_inside / tied
        reach = _reach(mean * (1 - tied_inside / tied) * (tied - n_tied) / (tied - 1))
        least = max(0, n_tied - (tied - tied_inside), math.floor(mean - reach))
        drawn = np.arange(least, min(n_tied, tied_inside, math.ceil(mean + reach)) + 1)
        chance = np.asarray(hypergeom.pmf(drawn, tied, tied_inside, n_tied), dtype=np.float64)
    inside = both + drawn
    return float(chance @ (inside / (2 * k - inside)) / chance.sum())


def _average_precision(inside: int, pixels: int) -> float:
    if pixels == 1:
        return 1.0
    harmonic = float((1 / np.arange(1, pixels + 1)).sum())
    return (harmonic * (pixels - inside) + pixels * (inside - 1)) / (pixels * (pixels - 1))


def _count_marked(pixels: int, threshold: float, scaled: bool) -> tuple[int, int, float]:
    """Return the number of certainly marked pixels of noise, that of the others, and their probability."""
    if not scaled:
        return 0, pixels, min(1.0, max(0.0, (1 - threshold) / 2))
    if pixels == 1:  # a constant map is scaled to 0
        return int(threshold < 0), 0, 0.0
    # The largest is 1, the smallest 0, and the others are uniform in between.
    return int(threshold < 1) + int(threshold < 0), pixels - 2, min(1.0, max(0.0, 1 - threshold))


def _binomial(trials: int, p: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the numbers with non-negligible probability, and these probabilities."""
    from scipy.stats import binom  # imported on use, because it is slow to load

    reach = _reach(trials * p * (1 - p))
    least, most = max(0, math.floor(trials * p - reach)), min(trials, math.ceil(trials * p + reach))
    numbers = np.arange(least, most + 1)
    return numbers, np.asarray(binom.pmf(numbers, trials, p), dtype=np.float64)


def _reach(variance: float) -> float:
    """Return the distance from the mean beyond which probabilities are negligible."""
    return _REACH * math.sqrt(variance) + _REACH


@functools.lru_cache(maxsize=2**16)
def _expected_iou(inside: int, pixels: int, threshold: float, scaled: bool) -> float:
    certain, free, p = _count_marked(pixels, threshold, scaled)
    fixed = pixels - free  # the largest and the smallest, or none
    total = 0.0
    # Sum over all cases of which fixed pixels are inside the ground truth.
    for where in np.ndindex(*(2,) * fixed):
        chance, left_in, left_out, both, marked_outside = 1.0, inside, pixels - inside, 0, 0
        for number, is_inside in enumerate(where):
            marked = int(number < certain)
            chance *= (left_in if is_inside else left_out) / max(1, left_in + left_out)
            left_in, left_out = left_in - is_inside, left_out - (1 - is_inside)
            both += marked * is_inside
            marked_outside += marked * (1 - is_inside)
        if chance > 0:
            outside, likely = _binomial(left_out, p)
            total += chance * (both + left_in * p) * float(likely @ (1 / (inside + marked_outside + outside)))
    return total


#: Number of noise maps for a metric without a formula.
_DRAWS = 256


def chance_level(metric: str, masks: Array, parameters: Mapping[str, Any] | None = None) -> Scores:
    """Return the mean score of maps of independent uniform noise for each mask.

    Args:
        metric: Name of a metric with a ground truth, or ``"package.module:name"``.
        masks: ``[N, H, W]`` or ``[H, W]``, binary, ``True`` = important.
        parameters: Parameters of the metric that affect the chance level, such as ``{"threshold": 0.5}`` or
            ``{"threshold": "area"}``. With a number as threshold also ``{"scaled": True}`` if the noise's magnitude is
            scaled to [0, 1] first, as the protocol ``"scaled"`` does with maps (:mod:`xaibench.evaluation.protocol`);
            otherwise the noise is uniform in [-1, 1). ``spacing`` may have a row per mask.

    Returns:
        ``[N]`` float64, in the type of the masks and the units of the metric; NaN where noise has no score, such as for
        an empty mask. Exact (:mod:`xaibench.metrics.localization.chance`), except for the earth mover's
        distance, which is integrated (:mod:`xaibench.metrics.localization.emd` states the error), and for a
        metric without a formula: the mean over 256 fixed maps of noise, with a standard error of a sixteenth of a map's
        standard deviation.

    Raises:
        UnknownNameError: If the metric is unknown.
        ValueError: If the metric has no ground truth, or masks are not binary.
        TypeError: If masks are not a numpy array or torch tensor.

    Example:
        >>> import numpy as np
        >>> mask = np.array([[1, 0, 0, 0]])
        >>> chance_level("topk_precision", mask), chance_level("iou", mask).round(4)
        (array([0.25]), array([0.2344]))
    """
    truth = check_pair(masks, masks)[1]
    return reduce_scores(_chance_scores(metric, truth, parameters or {}), "none", like=masks)


def skill_scores(metric: str, scores: Scores, masks: Array, parameters: Mapping[str, Any] | None = None) -> Floats:
    """Convert scores of a metric to skills: (score - chance) / (best - chance).

    Args:
        metric: Metric of the scores.
        scores: ``[N]``, numpy or torch.
        masks: ``[N, H, W]`` or ``[H, W]``, of the same samples.
        parameters: As in :func:`chance_level`.

    Returns:
        ``[N]``, at most 1, higher is better; NaN where the score is NaN, and where chance is already perfect.

    Raises:
        UnknownNameError: If the metric is unknown.
        ValueError: If the metric has no ground truth, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor.
    """
    from xaibench.metrics.registered import METRICS

    truth = check_pair(masks, masks)[1]
    chance = _chance_scores(metric, truth, parameters or {})
    info = METRICS.resolve(metric).info
    best = info.range[1] if info.higher_is_better else info.range[0]
    values = np.asarray(scores.cpu() if hasattr(scores, "cpu") else scores, dtype=np.float64).reshape(-1)
    skills = np.full(len(values), math.nan)
    np.divide(values - chance, best - chance, out=skills, where=chance != best)
    return skills


def _chance_scores(metric: str, masks: Bools, parameters: Mapping[str, Any]) -> Floats:
    from xaibench.metrics.registered import METRICS

    function = METRICS.resolve(metric)
    info = getattr(function, "info", None)
    if getattr(info, "kind", "ground-truth") != "ground-truth":
        known = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
        raise ValueError(f"{metric!r} does not use a ground truth; expected one of {', '.join(known)}.")
    if (level := getattr(info, "chance_level", None)) is not None:
        return call_chance_level(level, masks, parameters)
    taken = inspect.signature(function).parameters
    return _mean_over_noise(function, masks, {name: parameters[name] for name in parameters if name in taken})


def call_chance_level(level: Callable[..., Any], masks: Bools, parameters: Mapping[str, Any]) -> Floats:
    """Return the chance levels ``[N]`` of masks ``[N, H, W]`` by a formula (``MetricInfo.chance_level``).

    Args:
        level: The formula.
        masks: The masks.
        parameters: Parameters of the metric; parameters that the formula does not accept are ignored.
    """
    taken = inspect.signature(level).parameters
    found: Floats = level(masks, **{name: value for name, value in parameters.items() if name in taken})
    return found


def _mean_over_noise(function: Any, masks: Bools, parameters: Mapping[str, Any]) -> Floats:
    """Return the mean score over fixed random maps, for a metric without a formula."""
    noise = np.random.default_rng(0).uniform(-1, 1, (_DRAWS, *masks.shape[1:]))
    levels = np.empty(len(masks))
    lengths = pixel_spacing(parameters.get("spacing"), masks.shape)
    for number, mask in enumerate(masks):
        own = dict(parameters) | ({"spacing": lengths[number]} if "spacing" in parameters else {})
        scores = function(noise, np.broadcast_to(mask, noise.shape), reduction="none", **own)
        levels[number] = mean_of_defined(np.asarray(scores, dtype=np.float64))
    return levels
