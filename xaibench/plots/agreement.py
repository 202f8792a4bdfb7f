"""Matrix of the correlations between metrics (Zhang et al. 2023, Table 4)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from xaibench.core.correlations import MetricAgreement
from xaibench.plots.figures import THEME, house_style

#: Inches: cell, character of a label, outer margin, height of the note below.
_CELL, _CHARACTER, _MARGIN, _FOOT = 0.62, 0.075, 0.15, 0.42
#: Opacity of a coefficient of one; the number on it stays readable in the light and the dark theme.
_STRONGEST = 0.65


def agreement(matrix: MetricAgreement, labels: dict[str, str] | None = None) -> Figure:
    """Draw the lower triangle of the correlations between metrics.

    Blue means agreement (both metrics prefer the same maps), orange disagreement; stronger colors mean larger
    correlations. A dagger marks point-biserial coefficients, a dash undefined ones. The number of samples is printed
    below.

    Args:
        matrix: From :func:`xaibench.metrics.agreement`.
        labels: Labels of the metrics in the figure; by default their names in the matrix.

    Returns:
        The figure; :func:`xaibench.plots.save` writes it to a file.

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


def _sample_note(matrix: MetricAgreement) -> str:
    counts = matrix.n.to_numpy()[np.tril_indices(len(matrix.n), -1)]
    low, high = counts.min(), counts.max()
    biserial = matrix.kind.to_numpy()[np.tril_indices(len(matrix.n), -1)] == "point-biserial"
    kinds = "Spearman" + (", † point-biserial" if biserial.any() else "")
    return f"{kinds}; n = {low}" + (f" to {high}" if high > low else "")
