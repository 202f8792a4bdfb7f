"""Agreement of metrics: correlations between their scores for the same maps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xaibench.core.correlations import MetricAgreement as MetricAgreement
from xaibench.core.correlations import correlate, is_binary
from xaibench.core.types import Floats
from xaibench.metrics.registered import METRICS

if TYPE_CHECKING:
    import pandas as pd


def agreement(
    scores: Mapping[str, Any] | pd.DataFrame,
    *,
    higher_is_better: Mapping[str, bool] | None = None,
    binary: Collection[str] | None = None,
) -> MetricAgreement:
    r"""Correlate metrics over the samples that they score, after negating metrics for which lower is better.

    Two metrics with continuous scores are compared by Spearman's rank correlation (ties get their mean rank). If one is
    binary, the point-biserial correlation is used:

    .. math:: r = \frac{\bar y_1 - \bar y_0}{\sigma_y} \sqrt{\frac{n_1 n_0}{n^2}},

    with the scores :math:`y` of the other metric for the :math:`n_1` hits and :math:`n_0` misses (equal to Pearson's
    correlation with 0 and 1). Since metrics for which lower is better are negated first, a positive coefficient always
    means that both metrics prefer the same maps. Zhang et al. (2023), Table 4.

    Args:
        scores: Per metric the ``[N]`` scores of the same samples in the same order: a mapping of arrays (numpy, torch,
            lists) or a table with a column per metric. NaN = undefined; such samples are excluded from the pairs with
            that metric.
        higher_is_better: Direction of each metric. Metrics that it does not contain must be registered; their
            registered direction is used.
        binary: Names of binary metrics. By default the pointing game (``hit``), also if ties of the largest pixels make
            some of its scores fractional, and metrics whose defined scores are all 0 or 1.

    Returns:
        The matrix of coefficients, the number of samples behind each, and its kind. A coefficient is NaN for fewer than
        two samples, or if one metric has the same score for all samples; this includes the coefficient of a metric with
        itself.

    Raises:
        ValueError: If ``scores`` is empty, scores have different lengths, more than one dimension or infinite values,
            or a name in ``higher_is_better`` or ``binary`` has no scores.
        UnknownNameError: If a metric is neither registered nor in ``higher_is_better`` (also a ``ValueError``).

    Example:
        >>> scores = {"iou": [0.1, 0.2, 0.3, 0.5], "hit": [0, 0, 0.5, 1], "deletion": [0.9, 0.6, 0.4, float("nan")]}
        >>> matrix = agreement(scores, higher_is_better={"deletion": False})
        >>> matrix.coefficients.round(3).loc["deletion"].tolist(), matrix.n.loc["deletion"].tolist()
        ([1.0, 0.803, 1.0], [3, 3, 3])
        >>> matrix.kind.loc["iou", "hit"]
        'point-biserial'
    """
    columns = _columns(scores)
    for argument, names in (("higher_is_better", higher_is_better or ()), ("binary", binary or ())):
        if unknown := [name for name in names if name not in columns]:
            raise ValueError(f"{argument} contains {unknown}, but there are only scores for {list(columns)}.")
    turned = {name: _sign(name, higher_is_better or {}) * values for name, values in columns.items()}
    if binary is None:
        binary = [name for name, values in columns.items() if METRICS.canonical(name) == "hit" or is_binary(values)]
    return correlate(turned, binary)


def _columns(scores: Mapping[str, Any] | pd.DataFrame) -> dict[str, Floats]:
    """Return the scores of each metric as a float array, all of the same length."""
    columns = {str(name): _as_floats(values, str(name)) for name, values in scores.items()}
    if not columns:
        raise ValueError("scores has no metrics; expected {metric: [N] scores} or a table with a column for each.")
    if len({len(values) for values in columns.values()}) > 1:
        lengths = {name: len(values) for name, values in columns.items()}
        raise ValueError(f"All metrics must score the same samples, got different numbers of scores: {lengths}.")
    return columns


def _as_floats(values: Any, name: str) -> Floats:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(
            f"The scores of {name!r} must be [N], got the shape {list(scores.shape)}; score with reduction='none'."
        )
    if np.isinf(scores).any():
        raise ValueError(f"The scores of {name!r} must be finite, or NaN where undefined; got infinity.")
    return scores


def _sign(name: str, given: Mapping[str, bool]) -> float:
    if name in given:
        return 1.0 if given[name] else -1.0
    from xaibench.registry.table import UnknownNameError

    if name not in METRICS and METRICS.canonical(name) == name and ":" not in name:
        raise UnknownNameError(
            f"{name!r} is not a registered metric, so its direction is unknown; "
            f"pass higher_is_better={{{name!r}: ...}}."
        )
    info = getattr(METRICS.resolve(name), "info", None)
    if info is None:
        raise UnknownNameError(
            f"The direction of {name!r} is unknown, because it has no info; pass higher_is_better={{{name!r}: ...}}."
        )
    return 1.0 if info.higher_is_better else -1.0
