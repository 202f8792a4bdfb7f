"""Tests of papers' statements about pairs of metrics: correlations over the samples of a cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xaibench.benchmarks.claims import CorrelationStatement
from xaibench.report.claims.evaluation import Claim
from xaibench.report.numbers.inference import Floats, Matrices
from xaibench.report.numbers.metric_agreement import coefficient
from xaibench.report.read.results import RunResults

#: Largest number of resamples of correlations, which cost more than those of means.
_RESAMPLES = 500


def check_correlations(
    run: RunResults,
    matrices: Sequence[Matrices],
    statements: Sequence[CorrelationStatement],
    resamples: int,
    seed: int,
) -> list[Claim]:
    """Test statements on pairs of metrics by the mean correlation over the samples of each cell.

    Args:
        run: The run.
        matrices: The scores of its cells.
        statements: The statements to test.
        resamples: Number of resamples of the groups of samples, at most 500.
        seed: Seed of the resamples.

    Returns:
        A claim per statement whose metrics and explainer the run has.
    """
    up = {name: part.higher_is_better for name, part in run.metrics.items()}
    found = []
    for stated in statements:
        pair, name = stated.metrics, stated.explainer
        mine = [cell for cell in matrices if set(pair) <= set(cell.metrics) and name in cell.methods]
        values = [_resample_correlation(cell, pair, name, up, min(resamples, _RESAMPLES), seed) for cell in mine]
        values = [each for each in values if np.isfinite(each).all()]
        if values:
            mean = np.mean(values, axis=0)
            low, high = np.quantile(mean[1:], [0.025, 0.975])
            labels = " and ".join(run.metrics[metric].label for metric in pair)
            explainer = run.explainers[name].label
            found.append(
                Claim(
                    statement=f"{stated.statement} ({explainer})",
                    source=stated.source,
                    metric=pair[0],
                    quantity=f"correlation of {labels} over the samples, of {explainer}; mean over the cells",
                    cells=len(values),
                    value=float(mean[0]),
                    low=float(low),
                    high=float(high),
                    bound=stated.bound,
                    above=stated.above,
                    tried=stated.tried,
                )
            )
    return found


def _resample_correlation(
    cell: Matrices, pair: tuple[str, str], method: str, up: dict[str, bool], resamples: int, seed: int
) -> Floats:
    """Return ``[1 + R]``, the correlation in the cell and in resamples of its groups; NaN if undefined."""
    columns = [
        (1.0 if up[name] else -1.0) * cell.values[:, cell.metrics.index(name), cell.methods.index(method)]
        for name in pair
    ]
    known = ~np.isnan(columns).any(axis=0)
    x, y = (column[known] for column in columns)
    groups = np.unique(cell.groups[known], return_inverse=True)[1]
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1]) if len(groups) else []
    rng = np.random.default_rng(seed)
    drawn = [np.arange(len(x))]
    for _ in range(resamples if members else 0):
        drawn.append(np.concatenate([members[each] for each in rng.integers(0, len(members), len(members))]))
    biserial = "hit" in pair
    found = np.array([coefficient(x[each], y[each], biserial=biserial) for each in drawn])
    # A resample in which one metric is constant has no correlation.
    return np.where(np.isnan(found), found[0], found)
