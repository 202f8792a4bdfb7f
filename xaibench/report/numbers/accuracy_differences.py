"""Is an accuracy another one than the paper's, by more than chance?

The paper's is one number, and how much it would vary is not known. So it is taken to vary as ours do: as a mean of as
many trainings, whose spread is ours, measured on as many test samples. A few trainings tell little of how much they
vary (of eight of one cell, three may be alike and five far apart), so that the trainings of the same architecture in
all cells tell it together where they vary more than those of the cell.

And a training fails at times, which is no matter of spread: it ends near 50 % where its like end at 97. Where trainings
of an architecture fail in the run, the paper's mean may hold some that did, as many as our trainings of the cell do not
exclude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import LEVEL

#: What a training that failed reaches, in percent: the paper's sets have two classes.
_FAILED = 50.0
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
        means, each of as many trainings as the cell has; where ours is the larger mean and trainings of the
        architecture failed, also what the share of failures takes from it that ours do not exclude (Clopper, Pearson
        1934). ``nan`` where no architecture was trained twice.
    """
    from scipy.stats import t

    found = {}
    groups = {cell: _within(group) for cell, group in run.trainings.groupby(list(CELL), observed=True)}
    failing = _failing(run.accuracy)
    for _, row in run.accuracy.iterrows():
        cell = (row["scenario"], row["background"], row["model"])
        spread = _spread(groups, cell)
        trainings = int(row["trainings"] or 0) if not pd.isna(row["trainings"]) else 0
        if spread.freedom < 1 or trainings < 1:
            found[cell] = math.nan
            continue
        variance = 2 * spread.variance / trainings + _binomial(row, "mean") + _binomial(row, "paper")
        found[cell] = float(t.ppf(1 - LEVEL / 2, spread.freedom)) * math.sqrt(variance)
        if cell[2] in failing and float(row["mean"]) > float(row["paper"]):
            found[cell] += _most_failures(row) * max(0.0, float(row["mean"]) - _FAILED)
    return found


def _failing(accuracy: pd.DataFrame) -> set[str]:
    """The architectures of which a training failed, in whatever cell."""
    if "learned" not in accuracy:
        return set()
    return set(accuracy.loc[accuracy["learned"] < accuracy["trainings"], "model"])


def _most_failures(row: pd.Series) -> float:
    """The largest share of trainings of the cell that may fail, given how many of ours did."""
    from scipy.stats import beta

    trainings, learned = int(row["trainings"]), int(row["learned"])
    return float(beta.ppf(1 - LEVEL / 2, trainings - learned + 1, learned)) if learned else 1.0


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
