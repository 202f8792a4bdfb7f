"""Forest plot of an evaluation: means with their intervals, and the controls as lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xaibench.core.figure_style import FONT, THEME, house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from xaibench.evaluation.table import Evaluation

#: Inches: width of a panel, height of a method, room for the axis and for a line of the legend, character of a label.
_PANEL, _ROW, _AXIS, _LINE, _CHARACTER = 2.6, 0.24, 0.85, 0.2, 0.072
#: Lines of the controls.
_COLORS = tuple(THEME[role] for role in ("soft", "series-2", "series-3", "series-4", "ink"))
_STYLES = ("--", ":", "-.", (0, (1, 3)), (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1)))


def forest_plot(evaluation: Evaluation, metrics: Sequence[str]) -> Figure:
    """Draw one panel per metric (:meth:`xaibench.evaluation.Evaluation.plot`)."""
    controls = [name for name in evaluation.methods if name in evaluation.controls]
    methods = [name for name in evaluation.methods if name not in evaluation.controls] or controls
    lines = controls if methods is not controls else []
    left = 0.2 + _CHARACTER * max(map(len, methods))
    height = _AXIS + _ROW * (len(methods) + 1) + _LINE * -(-len(lines) // 3)
    with house_style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(left + _PANEL * len(metrics), height), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            _draw_panel(axes, evaluation, metric, methods, lines)
        panels[0].set_yticks(range(len(methods)), methods)
        panels[0].set_ylim(len(methods) - 0.4, -0.6)
        if lines:
            handles, names = panels[0].get_legend_handles_labels()
            figure.legend(
                handles, names, loc="outside lower center", ncols=min(len(lines), 3), frameon=False, fontsize=FONT - 1
            )
    return figure


def _draw_panel(
    axes: Any, evaluation: Evaluation, metric: str, methods: Sequence[str], controls: Sequence[str]
) -> None:
    info = evaluation.metrics[metric]
    summary = evaluation.summary()
    rows: dict[Any, Any] = summary[summary["metric"] == metric].set_index("method", drop=False).T.to_dict()
    best = evaluation.best_methods(metric)
    for number, name in enumerate(controls):
        color, style = _COLORS[number % len(_COLORS)], _STYLES[number % len(_STYLES)]
        axes.axvline(rows[name]["mean"], color=color, linewidth=0.9, linestyle=style, label=name)
    for place, name in enumerate(methods):
        row = rows[name]
        if math.isnan(row["mean"]):
            continue
        if not math.isnan(row["low"]):
            axes.plot([row["low"], row["high"]], [place, place], color=THEME["series-1"], linewidth=1.4)
        face = THEME["series-1"] if name in best else THEME["paper"]
        axes.plot([row["mean"]], [place], "o", markersize=5, color=THEME["series-1"], markerfacecolor=face)
    axes.set_title(f"{info.label} {'↑' if info.higher_is_better else '↓'}", fontsize=FONT, color=THEME["ink"])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=THEME["ink"])
    axes.tick_params(axis="x", labelcolor=THEME["soft"])
    axes.grid(axis="x", color=THEME["line"], linewidth=0.5)
    axes.set_axisbelow(True)
