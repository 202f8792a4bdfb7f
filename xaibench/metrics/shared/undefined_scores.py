"""Why a score is ``nan``: the causes, and which metric has which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.shared.map_inputs import check_finite_number, check_pair, finite_samples

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

NOT_FINITE = "map is not finite"
EMPTY_MASK = "mask is empty"
FULL_MASK = "mask covers the whole image"
ZERO_MAP = "map is all zero"
CONSTANT_MAP = "map is constant"
NOTHING_ABOVE = "no pixel above the threshold"
PERFECT_CHANCE = "noise is perfect already"

#: The causes that metrics of a kind usually have, in the order they are named; others say theirs in ``info.undefined``.
_CAUSES_OF_KIND = {"ground-truth": (EMPTY_MASK, ZERO_MAP), "map": (ZERO_MAP,), "model": (CONSTANT_MAP,)}


def undefined_reasons(maps: Array, masks: Array, metric: str | None = None, *, threshold: float = 0.0) -> list[str]:
    """Why metrics are undefined (``nan``), sample by sample.

    Unlike the metrics, this accepts maps that are not finite, so that a benchmark can tell such samples before it
    scores the others.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``.
        masks: Of the same shape, binary.
        metric: Registered name of the metric whose reasons are asked, or ``"package.module:name"``; by default those
            that most metrics with a ground truth share. A metric that asks a model or an explainer may have others,
            which maps and masks do not show.
        threshold: Of a metric that cuts the map; the others take no notice.

    Returns:
        For each sample ``"map is not finite"``, ``"mask is empty"``, ``"mask covers the whole image"``, ``"map is all
        zero"``, ``"map is constant"``, ``"no pixel above the threshold"``, ``"noise is perfect already"``, or ``""``.

    Raises:
        UnknownNameError: If there is no such metric.
        ValueError: For shapes that differ or masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> undefined_reasons(np.zeros((1, 2, 2)), np.eye(2, dtype=bool)[None])
        ['map is all zero']
        >>> undefined_reasons(np.zeros((1, 2, 2)), np.eye(2, dtype=bool)[None], "iou")
        ['']
    """
    check_finite_number(threshold, "threshold")
    values, truth = check_pair(maps, masks)
    there: dict[str, NDArray[np.bool_]] = {NOT_FINITE: ~finite_samples(values)}
    for cause in _causes(metric):
        holds = _perfect_chance(str(metric), truth, threshold) if cause == PERFECT_CHANCE else None
        there[cause] = _holds(cause, values, truth, threshold) if holds is None else holds
    return [next((cause for cause, where in there.items() if where[i]), "") for i in range(len(values))]


def _causes(metric: str | None) -> tuple[str, ...]:
    if metric is None:
        return _CAUSES_OF_KIND["ground-truth"]
    from xaibench.metrics.metric_table import METRICS

    info = getattr(METRICS.resolve(metric), "info", None)
    if info is None:
        return _CAUSES_OF_KIND["ground-truth"]
    usual = _CAUSES_OF_KIND.get(info.kind, ())
    return usual if info.undefined is None else info.undefined


def _perfect_chance(skill: str, truth: NDArray[np.bool_], threshold: float) -> NDArray[np.bool_]:
    """``[N]``: where nothing can be better than chance, such as in a ground truth that is the whole image."""
    from xaibench.metrics.metric_table import METRICS
    from xaibench.metrics.truth.against_chance import chance_level

    raw = METRICS.resolve(skill).info.skill_of
    best = METRICS.resolve(raw).info.range[1]
    return np.asarray(chance_level(raw, truth, {"threshold": threshold}) == best)


def _holds(cause: str, values: NDArray[np.generic], truth: NDArray[np.bool_], threshold: float) -> NDArray[np.bool_]:
    """``[N]``: in which samples ``cause`` holds."""
    if cause == EMPTY_MASK:
        holds = ~np.any(truth, axis=(1, 2))
    elif cause == FULL_MASK:
        holds = np.all(truth, axis=(1, 2))
    elif cause == ZERO_MAP:
        holds = ~np.any(values, axis=(1, 2))
    elif cause == CONSTANT_MAP:
        holds = np.all(values == values[:, :1, :1], axis=(1, 2))
    else:
        holds = ~np.any(values.astype(np.float64) > threshold, axis=(1, 2))
    return np.asarray(holds)
