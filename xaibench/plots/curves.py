"""Insertion and deletion curves of several methods in one panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.plots.figure_style import THEME, house_style

_COLORS = [THEME[f"series-{i}"] for i in range(1, 5)]
# Four colors of the theme, then the same four dashed and dotted.
_DASHES = ["-", "--", ":", "-."]


def curves(
    lines: Mapping[str, tuple[Any, Any]], *, ylabel: str = "score of the target", xlabel: str = "share of the pixels"
) -> Figure:
    """Draw the curves that metrics return with ``return_curves=True``.

    Each line is the mean over the samples with a defined curve; the band is their interquartile range. The legend
    states the area under the mean and the number of samples.

    Args:
        lines: ``{label: (fractions [P], values [N, P])}``, numpy or torch.
        ylabel: Label of the measured quantity.
        xlabel: Label of the fractions.

    Returns:
        The figure; :func:`xaibench.plots.save` writes it to a file.

    Raises:
        ValueError: If there is no curve, or the shapes do not match.

    Example:
        >>> figure = curves({"Saliency": (np.linspace(0, 1, 3), np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.2]]))})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'Saliency: 0.575 (n=2)'
    """
    if not lines:
        raise ValueError("Expected at least one label with its curves, got none.")
    with house_style():
        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for index, (label, (fractions, values)) in enumerate(lines.items()):
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
