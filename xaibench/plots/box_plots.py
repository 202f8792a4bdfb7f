"""Figures of the scores: one panel per subset and model, with box plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from xaibench.plots.figures import FONT, THEME, house_style, shorten_label
from xaibench.scores.results import RunResults, place

_SERIES = [THEME[f"series-{i}"] for i in range(1, 5)]
#: Inches: figure width, height of a panel, height of the legend, room for a panel's title.
_WIDTH, _PANEL, _LEGEND, _TITLE = 12.0, 1.65, 0.6, 0.45
#: Width of a character in inches, and the cosine and sine of the labels' rotation of 40 degrees.
_CHARACTER, _ALONG, _UP = 0.063, 0.766, 0.643
Panel: TypeAlias = tuple[str, str]
#: Columns of the summary that are drawn.
_COLUMNS = ["subset", "variant", "model", "explainer", "control", "rank", "mean", "median", "q25", "q75"]
_COLUMNS += ["whisker_low", "whisker_high", "outliers"]

#: Largest number of panels per row.
_MOST_COLUMNS = 4


def panel_grid(panels: Sequence[Panel], subsets: Sequence[str], models: Sequence[str]) -> list[list[Panel | None]]:
    """Lay out the panels: one row per subset, one column per model that occurs in most subsets.

    The panels of other models (the linear one, which only the linear subset has) come first, in rows of their own.

    Example:
        >>> panel_grid([("lin", "llr"), ("lin", "mlp"), ("xor", "mlp"), ("rigid", "mlp")], ["lin", "xor", "rigid"], ["llr", "mlp"])
        [[('lin', 'llr')], [('lin', 'mlp')], [('xor', 'mlp')], [('rigid', 'mlp')]]
    """  # noqa: E501
    count = {model: sum((subset, model) in panels for subset in subsets) for model in models}
    columns = [model for model in models if 2 * count[model] > len(subsets)] or [m for m in models if count[m]]
    if len(columns) > _MOST_COLUMNS:  # subsets have different models; one column per model would not fit
        alone = [[(s, m) for m in models if (s, m) in panels] for s in subsets]
        width = min(_MOST_COLUMNS, max(map(len, alone)))
        cut = [row[start : start + width] for row in alone for start in range(0, len(row), width)]
        return [[*row, *[None] * (width - len(row))] for row in cut]
    others: list[Panel | None] = [
        (subset, model) for subset in subsets for model in models if model not in columns and (subset, model) in panels
    ]
    width = len(columns)
    rows = [others[start : start + width] for start in range(0, len(others), width)]
    rows = [row + [None] * (width - len(row)) for row in rows]
    rows += [[(s, m) if (s, m) in panels else None for m in columns] for s in subsets]
    return [row for row in rows if any(row)]


def score_figure(run: RunResults, summary: pd.DataFrame, metric: str) -> Figure | None:
    """Draw box plots of the scores of one metric: one panel per subset and model, explainers on x, variants by color.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.summarize`.
        metric: Name of the metric.

    Returns:
        The figure: quartiles and median, Tukey's whiskers of 1.5 interquartile ranges, a diamond for the mean, some of
        the outliers as dots, and a dashed line for the median of the best control on each variant. None if the metric
        has no defined score.
    """
    rows = summary.loc[(summary["metric"] == metric) & (summary["n_valid"] > 0), _COLUMNS]
    if rows.empty:
        return None
    panels = list(dict.fromkeys(zip(rows["subset"], rows["model"], strict=True)))
    grid = panel_grid(panels, run.subsets, list(run.models))
    explainers = [name for name in run.explainers if name in set(rows["explainer"])]
    low, high = _y_limits(rows)
    layout = _Layout(len(grid), len(grid[0]), [shorten_label(run.explainers[name].label) for name in explainers])
    lowest = {column: number for number, row in enumerate(grid) for column, panel in enumerate(row) if panel}
    with house_style():
        figure = Figure(figsize=(_WIDTH, layout.height))
        _draw_legend(run, figure, layout)
        for number, row in enumerate(grid):
            for column, panel in enumerate(row):
                if panel is None:
                    continue
                axes = figure.add_axes(layout.rectangle(number, column))
                axes.set_ylim(low, high)
                inside = rows[(rows["subset"] == panel[0]) & (rows["model"] == panel[1])]
                _draw_panel(run, axes, inside, explainers)
                labels = layout.labels if number == lowest[column] else []
                turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
                axes.set_xticks(range(len(labels)), labels, **turned, color=THEME["ink"])
                axes.tick_params(axis="x", length=2, width=0.6, pad=2, color=THEME["line"])
                label = run.models[panel[1]].label
                title = f"{place(panel[0])} · {label}"
                # A given height saves a search for room among the ticks, in each drawing.
                axes.set_title(title, loc="left", y=1.0, color=THEME["ink"], weight="bold")
                if column == 0 or row[column - 1] is None:
                    axes.set_ylabel(run.metrics[metric].label, color=THEME["soft"])
                else:
                    axes.tick_params(labelleft=False)
    return figure


def _y_limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Return limits of y that hold everything drawn, for all panels."""
    outliers = [value for part in rows["outliers"] for value in part]
    low, high = min([*outliers, rows["whisker_low"].min()]), max([*outliers, rows["whisker_high"].max()])
    margin = 0.03 * ((high - low) or 1.0)
    return low - margin, high + margin


@dataclass(frozen=True)
class _Layout:
    """Positions of the panels, all of one size, with room for the rotated labels below each column and left of it."""

    rows: int
    columns: int
    labels: list[str]

    @property
    def below(self) -> float:
        """Inches below the last row, for the labels."""
        return 0.3 + _CHARACTER * _UP * max(map(len, self.labels))

    @property
    def height(self) -> float:
        return _LEGEND + self.rows * (_PANEL + _TITLE) - _TITLE + self.below

    @property
    def overhang(self) -> float:
        """Inches by which the labels extend beyond the left edge of their panel."""
        step = 0.9 * _WIDTH / self.columns / len(self.labels)
        reach = [_CHARACTER * _ALONG * len(label) - (i + 0.6) * step for i, label in enumerate(self.labels)]
        return max(0.0, *reach)

    def rectangle(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height as fractions of the figure."""
        left, gap = max(0.75, self.overhang + 0.1), max(0.35, self.overhang - 0.2)
        width = (_WIDTH - left - 0.1 - (self.columns - 1) * gap) / self.columns
        bottom = self.height - _LEGEND - (row + 1) * (_PANEL + _TITLE) + _TITLE
        x = left + column * (width + gap)
        return x / _WIDTH, bottom / self.height, width / _WIDTH, _PANEL / self.height


def _draw_legend(run: RunResults, figure: Figure, layout: _Layout) -> None:
    soft = THEME["soft"]
    handles: list[Any] = [
        Patch(facecolor=(_background_color(run, name), 0.35), edgecolor=_background_color(run, name), label=place(name))
        for name in run.variants
        if run.has_variants
    ]
    handles += [
        Line2D([], [], color=soft, marker="D", ms=3.5, ls="", label="mean"),
        Line2D([], [], color=soft, lw=1, ls=(0, (4, 2)), label="median of the best control"),
        Patch(facecolor=THEME["band"], edgecolor=THEME["line"], label="controls"),
    ]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(layout.rectangle(0, 0)[0] - 0.008, 1 - 0.02 / layout.height),
        ncols=len(handles),
        frameon=False,
        labelcolor=THEME["ink"],
        fontsize=FONT + 0.5,
        handlelength=1.6,
        columnspacing=1.6,
    )


def _background_color(run: RunResults, variant: str) -> str:
    return _SERIES[run.variants.index(variant) % len(_SERIES)]


def _draw_panel(run: RunResults, axes: Any, rows: pd.DataFrame, explainers: Sequence[str]) -> None:
    """Draw axes, ticks and the boxes of every variant, side by side around each explainer's tick."""
    controls = [i for i, name in enumerate(explainers) if run.explainers[name].control]
    axes.set_xlim(-0.6, len(explainers) - 0.4)
    if controls:
        axes.axvspan(controls[0] - 0.5, len(explainers) - 0.4, color=THEME["band"], lw=0, zorder=0)
    axes.tick_params(axis="y", length=0, labelcolor=THEME["soft"])
    axes.grid(axis="y", color=THEME["line"], lw=0.5, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(THEME["line"])
    tick = {name: i for i, name in enumerate(explainers)}
    slot = 0.8 / len(run.variants)
    for number, variant in enumerate(run.variants):
        boxes = rows[rows["variant"] == variant]
        if boxes.empty:
            continue
        shift = (number - (len(run.variants) - 1) / 2) * slot
        x = boxes["explainer"].map(tick).to_numpy(float) + shift
        _draw_boxes(axes, x, boxes, _background_color(run, variant), half=0.4 * slot)
        ranked = boxes[boxes["control"] & boxes["rank"].notna()]
        if len(ranked):
            best = ranked["median"].to_numpy()[ranked["rank"].to_numpy(float).argmin()]
            axes.axhline(best, color=_background_color(run, variant), lw=0.9, ls=(0, (4, 2)), zorder=1)


def _draw_boxes(axes: Any, x: NDArray[np.floating[Any]], rows: pd.DataFrame, color: str, half: float) -> None:
    """Draw all boxes of one variant as three shapes, which is much faster than one artist per line."""
    low, q25, median, q75, high = (
        rows[name].to_numpy(float) for name in ("whisker_low", "q25", "median", "q75", "whisker_high")
    )
    left, right = x - half, x + half
    line: dict[str, Any] = {"color": color, "solid_capstyle": "butt"}
    gap = np.full_like(x, np.nan)  # lifts the pen
    whiskers = np.stack([low, q25, gap, q75, high, gap], axis=1)
    axes.plot(np.repeat(x, 6), whiskers.ravel(), lw=0.8, zorder=2, **line)
    corners = [[left, q25], [right, q25], [right, q75], [left, q75], [left, q25]]
    vertices = np.array(corners).transpose(2, 0, 1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(x)
    box = PathPatch(Path(vertices, codes), facecolor=(color, 0.3), edgecolor=color, lw=0.8, joinstyle="round", zorder=3)
    axes.add_artist(box)
    medians = np.stack([median, median, gap], axis=1)
    axes.plot(np.stack([left, right, gap], axis=1).ravel(), medians.ravel(), lw=2.0, zorder=4, **line)
    axes.plot(x, rows["mean"], ls="", marker="D", ms=2.3, mfc=THEME["paper"], mec=color, mew=0.7, zorder=5)
    dots = [(a, value) for a, values in zip(x, rows["outliers"], strict=True) for value in values]
    if dots:
        axes.plot(*zip(*dots, strict=True), ls="", marker="o", ms=1.3, mfc=color, mec="none", alpha=0.6, zorder=1)
