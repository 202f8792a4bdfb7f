"""Scores of methods at several budgets of passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.runfolder.schema import CELL
from xaibench.scores.results import RunResults


@dataclass(frozen=True)
class BudgetScore:
    """Mean score of an entry of the suite over the cells by one metric.

    Attributes:
        mean: Mean of the cells' means.
        low: Lower end of the interval. The cells' data are independent, so the half-widths of their 95 % intervals are
            added in quadrature.
        high: Upper end of the interval.
        rank: Rank of the mean among all methods at that budget or of a fixed cost; 1 is the best. 0 for controls. It
            is not tested, unlike a place.
        of: Number of these methods.
        cells: Number of cells that the mean is over.
    """

    mean: float
    low: float
    high: float
    cells: int
    rank: int = 0
    of: int = 0


@dataclass(frozen=True)
class BudgetScores:
    """Scores of a metric at several budgets.

    Attributes:
        metric: Name of the metric.
        budgets: All budgets that occur, in passes per image.
        methods: Scores by label of the method and budget.
        fixed: By label, methods of a fixed cost: number of passes (None if it depends on the network) and score. Their
            rank is at the largest budget.
        controls: Score of each control by label, over the cells of which it is not the answer by construction of the
            data.
        best_control: Mean of each cell's best control; None if a cell has none.
        cells: Number of cells that the means are over.
    """

    metric: str
    budgets: tuple[int, ...]
    methods: Mapping[str, Mapping[int, BudgetScore]]
    fixed: Mapping[str, tuple[int | None, BudgetScore]]
    controls: Mapping[str, BudgetScore]
    best_control: float | None
    cells: int


def budget_lines(run: RunResults) -> dict[str, dict[int, str]]:
    """Return the suite's entries by the label of their method and their budget.

    Empty if no method has several budgets. If one does, a method with a single budget is a series of one point.
    """
    entries_of: dict[tuple[str, str], dict[int, str]] = {}
    for name, part in run.explainers.items():
        others = {key: value for key, value in part.parameters.items() if key != "budget"}
        if budget := part.parameters.get("budget"):
            entries_of.setdefault((part.method or part.label, repr(sorted(others.items()))), {})[int(budget)] = name
    if max(map(len, entries_of.values()), default=0) < 2:
        return {}
    labels = [label for label, _ in entries_of]
    lines = {}
    for (label, _), entries in entries_of.items():
        # Two series of one method differ in another parameter; the names of their entries tell them apart.
        least = min(entries)
        own = label if labels.count(label) == 1 else entries[least].removesuffix(f"-{least}")
        lines[own] = dict(sorted(entries.items()))
    return lines


def budget_scores(run: RunResults, summary: pd.DataFrame) -> dict[str, BudgetScores]:
    """Return the scores of each metric at each budget.

    Args:
        run: The run.
        summary: Summary with intervals, from :func:`~xaibench.scores.summary.infer`.

    Returns:
        Scores by metric; empty if no method has several budgets. Means are over the cells in which all methods and
        controls have a score.
    """
    lines = budget_lines(run)
    if not lines:
        return {}
    tables = {name: _cell_tables(summary[summary["metric"] == name]) for name in run.metrics}
    return {name: _metric_scores(run, name, lines, table) for name, table in tables.items() if not table["mean"].empty}


def _metric_scores(
    run: RunResults, metric: str, lines: Mapping[str, Mapping[int, str]], tables: Mapping[str, pd.DataFrame]
) -> BudgetScores:
    budgets = tuple(sorted({budget for entries in lines.values() for budget in entries}))
    in_lines = {name for entries in lines.values() for name in entries.values()}
    means, sign = _over_cells(tables), 1 if run.metrics[metric].higher_is_better else -1
    alone = [name for name in means if name not in in_lines and not run.explainers[name].control]

    def rank(budget: int, name: str) -> BudgetScore:
        """Return the score with its rank among the methods that have that budget or a fixed cost."""
        names = [entries[budget] for entries in lines.values() if entries.get(budget) in means]
        others = [means[other].mean for other in (*names, *alone)]
        rank = 1 + sum(sign * other > sign * means[name].mean for other in others)
        return dataclasses.replace(means[name], rank=rank, of=len(others))

    methods = {
        label: {budget: rank(budget, name) for budget, name in entries.items() if name in means}
        for label, entries in lines.items()
    }
    fixed = {run.explainers[name].label: (run.explainers[name].passes, rank(budgets[-1], name)) for name in alone}
    controls, best = _control_scores(tables, run, metric)
    return BudgetScores(metric, budgets, methods, fixed, controls, best, tables["mean"].shape[1])


def _cell_tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return mean, low and high of each entry (row) in each cell (column) in which all have a score."""
    tables = {key: rows.pivot_table(key, "explainer", list(CELL), observed=True) for key in ("mean", "low", "high")}
    there = tables["mean"].notna().all()
    return {key: table.reindex(columns=there.index[there]) for key, table in tables.items()}


def _control_scores(
    tables: Mapping[str, pd.DataFrame], run: RunResults, metric: str
) -> tuple[dict[str, BudgetScore], float | None]:
    """Return the score of each control over the cells of which it is not the answer, and the best one's mean."""
    mean, scores = tables["mean"], {}
    cells: Any = mean.columns  # tuples of subset, variant and model
    kept = pd.DataFrame(
        [
            [run.explainers[name].control and not run.is_answer(cell, name) for cell in cells]
            for name in map(str, mean.index)
        ],
        mean.index,
        mean.columns,
    )
    for name in mean.index[kept.any(axis=1)]:
        columns = mean.columns[kept.loc[name].to_numpy()]
        own = {key: table.loc[[name], columns] for key, table in tables.items()}
        scores[run.explainers[name].label] = _over_cells(own)[name]
    eligible = mean.where(kept)
    best = eligible.max() if run.metrics[metric].higher_is_better else eligible.min()
    return scores, float(best.mean()) if best.notna().all() else None


def _over_cells(tables: Mapping[str, pd.DataFrame]) -> dict[str, BudgetScore]:
    """Return the mean of each entry over the cells."""
    mean, low, high = (tables[key] for key in ("mean", "low", "high"))
    count = mean.shape[1]
    below, above = (((end - mean) ** 2).sum(axis=1, skipna=False) ** 0.5 / count for end in (low, high))
    center = mean.mean(axis=1)
    return {
        str(name): BudgetScore(
            float(center[name]), float(center[name] - below[name]), float(center[name] + above[name]), count
        )
        for name in center.index
    }
