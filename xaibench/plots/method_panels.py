"""Figures of a run with one panel per method: insertion and deletion curves, and scores at several budgets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xaibench.plots.curves import budget, make_panels
from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.scores.budgets import BudgetScores
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


def budget_figure(run: RunResults, scores: BudgetScores) -> Figure:
    """Draw the scores of one metric with :func:`xaibench.plots.curves`."""
    metric = run.metrics[scores.metric]
    rows = [
        {"method": label, "passes": passes, "mean": score.mean, "low": score.low, "high": score.high}
        for label, line in scores.methods.items()
        for passes, score in line.items()
    ]
    return budget(
        pd.DataFrame(rows),
        fixed=[(passes, score.mean) for passes, score in scores.fixed.values()],
        control=scores.best_control,
        label=metric.label,
    )
