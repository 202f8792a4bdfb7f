"""Figures of the agreement of metrics (Zhang et al. 2023, Table 4, as a matrix) and of significant differences."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from xaibench.core.figure_style import THEME, house_style
from xaibench.report.figures.style import shorten_label
from xaibench.report.numbers.rankings import Ranking
from xaibench.report.read.results import RunResults

#: Inches: cell, character of a label, outer margin, height of the note below.
_CELL, _CHARACTER, _MARGIN, _FOOT = 0.62, 0.075, 0.15, 0.42
#: Inches: width, labels at either side, line of labels, space above the axis, bar.
_WIDTH, _SIDE, _STEP, _TOP, _BAR = 6.9, 2.15, 0.19, 0.62, 0.085
#: Opacity of a coefficient of one; the number on it stays readable in the light and the dark theme.
_STRONGEST = 0.65


class CorrelationMatrix(Protocol):
    """Correlations to draw, as returned by ``xaibench.metrics.agreement``: three square tables of the same metrics."""

    @property
    def coefficients(self) -> pd.DataFrame:
        """Correlations in [-1, 1]; NaN if undefined."""

    @property
    def n(self) -> pd.DataFrame:
        """Number of samples of each correlation."""

    @property
    def kind(self) -> pd.DataFrame:
        """``"spearman"`` or ``"point-biserial"``."""


def agreement_figure(matrix: CorrelationMatrix, labels: dict[str, str] | None = None) -> Figure:
    """Draw the lower triangle of the correlations between metrics.

    Blue means agreement (both metrics prefer the same maps), orange disagreement; stronger colors mean larger
    correlations. A dagger marks point-biserial coefficients, a dash undefined ones. The number of samples is printed
    below.

    Args:
        matrix: From :func:`xaibench.metrics.agreement`.
        labels: Labels of the metrics in the figure; by default their names in the matrix.

    Returns:
        The figure; :func:`xaibench.report.figures.style.save` turns it into PNG or SVG.

    Raises:
        ValueError: If there are fewer than two metrics.
    """
    names = list(matrix.coefficients.columns)
    if len(names) < 2:
        raise ValueError(f"Expected two or more metrics to compare, got {names}.")
    shown = [(labels or {}).get(name, name) for name in names]
    side = _CELL * (len(names) - 1)
    left = _MARGIN + _CHARACTER * max(len(label) for label in shown[1:])
    below = _FOOT + _CHARACTER * max(len(label) for label in shown[:-1])
    width, height = max(left + side + _MARGIN, 3.4), below + side + _MARGIN
    with house_style():
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((left / width, below / height, side / width, side / height))
        axes.set(xlim=(0, len(names) - 1), ylim=(len(names) - 1, 0))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelcolor=THEME["ink"])
        axes.set_xticks(np.arange(len(names) - 1) + 0.5, shown[:-1], rotation=90)
        axes.set_yticks(np.arange(len(names) - 1) + 0.5, shown[1:])
        for row in range(1, len(names)):
            for column in range(row):
                pair = (names[row], names[column])
                r = float(matrix.coefficients.loc[pair])  # type: ignore[arg-type]
                color = THEME["series-1" if r >= 0 else "series-2"]
                opacity = 0.0 if np.isnan(r) else _STRONGEST * abs(r)
                cell = (column, row - 1)
                axes.add_patch(Rectangle(cell, 1, 1, facecolor=color, alpha=opacity, linewidth=0))
                axes.add_patch(Rectangle(cell, 1, 1, fill=False, edgecolor=THEME["line"], linewidth=0.6))
                text = _format_coefficient(r, biserial=str(matrix.kind.loc[pair]) == "point-biserial")
                middle = {"ha": "center", "va": "center", "color": THEME["ink"]}
                axes.text(column + 0.5, row - 0.5, text, **middle)  # type: ignore[arg-type]
        figure.text(_MARGIN / width, 0.12 / height, _sample_note(matrix), color=THEME["soft"])
    return figure


def _format_coefficient(r: float, *, biserial: bool) -> str:
    if np.isnan(r):
        return "–"
    # A typographic minus sign, but none before a rounded zero.
    return f"{r + 0.0 if round(r, 2) else 0.0:.2f}".replace("-", "−") + ("†" if biserial else "")


def _sample_note(matrix: CorrelationMatrix) -> str:
    counts = matrix.n.to_numpy()[np.tril_indices(len(matrix.n), -1)]
    low, high = counts.min(), counts.max()
    biserial = matrix.kind.to_numpy()[np.tril_indices(len(matrix.n), -1)] == "point-biserial"
    kinds = "Spearman" + (", † point-biserial" if biserial.any() else "")
    return f"{kinds}; n = {low}" + (f" to {high}" if high > low else "")


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
