"""What chance scores by a metric, and what a score is worth beside it."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.shared.map_inputs import Scores, check_pair, mean_of_defined, reduce_scores

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: Maps of noise over which a metric without a formula is averaged.
_DRAWS = 256


def chance_level(metric: str, masks: Array, parameters: Mapping[str, Any] | None = None) -> Scores:
    """What a map of independent uniform noise scores on average, for each ground truth.

    Args:
        metric: Name of a metric with a ground truth, or ``"package.module:name"``.
        masks: ``[N, H, W]`` or ``[H, W]``, binary, ``True`` = important.
        parameters: Those of the metric that decide it, such as ``{"threshold": 0.5}``; and for a metric that cuts the
            map, ``{"scaled": True}`` where the noise's magnitude is to be stretched to [0, 1] before, as the protocol
            ``"scaled"`` does with maps (:mod:`xaibench.evaluation.protocol`). Else it is uniform in [-1, 1).

    Returns:
        ``[N]`` float64, in the kind of the masks and the units of the metric; ``nan`` where noise has no score, such as
        for an empty mask. Exact (:mod:`xaibench.metrics.truth.chance_levels`), but for the earth mover's distance,
        which is integrated (:mod:`xaibench.metrics.truth.noise_distance`, which states its error), and for a metric
        that states no formula: the mean over 256 fixed maps of noise, whose standard error is a sixteenth of a map's.

    Raises:
        UnknownNameError: If there is no such metric.
        ValueError: If it is no metric with a ground truth, or masks are not binary.
        TypeError: For anything but a numpy array or a torch tensor.

    Example:
        >>> import numpy as np
        >>> mask = np.array([[1, 0, 0, 0]])
        >>> chance_level("topk_precision", mask), chance_level("iou", mask).round(4)
        (array([0.25]), array([0.2344]))
    """
    truth = check_pair(masks, masks)[1]
    return reduce_scores(_level(metric, truth, parameters or {}), "none", like=masks)


def skill_scores(
    metric: str, scores: Scores, masks: Array, parameters: Mapping[str, Any] | None = None
) -> NDArray[np.float64]:
    """The skills that scores of a metric amount to.

    Args:
        metric: Whose scores they are.
        scores: ``[N]``, numpy or torch.
        masks: ``[N, H, W]`` or ``[H, W]``, those of the same samples.
        parameters: As for :func:`chance_level`.

    Returns:
        ``[N]``, at most 1, higher is better; ``nan`` where the score is, and where chance is already perfect.

    Raises:
        UnknownNameError: If there is no such metric.
        ValueError: If it is no metric with a ground truth, or masks are not binary.
        TypeError: For anything but numpy arrays and torch tensors.
    """
    from xaibench.metrics.metric_table import METRICS

    truth = check_pair(masks, masks)[1]
    chance = _level(metric, truth, parameters or {})
    info = METRICS.resolve(metric).info
    best = info.range[1] if info.higher_is_better else info.range[0]
    found = np.asarray(scores.cpu() if hasattr(scores, "cpu") else scores, dtype=np.float64).reshape(-1)
    skills = np.full(len(found), math.nan)
    np.divide(found - chance, best - chance, out=skills, where=chance != best)
    return skills


def _level(metric: str, masks: NDArray[np.bool_], parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    from xaibench.metrics.metric_table import METRICS

    function = METRICS.resolve(metric)
    info = getattr(function, "info", None)
    if getattr(info, "kind", "ground-truth") != "ground-truth":
        known = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
        raise ValueError(f"{metric!r} has no ground truth; expected one of {', '.join(known)}.")
    level = getattr(info, "chance_level", None) or functools.partial(_integrated, function)
    taken = inspect.signature(getattr(info, "chance_level", None) or function).parameters
    found: NDArray[np.float64] = level(masks, **{name: value for name, value in parameters.items() if name in taken})
    return found


def _integrated(function: Any, masks: NDArray[np.bool_], **parameters: Any) -> NDArray[np.float64]:
    """The mean over fixed draws, for a metric that states no formula."""
    noise = np.random.default_rng(0).uniform(-1, 1, (_DRAWS, *masks.shape[1:]))
    scored = [function(noise, np.broadcast_to(mask, noise.shape), reduction="none", **parameters) for mask in masks]
    return np.array([mean_of_defined(np.asarray(scores, dtype=np.float64)) for scores in scored], dtype=np.float64)
