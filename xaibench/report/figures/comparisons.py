"""Figure of the significant differences between methods."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.report.numbers.rankings import Ranking
from xaibench.report.read.results import RunResults

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
