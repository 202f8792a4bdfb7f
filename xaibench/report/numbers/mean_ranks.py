"""Average ranks with a critical difference: which methods are told apart over the cells of a run, and which are not.

Demšar: Statistical comparisons of classifiers over multiple data sets, JMLR 2006. His blocks are data sets; here they
are the cells of a run where it has enough of them, and else the samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics import average_ranks, critical_difference

#: From so many cells on, cells are the blocks (Demšar asks for more than ten data sets).
ENOUGH_CELLS = 10


@dataclass(frozen=True)
class Ranking:
    """Explainers by their mean rank for one metric.

    Attributes:
        metric: Name.
        ranks: Explainer to mean rank, best (smallest) first.
        blocks: How many rankings the mean is over.
        unit: What one of them is of: ``"cells"`` or ``"samples"``.
        difference: Mean ranks at least this far apart differ at 5 % (Nemenyi's test).
        p: Of Friedman's test that all are the same, ``nan`` where it cannot be asked.
        left_out: Explainers without a score in some cell, or without any.
    """

    metric: str
    ranks: dict[str, float]
    blocks: int
    unit: str
    difference: float
    p: float
    left_out: tuple[str, ...]

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The largest sets of neighbours whose ranks all lie within the critical difference; two or more each."""
        names, values = list(self.ranks), np.array(list(self.ranks.values()))
        ends = np.searchsorted(values, values + self.difference, side="left")
        found: list[tuple[str, ...]] = []
        reached = 0
        for start, end in enumerate(ends):
            if end - start > 1 and end > reached:
                found.append(tuple(names[start:end]))
            reached = max(reached, int(end))
        return found


def rankings(run: RunResults, summary: pd.DataFrame) -> dict[str, Ranking]:
    """The ranking of each metric that ranks three explainers or more in two blocks or more.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarise`.

    Returns:
        By metric. Over cells, an explainer has its rank by median; over samples, each group of samples counts once,
        with its mean scores over samples, trainings and models.
    """
    cells = summary.groupby(list(CELL), observed=True).ngroups if len(summary) else 0
    by_cells = cells >= ENOUGH_CELLS
    blocks = _cell_blocks(run, summary) if by_cells else _sample_blocks(run)
    found = {}
    for metric, scores, higher in blocks:
        whole = scores.dropna(axis="columns", how="all")
        if by_cells:  # a mean over other cells is another quantity
            whole = whole.dropna(axis="columns")
        ranks, n = average_ranks(whole.to_numpy(), higher_is_better=higher)
        if n < 2 or len(ranks) < 3:
            continue
        ordered = sorted(zip(whole.columns, ranks, strict=True), key=lambda pair: pair[1])
        found[metric] = Ranking(
            metric=metric,
            ranks={str(name): float(rank) for name, rank in ordered},
            blocks=n,
            unit="cells" if by_cells else "samples",
            difference=critical_difference(len(ranks), n),
            p=_friedman(whole.dropna().to_numpy()),
            left_out=tuple(str(name) for name in scores.columns if name not in whole.columns),
        )
    return found


def _cell_blocks(run: RunResults, summary: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame, bool]]:
    """Ranks within cells, as scores of which lower is better."""
    for metric in run.metrics:
        mine = summary[summary["metric"] == metric].astype(dict.fromkeys([*CELL, "explainer"], str))
        wide = mine.pivot(index=list(CELL), columns="explainer", values="rank")
        yield metric, wide[[name for name in run.explainers if name in wide]], False


def _sample_blocks(run: RunResults) -> Iterable[tuple[str, pd.DataFrame, bool]]:
    """Mean scores of each group of samples; explainers that some cell lacks are all undefined."""
    matrices = list(cell_matrices(run))
    directions = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    for metric in run.metrics:
        mine = [cell for cell in matrices if metric in cell.metrics]
        if not mine:
            continue
        frames = [_group_means(cell, metric) for cell in mine]
        everywhere = [name for name in run.explainers if all(name in frame for frame in frames)]
        scores = pd.concat(frames)[everywhere].groupby(level=[0, 1]).mean()
        missing = [name for name in run.explainers if name not in everywhere and any(name in f for f in frames)]
        yield metric, scores.reindex(columns=[*everywhere, *missing]), bool(directions[metric])


def _group_means(cell: Matrices, metric: str) -> pd.DataFrame:
    scores = pd.DataFrame(cell.values[:, cell.metrics.index(metric)], columns=list(cell.methods))
    return scores.groupby([pd.Index([cell.cell[:2]] * len(scores), tupleize_cols=False), cell.groups]).mean()


def _friedman(scores: Floats) -> float:
    from scipy.stats import friedmanchisquare

    if (scores == scores[:, :1]).all():
        return float("nan")
    return float(friedmanchisquare(*scores.T).pvalue)
