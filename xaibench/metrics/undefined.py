"""Reasons why the scores of a metric are NaN, found from maps and masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Array, Bools
from xaibench.metrics.shared.inputs import (
    CONSTANT_MAP,
    EMPTY_MASK,
    FULL_MASK,
    NOT_FINITE,
    PERFECT_CHANCE,
    ZERO_MAP,
    Threshold,
    check_pair,
    check_threshold,
    finite_samples,
    flat,
)

#: Default causes for each kind of metric, in the order in which they are reported; ``info.undefined`` overrides them.
_CAUSES_OF_KIND = {"ground-truth": (EMPTY_MASK, ZERO_MAP), "map": (ZERO_MAP,), "model": (CONSTANT_MAP,)}


def undefined_reasons(maps: Array, masks: Array, metric: str | None = None, *, threshold: Threshold = 0.0) -> list[str]:
    """Return the reason why each sample's score is undefined (NaN).

    Unlike the metrics, this function accepts maps that are not finite, so that a benchmark can detect such samples
    before it scores the others.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``.
        masks: Same shape, binary.
        metric: Registered name of a metric, or ``"package.module:name"``; by default the reasons that most metrics with
            a ground truth share. A metric that calls a model or an explainer may be undefined for other reasons, which
            maps and masks do not show.
        threshold: Threshold of a metric that binarizes the map, or ``"area"``; ignored by the others.

    Returns:
        Per sample ``"map is not finite"``, ``"mask is empty"``, ``"mask covers the whole image"``, ``"map is all
        zero"``, ``"map is constant"``, ``"no pixel above the threshold"``, ``"noise is perfect already"``, or ``""``.

    Raises:
        UnknownNameError: If the metric is unknown.
        ValueError: If shapes differ or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> undefined_reasons(np.zeros((1, 2, 2)), np.eye(2, dtype=bool)[None])
        ['map is all zero']
        >>> undefined_reasons(np.zeros((1, 2, 2)), np.eye(2, dtype=bool)[None], "iou")
        ['']
    """
    check_threshold(threshold)
    values, truth = check_pair(maps, masks)
    there: dict[str, Bools] = {NOT_FINITE: ~finite_samples(values)}
    for cause in _causes(metric, threshold):
        holds = _perfect_chance(str(metric), truth) if cause == PERFECT_CHANCE else None
        there[cause] = _holds(cause, values, truth, threshold) if holds is None else holds
    return [next((cause for cause, where in there.items() if where[i]), "") for i in range(len(values))]


def _causes(metric: str | None, threshold: Threshold) -> tuple[str, ...]:
    if metric is None:
        return _CAUSES_OF_KIND["ground-truth"]
    from xaibench.metrics.registered import METRICS

    info = getattr(METRICS.resolve(metric), "info", None)
    if info is None:
        return _CAUSES_OF_KIND["ground-truth"]
    if info.thresholded and threshold == "area":
        return EMPTY_MASK, ZERO_MAP
    usual = _CAUSES_OF_KIND.get(info.kind, ())
    return usual if info.undefined is None else info.undefined


def _perfect_chance(skill: str, truth: Bools) -> Bools:
    """Return ``[N]`` bool: where noise already has the best score, such as for a mask of the whole image."""
    from xaibench.metrics.localization.chance import chance_level
    from xaibench.metrics.registered import METRICS

    info = METRICS.resolve(skill).info
    best = METRICS.resolve(info.skill_of).info.range[1]
    return np.asarray(chance_level(info.skill_of, truth, info.skill_parameters) == best)


def _holds(cause: str, values: NDArray[np.generic], truth: Bools, threshold: Threshold) -> Bools:
    """Return ``[N]`` bool: for which samples ``cause`` holds."""
    values, truth = flat(values), flat(truth)
    if cause == EMPTY_MASK:
        holds = ~np.any(truth, axis=1)
    elif cause == FULL_MASK:
        holds = np.all(truth, axis=1)
    elif cause == ZERO_MAP:
        holds = ~np.any(values, axis=1)
    elif cause == CONSTANT_MAP:
        holds = np.all(values == values[:, :1], axis=1)
    else:
        holds = ~np.any(values.astype(np.float64) > (0.0 if threshold == "area" else threshold), axis=1)
    return np.asarray(holds)
