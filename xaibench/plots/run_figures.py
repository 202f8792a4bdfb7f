"""Figures of a run: means and rankings, curves and budgets with one panel per method, and signal-to-noise ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from xaibench.plots.curves import budget, make_panels
from xaibench.plots.figures import THEME, house_style, shorten_label
from xaibench.plots.forest import forest
from xaibench.plots.maps import sheet
from xaibench.runfolder.sample_file import read_samples
from xaibench.scores.budgets import BudgetScores
from xaibench.scores.leaderboards import Boards, Ranking
from xaibench.scores.results import RunResults, place
from xaibench.scores.signal_to_noise import chosen_ratios
from xaibench.scores.summary import min_accuracy

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


def accuracy_figure(run: RunResults) -> Figure:
    """Draw the mean test accuracy of each network over the ratios, one panel per data set.

    The band is the 95 % interval of the mean. Vertical lines mark the ratio of the paper (dotted) and the one that its
    rule chooses here (solid).
    """
    chosen = chosen_ratios(run)
    rows = run.accuracy
    titles = [f"{place(one.subset)} {place(one.variant)}".strip() for one in chosen]
    columns = next((each for each in (4, 3, 2) if len(titles) % each == 0), 4)
    with house_style():
        figure, panels = make_panels(titles, "signal-to-noise ratio α", "test accuracy in percent", most=columns)
        for axes, one in zip(panels, chosen, strict=True):
            axes.axhline(min_accuracy(run), color=THEME["soft"], lw=0.8, ls=(0, (4, 2)))
            for ratio, dash in ((one.paper, ":"), (one.ours, "-")):
                if ratio is not None:
                    axes.axvline(ratio, color=THEME["soft"], lw=0.9, ls=dash)
            of_set = rows[(rows["subset"] == one.subset) & (rows["variant"] == one.variant)]
            for number, (name, info) in enumerate(run.models.items(), 1):
                line = of_set[of_set["model"] == name].sort_values("alpha")
                color = THEME[f"series-{number}"]
                axes.fill_between(line["alpha"], line["low"], line["high"], color=color, alpha=0.18, lw=0)
                axes.plot(line["alpha"], line["mean"], ".-", color=color, lw=1.4, ms=4, label=info.label)
            axes.set_xscale("log")
            ticks = [each for each in (0.01, 0.03, 0.1, 0.3, 1) if each >= rows["alpha"].min() / 1.5]
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set(ylim=(45, 102), xlim=(rows["alpha"].min() / 1.2, rows["alpha"].max() * 1.2))
        panels[0].legend(frameon=False, loc="lower right", fontsize=7, handlelength=1.2, borderaxespad=0.1)
    return figure


def ratio_sheet(run: RunResults) -> Figure | None:
    """Draw a sample of each data set at some of the ratios, with its mask; None if the run folder has none."""
    cells = [cell for cell in read_samples(run.path) if not cell.model]
    if not cells:
        return None
    images = np.concatenate([np.moveaxis(cell.images[..., :1] / 255.0, -1, 1) for cell in cells])
    labels = [f"{place(cell.subset)} {place(cell.variant)}, α = {ratio}" for cell in cells for ratio in cell.labels]
    masks = np.concatenate([cell.masks for cell in cells]).astype(bool)
    return sheet(images, masks, labels, columns=len(cells[0].labels))
