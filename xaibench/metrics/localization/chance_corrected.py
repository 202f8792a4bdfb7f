"""The score of noise for each metric, and scores relative to it (skills)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.shared.map_inputs import Scores, check_pair, mean_of_defined, reduce_scores
from xaibench.metrics.shared.spacing import pixel_spacing

if TYPE_CHECKING:
    from xaibench.core.types import Array

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
        an empty mask. Exact (:mod:`xaibench.metrics.localization.chance_levels`), except for the earth mover's
        distance, which is integrated (:mod:`xaibench.metrics.localization.emd_noise` states the error), and for a
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


def skill_scores(
    metric: str, scores: Scores, masks: Array, parameters: Mapping[str, Any] | None = None
) -> NDArray[np.float64]:
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
    from xaibench.metrics.table import METRICS

    truth = check_pair(masks, masks)[1]
    chance = _chance_scores(metric, truth, parameters or {})
    info = METRICS.resolve(metric).info
    best = info.range[1] if info.higher_is_better else info.range[0]
    found = np.asarray(scores.cpu() if hasattr(scores, "cpu") else scores, dtype=np.float64).reshape(-1)
    skills = np.full(len(found), math.nan)
    np.divide(found - chance, best - chance, out=skills, where=chance != best)
    return skills


def _chance_scores(metric: str, masks: NDArray[np.bool_], parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    from xaibench.metrics.table import METRICS

    function = METRICS.resolve(metric)
    info = getattr(function, "info", None)
    if getattr(info, "kind", "ground-truth") != "ground-truth":
        known = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
        raise ValueError(f"{metric!r} does not use a ground truth; expected one of {', '.join(known)}.")
    if (level := getattr(info, "chance_level", None)) is not None:
        return call_chance_level(level, masks, parameters)
    taken = inspect.signature(function).parameters
    return _mean_over_noise(function, masks, {name: parameters[name] for name in parameters if name in taken})


def call_chance_level(
    level: Callable[..., Any], masks: NDArray[np.bool_], parameters: Mapping[str, Any]
) -> NDArray[np.float64]:
    """Return the chance levels ``[N]`` of masks ``[N, H, W]`` by a formula (``MetricInfo.chance_level``).

    Args:
        level: The formula.
        masks: The masks.
        parameters: Parameters of the metric; parameters that the formula does not accept are ignored.
    """
    taken = inspect.signature(level).parameters
    found: NDArray[np.float64] = level(masks, **{name: value for name, value in parameters.items() if name in taken})
    return found


def _mean_over_noise(function: Any, masks: NDArray[np.bool_], parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the mean score over fixed random maps, for a metric without a formula."""
    noise = np.random.default_rng(0).uniform(-1, 1, (_DRAWS, *masks.shape[1:]))
    levels = np.empty(len(masks))
    lengths = pixel_spacing(parameters.get("spacing"), masks.shape)
    for number, mask in enumerate(masks):
        own = dict(parameters) | ({"spacing": lengths[number]} if "spacing" in parameters else {})
        scores = function(noise, np.broadcast_to(mask, noise.shape), reduction="none", **own)
        levels[number] = mean_of_defined(np.asarray(scores, dtype=np.float64))
    return levels
