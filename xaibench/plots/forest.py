"""Forest plot: means with their intervals, and the controls as lines."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from xaibench.plots.figures import FONT, THEME, house_style, shorten_label

if TYPE_CHECKING:
    import pandas as pd

#: Inches: height of a method, room for the axis and for a line of the legend, width of a character of a label.
_ROW, _AXIS, _LINE, _CHARACTER = 0.2, 0.62, 0.2, 0.072
#: Controls per line of the legend.
_LEGEND = 3
#: Colors of the controls' lines.
_COLORS = tuple(THEME[role] for role in ("soft", "series-2", "series-3", "series-4", "ink"))
_STYLES = ("--", ":", "-.", (0, (1, 3)), (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1)))


def forest(
    scores: pd.DataFrame,
    *,
    metrics: Mapping[str, str] | None = None,
    controls: Collection[str] = (),
    best: Mapping[str, Collection[str]] | None = None,
    labels: Mapping[str, str] | None = None,
    panel_width: float = 2.6,
) -> Figure:
    """Draw a forest plot: one panel per metric, one row per method, with its mean and its interval.

    Args:
        scores: One row per metric and method, with the columns ``metric``, ``method``, ``mean``, ``low`` and ``high``,
            as from ``xb.evaluate(...).summary()``. Methods are drawn in their order. A NaN mean is left out; with NaN
            ends, the mean is drawn without an interval.
        metrics: The metrics to draw, in order, with the titles of their panels; None = all, titled by their names.
        controls: Names of the controls, whose means are vertical lines instead of rows. If there is no other method,
            they are rows.
        best: By metric, the methods with a filled marker.
        labels: Labels of methods that differ from their names.
        panel_width: Width of a panel in inches.

    Returns:
        The figure; :func:`xaibench.plots.save` writes it to a file.

    Raises:
        ValueError: If there is no method, or a metric without scores.

    Example:
        >>> import pandas as pd
        >>> scores = pd.DataFrame({"metric": "iou", "method": ["lime", "noise"], "mean": [0.4, 0.1],
        ...                        "low": [0.3, 0.05], "high": [0.5, 0.15]})
        >>> figure = forest(scores, controls=["noise"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['lime']
    """
    titles = dict(metrics) if metrics is not None else {str(name): str(name) for name in scores["metric"].unique()}
    missing = [name for name in titles if not (scores["metric"] == name).any()]
    if missing or not titles:
        raise ValueError(f"scores: expected rows of each metric, got none of {missing or 'any metric'}.")
    every = list(dict.fromkeys(scores["method"][scores["metric"].isin(list(titles))]))
    lines = [name for name in every if name in controls]
    methods = [name for name in every if name not in controls]
    if not methods:
        methods, lines = lines, []
    shown = {name: shorten_label((labels or {}).get(name, name)) for name in every}
    width = 0.2 + _CHARACTER * max(len(shown[name]) for name in methods) + panel_width * len(titles)
    height = _AXIS + _ROW * (len(methods) + 1) + _LINE * -(-len(lines) // _LEGEND)
    with house_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
        for axes, (metric, title) in zip(panels, titles.items(), strict=True):
            rows = scores[scores["metric"] == metric].set_index("method")
            _draw_panel(axes, rows, methods, {name: shown[name] for name in lines}, (best or {}).get(metric, ()))
            axes.set_title(title, fontsize=FONT, color=THEME["ink"])
        panels[0].set_yticks(range(len(methods)), [shown[name] for name in methods])
        panels[0].set_ylim(len(methods) - 0.4, -0.6)
        if lines:
            handles, names = panels[0].get_legend_handles_labels()
            place: dict[str, Any] = {
                "loc": "outside lower center",
                "ncols": min(len(lines), _LEGEND),
                "fontsize": FONT - 1,
            }
            figure.legend(handles, names, frameon=False, labelcolor=THEME["soft"], **place)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # otherwise every drawing adjusts the layout a little, and files differ
    return figure


def _draw_panel(
    axes: Any, rows: pd.DataFrame, methods: Sequence[str], controls: Mapping[str, str], best: Collection[str]
) -> None:
    by_method: dict[Any, Any] = rows.to_dict("index")
    for number, (name, label) in enumerate(controls.items()):
        style: dict[str, Any] = {
            "color": _COLORS[number % len(_COLORS)],
            "linestyle": _STYLES[number % len(_STYLES)],
        }
        axes.axvline(by_method.get(name, {}).get("mean", math.nan), linewidth=0.9, label=label, **style)
    for place, name in enumerate(methods):
        row = by_method.get(name)
        if row is None or math.isnan(row["mean"]):
            continue
        if not math.isnan(row["low"]):
            axes.plot([row["low"], row["high"]], [place, place], color=THEME["series-1"], linewidth=1.4)
        face = THEME["series-1"] if name in best else THEME["paper"]
        axes.plot([row["mean"]], [place], "o", markersize=5, color=THEME["series-1"], markerfacecolor=face)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(THEME["line"])
    axes.tick_params(axis="y", length=0, labelcolor=THEME["ink"])
    axes.tick_params(axis="x", labelcolor=THEME["soft"], color=THEME["line"])
    axes.grid(axis="x", color=THEME["line"], linewidth=0.5)
    axes.set_axisbelow(True)
