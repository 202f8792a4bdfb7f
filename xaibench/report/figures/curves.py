"""Figures with one panel per method: insertion and deletion curves, and scores at several budgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xaibench import plots
from xaibench.plots.curves import make_panels
from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.runfolder.schema import CELL
from xaibench.scores.results import RunResults

#: Largest number of points drawn per curve, to bound the size of the page.
POINTS = 41


def curve_sets(run: RunResults) -> dict[tuple[str, str, str], pd.DataFrame]:
    """Return the curves by data set, model and metric, in the order of the metrics."""
    if run.curves.empty:
        return {}
    order = {name: i for i, name in enumerate(run.metrics)}
    curves = {
        (str(dataset), str(model), str(metric)): table
        for (dataset, model, metric), table in run.curves.groupby(["dataset", "model", "metric"], sort=False)
    }
    return dict(sorted(curves.items(), key=lambda item: (item[0][:2], order.get(item[0][2], len(order)))))


def band_figure(run: RunResults, curves: pd.DataFrame, metric: str) -> Figure:
    """Draw one panel per explainer with common axes; the best control's mean is dashed in the other panels.

    Args:
        run: The run.
        curves: Curves of one data set, model and metric, as in ``curves.parquet``.
        metric: Name of the metric, which determines the direction.

    Returns:
        The figure. The number in a panel's title is the area under its mean.
    """
    lines = {str(name): table.sort_values("fraction") for name, table in curves.groupby("explainer", sort=False)}
    known = [name for name in run.explainers if name in lines]
    names = [*known, *(name for name in lines if name not in known)]
    areas = {name: _area(lines[name]) for name in names}
    higher = run.metrics[metric].higher_is_better if metric in run.metrics else metric != "deletion"
    controls = [name for name in known if run.explainers[name].control and not np.isnan(areas[name])]
    best = (max if higher else min)(controls, key=areas.__getitem__, default=None)
    low, high = min(0.0, float(curves["low"].min())), float(curves["high"].max())
    limits = (low, high + 0.04 * (high - low))  # room for the width of a line at the top
    labels = [shorten_label(run.explainers[name].label if name in known else name) for name in names]
    shown = ["–" if np.isnan(areas[name]) else f"{areas[name]:.3f}" for name in names]
    titles = [f"{label}  {area}" for label, area in zip(labels, shown, strict=True)]
    with house_style():
        is_italic = [name in controls for name in names]
        figure, panels = make_panels(titles, "share of the pixels", "score of the class", is_italic)
        for axes, name in zip(panels, names, strict=True):
            line, color = _thin(lines[name]), THEME["soft" if name in controls else "series-1"]
            axes.fill_between(line["fraction"], line["low"], line["high"], color=color, alpha=0.18, lw=0)
            axes.plot(line["fraction"], line["mean"], color=color, lw=1.6)
            if best is not None and name != best:
                bar = _thin(lines[best])
                axes.plot(bar["fraction"], bar["mean"], color=THEME["soft"], lw=0.9, ls=(0, (4, 2)))
            axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            axes.set(xlim=(0, 1), ylim=limits)
    return figure


def _area(curve: pd.DataFrame) -> float:
    """Return the mean height of the mean curve, by the trapezoidal rule."""
    x, y = curve["fraction"].to_numpy(float), curve["mean"].to_numpy(float)
    if len(x) < 2 or x[-1] == x[0]:
        return float("nan")
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (x[-1] - x[0]))


def _thin(curve: pd.DataFrame) -> pd.DataFrame:
    """Keep at most :data:`POINTS` points, including the first and the last."""
    if len(curve) <= POINTS:
        return curve
    return curve.iloc[np.linspace(0, len(curve) - 1, POINTS).round().astype(int)]


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


def budget_figure(run: RunResults, scores: BudgetScores) -> Figure:
    """Draw the scores of one metric with :func:`xaibench.plots.curves`."""
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
