"""Figures of insertion and deletion curves: all explainers in one panel, or one panel per explainer of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.core.figure_style import THEME, house_style
from xaibench.report.figures.style import shorten_label
from xaibench.report.read.results import RunResults

_COLORS = [THEME[f"series-{i}"] for i in range(1, 5)]
# Four colors of the theme, then the same four dashed and dotted.
_DASHES = ["-", "--", ":", "-."]
#: Largest number of points drawn per curve, to bound the size of the page.
POINTS = 41
#: Panels per row; in inches: panel size, gaps between panels, margins left and below.
_COLUMNS, _PANEL, _GAP, _MARGIN = 5, (1.75, 1.12), (0.2, 0.36), (0.6, 0.55)


def curve_figure(
    curves: Mapping[str, tuple[Any, Any]], *, ylabel: str = "score of the target", xlabel: str = "share of the pixels"
) -> Figure:
    """Draw the curves that metrics return with ``return_curves=True``.

    Each line is the mean over the samples with a defined curve; the band is their interquartile range. The legend
    states the area under the mean and the number of samples.

    Args:
        curves: ``{label: (fractions [P], values [N, P])}``, numpy or torch.
        ylabel: Label of the measured quantity.
        xlabel: Label of the fractions.

    Returns:
        A figure without a window; ``figure.savefig("curves.png")`` writes it.

    Raises:
        ValueError: If there is no curve, or the shapes do not match.

    Example:
        >>> figure = curve_figure({"Saliency": (np.linspace(0, 1, 3), np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.2]]))})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'Saliency: 0.575 (n=2)'
    """
    if not curves:
        raise ValueError("Expected at least one label with its curves, got none.")
    with house_style():
        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for index, (label, (fractions, values)) in enumerate(curves.items()):
            color, dash = _COLORS[index % 4], _DASHES[index // 4 % 4]
            x, y = _check_curves(label, fractions, values)
            mean = y.mean(0) if len(y) else np.full(len(x), np.nan)
            area = float((np.diff(x) * (mean[1:] + mean[:-1]) / 2).sum()) / float(x[-1] - x[0] or 1)
            axes.plot(x, mean, dash, color=color, lw=1.4, label=f"{label}: {area:.3f} (n={len(y)})")
            if len(y) > 1:
                low, high = np.quantile(y, [0.25, 0.75], axis=0)
                axes.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
        axes.set(xlabel=xlabel, ylabel=ylabel, xmargin=0.0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def _check_curves(label: str, fractions: Any, values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Convert both to float64 arrays, without the samples whose curve is undefined."""
    x, y = (np.asarray(part.cpu() if hasattr(part, "cpu") else part, dtype=np.float64) for part in (fractions, values))
    if x.ndim != 1 or y.ndim != 2 or len(x) != y.shape[1] or len(x) == 0:
        raise ValueError(f"{label}: curves must be (fractions [P], values [N, P]), got {x.shape} and {y.shape}.")
    return x, y[~np.isnan(y).any(axis=1)]


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
