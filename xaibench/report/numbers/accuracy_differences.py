"""Is an accuracy another one than the paper's, by more than chance?

The paper's is one number, and how much it would vary is not known. So it is taken to vary as ours do: as a mean of as
many trainings, whose spread is ours, measured on as many test samples. A few trainings tell little of how much they
vary (of eight of one cell, three may be alike and five far apart), so that the trainings of the same architecture in
all cells tell it together where they vary more than those of the cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import LEVEL

#: Test samples where a run folder does not say how many there were: as many as make no difference.
_UNKNOWN = math.inf


class Spread(NamedTuple):
    """How much one training varies: variance in squared percent, and the degrees of freedom that it was found with."""

    variance: float
    freedom: int


def margins(run: RunResults) -> dict[tuple[str, str, str], float]:
    """By how much an accuracy and the paper's differ by chance, in 95 % of repetitions.

    Args:
        run: The run.

    Returns:
        Scenario, background and model to percent: Student's quantile times the standard error of the difference of two
        means, each of as many trainings as the cell has; ``nan`` where no architecture was trained twice.
    """
    from scipy.stats import t

    found = {}
    groups = {cell: _within(group) for cell, group in run.trainings.groupby(list(CELL), observed=True)}
    for _, row in run.accuracy.iterrows():
        cell = (row["scenario"], row["background"], row["model"])
        spread = _spread(groups, cell)
        trainings = int(row["trainings"] or 0) if not pd.isna(row["trainings"]) else 0
        if spread.freedom < 1 or trainings < 1:
            found[cell] = math.nan
            continue
        variance = 2 * spread.variance / trainings + _binomial(row, "mean") + _binomial(row, "paper")
        found[cell] = float(t.ppf(1 - LEVEL / 2, spread.freedom)) * math.sqrt(variance)
    return found


def _within(trainings: pd.DataFrame) -> Spread:
    reached = trainings["test_accuracy"].dropna()
    return Spread(float(reached.var(ddof=1)) if len(reached) > 1 else math.nan, max(0, len(reached) - 1))


def _spread(groups: Mapping[Any, Spread], cell: tuple[str, str, str]) -> Spread:
    """That of the cell, or that of its architecture in all cells where it is larger."""
    alike = [spread for (_, _, model), spread in groups.items() if model == cell[2] and spread.freedom > 0]
    freedom = sum(spread.freedom for spread in alike)
    if not freedom:
        return Spread(math.nan, 0)
    together = Spread(sum(spread.freedom * spread.variance for spread in alike) / freedom, freedom)
    own = groups.get(cell, Spread(math.nan, 0))
    return own if own.freedom and own.variance > together.variance else together


def _binomial(row: pd.Series, of: str) -> float:
    """Of an accuracy the variance that comes of the test samples, in squared percent."""
    share, samples = row.get(of), row.get("test_samples")
    if share is None or pd.isna(share):
        return 0.0
    return float(share) * (100 - float(share)) / (_UNKNOWN if samples is None or pd.isna(samples) else float(samples))
