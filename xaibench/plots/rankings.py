"""Figures of the leaderboards: forest plot, and significant differences between methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.plots.forest import forest
from xaibench.scores.leaderboards import Boards, Ranking
from xaibench.scores.results import RunResults

#: Largest number of panels, and of methods.
MAX_PANELS, MAX_METHODS = 3, 14
#: Width of the panels together, in inches; with the labels, the figure fits a phone.
_PANELS_WIDTH = 2.9


@dataclass(frozen=True)
class Forest:
    """Content of the forest plot.

    Attributes:
        metrics: The metrics of the panels.
        methods: The methods of the rows, best first.
        left_out: Number of methods that are not drawn, which come after the others.
    """

    metrics: tuple[str, ...]
    methods: tuple[str, ...]
    left_out: int


def forest_content(run: RunResults, boards: Mapping[str, Boards]) -> Forest | None:
    """Choose panels and methods: the leading metrics of one kind of truth, or the first one of each of several.

    Returns:
        The content; None if nothing was ranked.
    """
    ranked = [found for found in boards.values() if found.order]  # all scores of a kind of truth may be undefined
    leading = [found.standings.leading for found in ranked]
    chosen = leading[0] if len(leading) == 1 else tuple(names[0] for names in leading if names)
    order = list(dict.fromkeys(name for found in ranked for name in found.order))
    methods = [name for name in order if not run.explainers[name].control] or order
    if not chosen or not methods:
        return None
    return Forest(chosen[:MAX_PANELS], tuple(methods[:MAX_METHODS]), len(methods[MAX_METHODS:]))


def forest_figure(run: RunResults, boards: Mapping[str, Boards]) -> Figure | None:
    """Draw means and intervals over all cells. Filled markers show the methods that share the first place."""
    content = forest_content(run, boards)
    if content is None:
        return None
    rows, best = [], {}
    for metric in content.metrics:
        board = boards[run.metrics[metric].truth].columns((None, None, None))
        first = dict(zip(board["explainer"], board[f"first:{metric}"], strict=True))
        best[metric] = [name for name, rank in first.items() if rank == 1]
        numbers = zip(*(board[f"{name}:{metric}"] for name in ("mean", "low", "high")), strict=True)
        known = dict(zip(board["explainer"], numbers, strict=True))
        controls = [name for name, part in run.explainers.items() if part.control]
        for name in dict.fromkeys([*content.methods, *controls]):  # a run may have controls only
            mean, low, high = known.get(name, (math.nan,) * 3)
            rows.append({"metric": metric, "method": name, "mean": mean, "low": low, "high": high})
    parts = [run.metrics[metric] for metric in content.metrics]
    return forest(
        pd.DataFrame(rows),
        metrics={part.name: f"{part.label} {'↑' if part.higher_is_better else '↓'}" for part in parts},
        controls=[name for name, part in run.explainers.items() if part.control],
        best=best,
        labels={name: part.label for name, part in run.explainers.items()},
        panel_width=_PANELS_WIDTH / len(parts),
    )


#: Inches: width, labels at either side, line of labels, space above the axis, bar.
_WIDTH, _SIDE, _STEP, _TOP, _BAR = 6.9, 2.15, 0.19, 0.62, 0.085


def ranking_figure(run: RunResults, ranking: Ranking) -> Figure:
    """Draw the means on a line, best left; bars join methods that do not differ significantly."""
    names, values = list(ranking.means), list(ranking.means.values())
    half = -(-len(names) // 2)
    first = _TOP + 0.25 + _BAR * len(ranking.groups)
    height = first + _STEP * half
    ticks = MaxNLocator(5).tick_values(min(values), max(values))
    best, worst = (ticks[-1], ticks[0]) if run.metrics[ranking.metric].higher_is_better else (ticks[0], ticks[-1])
    soft, ink = THEME["soft"], THEME["ink"]

    def at(value: float) -> float:
        return _SIDE + (value - best) * (_WIDTH - 2 * _SIDE) / (worst - best)

    with house_style():
        figure = Figure(figsize=(_WIDTH, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
        axes.axis("off")
        axes.plot([at(best), at(worst)], [_TOP, _TOP], color=soft, lw=1)
        for tick in ticks:
            axes.plot([at(tick)] * 2, [_TOP - 0.05, _TOP], color=soft, lw=1)
            axes.text(at(tick), _TOP - 0.08, f"{tick:g}".replace("-", "−"), ha="center", va="bottom", color=soft)
        for number, group in enumerate(ranking.groups):
            ends = [at(ranking.means[group[0]]) - 0.03, at(ranking.means[group[-1]]) + 0.03]
            axes.plot(ends, [_TOP + 0.12 + _BAR * number] * 2, color=THEME["series-1"], lw=3)
        for position, name in enumerate(names):
            left = position < half
            y = first + _STEP * (position if left else len(names) - 1 - position)
            x, edge = at(ranking.means[name]), _SIDE - 0.12 if left else _WIDTH - _SIDE + 0.12
            control = run.explainers[name].control
            axes.plot([x, x, edge], [_TOP, y, y], color=soft, lw=0.7, ls=":" if control else "-")
            label, mean_text = shorten_label(run.explainers[name].label), f"{ranking.means[name]:.3f}".replace("-", "−")
            axes.text(
                edge + (-0.05 if left else 0.05),
                y,
                f"{label}  {mean_text}" if left else f"{mean_text}  {label}",
                ha="right" if left else "left",
                va="center",
                color=soft if control else ink,
                style="italic" if control else "normal",
            )
    return figure
