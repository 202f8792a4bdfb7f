"""Test whether an accuracy differs from the paper's by more than chance.

The paper gives one number without its spread. It is treated as the mean of as many trainings as ours, with our spread,
measured on as many test samples. The spread of a few trainings is uncertain (of eight trainings of one cell, three may
be alike and five far apart). Therefore the variance is pooled over all cells of the architecture if the pooled variance
is larger than that of the cell.

Failed trainings are not a matter of spread: they end near 50 % while the others reach 97 %. If trainings of an
architecture failed in the run, the paper's mean may also include failed trainings, up to the share that our trainings
of the cell do not exclude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import ALPHA

#: Accuracy of a failed training in percent; the paper's data sets have two classes.
_FAILED_ACCURACY = 50.0
#: Number of test samples if the run folder does not state it; the binomial variance is then zero.
_UNKNOWN_SAMPLES = math.inf


class Spread(NamedTuple):
    """Variance of one training's accuracy in squared percent, and its degrees of freedom."""

    variance: float
    df: int


def accuracy_margins(run: RunResults) -> dict[tuple[str, str, str], float]:
    """Return the difference to the paper's accuracy that chance explains, at 95 %.

    Args:
        run: The run.

    Returns:
        Percent per cell (subset, variant and model): Student's quantile times the standard error of the difference
        of two means, each over as many trainings as the cell has. If our mean is larger and trainings of the
        architecture failed, the effect of the largest share of failures that ours do not exclude is added (Clopper,
        Pearson 1934). NaN if the architecture was not trained twice in any cell.
    """
    from scipy.stats import t

    found = {}
    groups = {cell: _training_spread(group) for cell, group in run.trainings.groupby(list(CELL), observed=True)}
    failing = _failing_models(run.accuracy)
    for _, row in run.accuracy.iterrows():
        cell = (row["subset"], row["variant"], row["model"])
        spread = _cell_spread(groups, cell)
        trainings = int(row["trainings"] or 0) if not pd.isna(row["trainings"]) else 0
        if spread.df < 1 or trainings < 1:
            found[cell] = math.nan
            continue
        variance = 2 * spread.variance / trainings + _sampling_variance(row, "mean") + _sampling_variance(row, "paper")
        found[cell] = float(t.ppf(1 - ALPHA / 2, spread.df)) * math.sqrt(variance)
        if cell[2] in failing and float(row["mean"]) > float(row["paper"]):
            found[cell] += _max_failure_share(row) * max(0.0, float(row["mean"]) - _FAILED_ACCURACY)
    return found


def _failing_models(accuracy: pd.DataFrame) -> set[str]:
    """Return the architectures with a failed training in any cell."""
    if "learned" not in accuracy:
        return set()
    return set(accuracy.loc[accuracy["learned"] < accuracy["trainings"], "model"])


def _max_failure_share(row: pd.Series) -> float:
    """Return the upper confidence limit of the share of failed trainings in the cell."""
    from scipy.stats import beta

    trainings, learned = int(row["trainings"]), int(row["learned"])
    return float(beta.ppf(1 - ALPHA / 2, trainings - learned + 1, learned)) if learned else 1.0


def _training_spread(trainings: pd.DataFrame) -> Spread:
    reached = trainings["test_accuracy"].dropna()
    return Spread(float(reached.var(ddof=1)) if len(reached) > 1 else math.nan, max(0, len(reached) - 1))


def _cell_spread(groups: Mapping[Any, Spread], cell: tuple[str, str, str]) -> Spread:
    """Return the spread of the cell, or the pooled one of its architecture if that is larger."""
    alike = [spread for (_, _, model), spread in groups.items() if model == cell[2] and spread.df > 0]
    df = sum(spread.df for spread in alike)
    if not df:
        return Spread(math.nan, 0)
    together = Spread(sum(spread.df * spread.variance for spread in alike) / df, df)
    own = groups.get(cell, Spread(math.nan, 0))
    return own if own.df and own.variance > together.variance else together


def _sampling_variance(row: pd.Series, column: str) -> float:
    """Return the variance of an accuracy due to the choice of test samples, in squared percent."""
    share, samples = row.get(column), row.get("test_samples")
    if share is None or pd.isna(share):
        return 0.0
    return (
        float(share)
        * (100 - float(share))
        / (_UNKNOWN_SAMPLES if samples is None or pd.isna(samples) else float(samples))
    )
