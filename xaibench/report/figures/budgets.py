"""Scores at several budgets of forward and backward passes, and their figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from xaibench import plots
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL


@dataclass(frozen=True)
class BudgetScore:
    """Mean score of an entry of the suite over the cells by one metric.

    Attributes:
        mean: Mean of the cells' means.
        low: Lower end of the interval. The cells' data are independent, so the half-widths of their 95 % intervals are
            added in quadrature.
        high: Upper end of the interval.
        place: Place among all methods at that budget or of a fixed cost; 1 is the best mean. 0 for controls.
        of: Number of these methods.
        cells: Number of cells that the mean is over.
    """

    mean: float
    low: float
    high: float
    cells: int
    place: int = 0
    of: int = 0


@dataclass(frozen=True)
class BudgetScores:
    """Scores of a metric at several budgets.

    Attributes:
        metric: Name of the metric.
        budgets: All budgets that occur, in passes per image.
        methods: Scores by label of the method and budget.
        fixed: By label, methods of a fixed cost: number of passes (None if it depends on the network) and score. Their
            place is at the largest budget.
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
    found: dict[tuple[str, str], dict[int, str]] = {}
    for name, part in run.explainers.items():
        others = {key: value for key, value in part.parameters.items() if key != "budget"}
        if budget := part.parameters.get("budget"):
            found.setdefault((part.method or part.label, repr(sorted(others.items()))), {})[int(budget)] = name
    if max(map(len, found.values()), default=0) < 2:
        return {}
    labels = [label for label, _ in found]
    lines = {}
    for (label, _), entries in found.items():
        # Two series of one method differ in another parameter; the names of their entries tell them apart.
        least = min(entries)
        own = label if labels.count(label) == 1 else entries[least].removesuffix(f"-{least}")
        lines[own] = dict(sorted(entries.items()))
    return lines


def budget_scores(run: RunResults, summary: pd.DataFrame) -> dict[str, BudgetScores]:
    """Return the scores of each metric at each budget.

    Args:
        run: The run.
        summary: Summary with intervals, from :func:`~xaibench.report.numbers.inference.infer`.

    Returns:
        Scores by metric; empty if no method has several budgets. Means are over the cells in which all methods and
        controls have a score.
    """
    lines = budget_lines(run)
    if not lines:
        return {}
    budgets = tuple(sorted({budget for entries in lines.values() for budget in entries}))
    in_lines = {name for entries in lines.values() for name in entries.values()}
    found = {}
    for metric, part in run.metrics.items():
        tables = _cell_tables(summary[summary["metric"] == metric])
        if tables["mean"].empty:
            continue
        means, cells = _over_cells(tables), tables["mean"].shape[1]
        placed = _Ranker(
            lines, {n: s for n, s in means.items() if n not in in_lines}, means, part.higher_is_better, run
        )
        methods = {
            label: {budget: placed.at(budget, name) for budget, name in entries.items() if name in means}
            for label, entries in lines.items()
        }
        alone = [name for name in means if name not in in_lines]
        fixed = {
            run.explainers[name].label: (run.explainers[name].passes, placed.at(budgets[-1], name))
            for name in alone
            if not run.explainers[name].control
        }
        controls, best = _control_scores(tables, run, metric)
        found[metric] = BudgetScores(metric, budgets, methods, fixed, controls, best, cells)
    return found


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


class _Ranker:
    """Places of the methods at each budget."""

    def __init__(
        self,
        lines: Mapping[str, Mapping[int, str]],
        alone: Mapping[str, BudgetScore],
        means: Mapping[str, BudgetScore],
        higher: bool,
        run: RunResults,
    ) -> None:
        self._lines, self._means, self._sign = lines, means, 1 if higher else -1
        self._alone = [name for name in alone if not run.explainers[name].control]

    def at(self, budget: int, name: str) -> BudgetScore:
        """Return the score with its place among the methods that have that budget or a fixed cost."""
        names = [entries[budget] for entries in self._lines.values() if entries.get(budget) in self._means]
        own = self._means[name]
        others = [self._means[other].mean for other in (*names, *self._alone)]
        better = sum(self._sign * mean > self._sign * own.mean for mean in others)
        return dataclasses.replace(own, place=better + 1, of=len(others))


def budget_figure(run: RunResults, scores: BudgetScores) -> Figure:
    """Draw the scores of one metric with :func:`xaibench.plots.budget`."""
    metric = run.metrics[scores.metric]
    rows = [
        {"method": label, "passes": passes, "mean": score.mean, "low": score.low, "high": score.high}
        for label, line in scores.methods.items()
        for passes, score in line.items()
    ]
    return plots.budget(
        pd.DataFrame(rows),
        fixed=[(passes, score.mean) for passes, score in scores.fixed.values()],
        control=scores.best_control,
        label=metric.label,
    )
