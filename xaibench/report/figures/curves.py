"""Figures of insertion and deletion curves, with one panel per explainer of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.report.read.results import RunResults

#: Largest number of points drawn per curve, to bound the size of the page.
POINTS = 41
#: Panels per row; in inches: panel size, gaps between panels, margins left and below.
_COLUMNS, _PANEL, _GAP, _MARGIN = 5, (1.75, 1.12), (0.2, 0.36), (0.6, 0.55)


def curve_sets(run: RunResults) -> dict[tuple[str, str, str], pd.DataFrame]:
    """Return the curves by data set, model and metric, in the order of the metrics."""
    if run.curves.empty:
        return {}
    order = {name: i for i, name in enumerate(run.metrics)}
    found = {
        (str(dataset), str(model), str(metric)): part
        for (dataset, model, metric), part in run.curves.groupby(["dataset", "model", "metric"], sort=False)
    }
    return dict(sorted(found.items(), key=lambda item: (item[0][:2], order.get(item[0][2], len(order)))))


def band_figure(run: RunResults, curves: pd.DataFrame, metric: str) -> Figure:
    """Draw one panel per explainer with common axes; the best control's mean is dashed in the other panels.

    Args:
        run: The run.
        curves: Curves of one data set, model and metric, as in ``curves.parquet``.
        metric: Name of the metric, which determines the direction.

    Returns:
        The figure. The number in a panel's title is the area under its mean.
    """
    lines = {str(name): part.sort_values("fraction") for name, part in curves.groupby("explainer", sort=False)}
    known = [name for name in run.explainers if name in lines]
    names = [*known, *(name for name in lines if name not in known)]
    areas = {name: _area(lines[name]) for name in names}
    higher = run.metrics[metric].higher_is_better if metric in run.metrics else metric != "deletion"
    controls = [name for name in known if run.explainers[name].control and not np.isnan(areas[name])]
    best = (max if higher else min)(controls, key=areas.__getitem__, default=None)
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    low, high = min(0.0, float(curves["low"].min())), float(curves["high"].max())
    limits = (low, high + 0.04 * (high - low))  # room for the width of a line at the top
    with house_style():
        width = _MARGIN[0] + columns * (_PANEL[0] + _GAP[0])
        height = _MARGIN[1] + rows * (_PANEL[1] + _GAP[1])
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            left = _MARGIN[0] + column * (_PANEL[0] + _GAP[0])
            bottom = height - (row + 1) * (_PANEL[1] + _GAP[1])
            axes = figure.add_axes((left / width, bottom / height, _PANEL[0] / width, _PANEL[1] / height))
            _draw_panel(axes, lines[name], control=name in controls)
            if best is not None and name != best:
                bar = _thin(lines[best])
                axes.plot(bar["fraction"], bar["mean"], color=THEME["soft"], lw=0.9, ls=(0, (4, 2)))
            axes.set(xlim=(0, 1), ylim=limits)
            axes.tick_params(labelleft=column == 0, labelbottom=number + columns >= len(names))
            label = run.explainers[name].label if name in known else name
            area = "–" if np.isnan(areas[name]) else f"{areas[name]:.3f}"
            style = "italic" if name in controls else "normal"
            axes.set_title(
                f"{shorten_label(label)}  {area}", loc="left", color=THEME["ink"], style=style, fontsize=8.5, pad=4
            )
        figure.text(_MARGIN[0] / width, 0.06 / height, "share of the pixels", color=THEME["soft"])
        middle = (_MARGIN[1] + (height - _MARGIN[1]) / 2) / height
        figure.text(0.06 / width, middle, "score of the class", rotation=90, va="center", color=THEME["soft"])
    return figure


def _draw_panel(axes: Any, curve: pd.DataFrame, *, control: bool) -> None:
    part, color = _thin(curve), THEME["soft" if control else "series-1"]
    axes.fill_between(part["fraction"], part["low"], part["high"], color=color, alpha=0.18, lw=0)
    axes.plot(part["fraction"], part["mean"], color=color, lw=1.6)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.grid(color=THEME["line"], lw=0.5)
    axes.tick_params(length=0, labelcolor=THEME["soft"])
    axes.spines[:].set_visible(False)


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
