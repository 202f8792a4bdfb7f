"""Line plots: insertion and deletion curves, and scores against the number of passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.plots.figures import THEME, house_style, shorten_label

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
    x, y = (np.asarray(one.cpu() if hasattr(one, "cpu") else one, dtype=np.float64) for one in (fractions, values))
    if x.ndim != 1 or y.ndim != 2 or len(x) != y.shape[1] or len(x) == 0:
        raise ValueError(f"{label}: curves must be (fractions [P], values [N, P]), got {x.shape} and {y.shape}.")
    return x, y[~np.isnan(y).any(axis=1)]


if TYPE_CHECKING:
    import pandas as pd

#: Panels per row; in inches: panel size, gaps between panels, margins left and below.
_COLUMNS, _PANEL, _GAP, _MARGIN = 5, (1.75, 1.12), (0.2, 0.36), (0.6, 0.55)


def budget(
    scores: pd.DataFrame,
    *,
    fixed: Sequence[tuple[int | None, float]] = (),
    control: float | None = None,
    label: str = "score",
) -> Figure:
    """Draw scores against the number of passes: one panel per method, with common axes.

    Each panel shows the method's means with a band of their intervals, in front of the other methods'.

    Args:
        scores: One row per method and number of passes, with the columns ``method``, ``passes``, ``mean``, ``low`` and
            ``high``.
        fixed: Number of passes and mean of each method whose cost cannot be chosen, drawn as dots; None for an unknown
            number, which is not drawn.
        control: Score of the best control, drawn as a dashed line.
        label: Label of the scores.

    Returns:
        The figure; :func:`xaibench.plots.save` writes it to a file. The numbers in a panel are the method's scores at
        the fewest and the most passes.

    Raises:
        ValueError: If there are no scores.

    Example:
        >>> import pandas as pd
        >>> scores = pd.DataFrame({"method": "RISE", "passes": [100, 1000], "mean": [0.4, 0.6],
        ...                        "low": [0.3, 0.5], "high": [0.5, 0.7]})
        >>> [text.get_text() for text in budget(scores, control=0.2).axes[0].texts]
        ['0.40 → 0.60']
    """
    if scores.empty:
        raise ValueError("scores: got no row, expected at least one method with a number of passes.")
    lines = {str(name): rows.sort_values("passes") for name, rows in scores.groupby("method", sort=False)}
    dots = [(passes, mean) for passes, mean in fixed if passes]
    bars = [] if control is None else [control]
    ends = [end for name in ("low", "high", "mean") for end in scores[name].tolist() if not math.isnan(end)]
    ends += bars + [mean for _, mean in fixed]
    room = 0.05 * (max(ends) - min(ends) or 1.0)
    with house_style():
        figure, panels = make_panels([shorten_label(name) for name in lines], "passes per image", label)
        for axes, name in zip(panels, lines, strict=True):
            for other in lines:
                if other != name:
                    axes.plot(lines[other]["passes"], lines[other]["mean"], color=THEME["line"], lw=0.8)
            axes.plot([x for x, _ in dots], [y for _, y in dots], ".", color=THEME["soft"], ms=3)
            for bar in bars:
                axes.axhline(bar, color=THEME["soft"], lw=0.9, ls=(0, (4, 2)))
            _set_axes(axes, scores["passes"].tolist(), [passes for passes, _ in dots])
            axes.set(ylim=(min(ends) - room, max(ends) + room))
            _draw_line(axes, lines[name])
    return figure


def make_panels(
    titles: Sequence[str], xlabel: str, ylabel: str, is_italic: Sequence[bool] = (), most: int = _COLUMNS
) -> tuple[Figure, list[Any]]:
    """Return a figure with one panel per title, ``most`` per row; tick labels are at its left and lower edge."""
    columns = min(most, len(titles))
    rows = -(-len(titles) // columns)
    width = _MARGIN[0] + columns * (_PANEL[0] + _GAP[0])
    height = _MARGIN[1] + rows * (_PANEL[1] + _GAP[1])
    figure, panels = Figure(figsize=(width, height)), []
    for number, title in enumerate(titles):
        row, column = divmod(number, columns)
        left = _MARGIN[0] + column * (_PANEL[0] + _GAP[0])
        bottom = height - (row + 1) * (_PANEL[1] + _GAP[1])
        axes = figure.add_axes((left / width, bottom / height, _PANEL[0] / width, _PANEL[1] / height))
        axes.grid(color=THEME["line"], lw=0.5)
        axes.tick_params(length=0, labelcolor=THEME["soft"])
        axes.tick_params(labelleft=column == 0, labelbottom=number + columns >= len(titles))
        axes.spines[:].set_visible(False)
        style = "italic" if is_italic and is_italic[number] else "normal"
        axes.set_title(title, loc="left", color=THEME["ink"], style=style, fontsize=8.5, pad=4)
        panels.append(axes)
    figure.text(_MARGIN[0] / width, 0.06 / height, xlabel, color=THEME["soft"])
    middle = (_MARGIN[1] + (height - _MARGIN[1]) / 2) / height
    figure.text(0.06 / width, middle, ylabel, rotation=90, va="center", color=THEME["soft"])
    return figure, panels


def _draw_line(axes: Any, own: pd.DataFrame) -> None:
    """Draw a method with its band, and its first and last number in the half where the line does not end."""
    color = THEME["series-1"]
    x, means, lows, highs = (own[name].tolist() for name in ("passes", "mean", "low", "high"))
    if len(x) > 1:
        axes.fill_between(x, lows, highs, color=color, alpha=0.18, lw=0)
    else:  # the band of a single point would be invisible
        axes.vlines(x, lows, highs, color=color, alpha=0.18, lw=6)
    axes.plot(x, means, ".-", color=color, lw=1.6, ms=5)
    text = f"{means[0]:.2f} → {means[-1]:.2f}" if len(means) > 1 else f"{means[0]:.2f}"
    y, side = (0.95, "top") if means[-1] < sum(axes.get_ylim()) / 2 else (0.05, "bottom")
    axes.text(0.97, y, text, color=THEME["soft"], fontsize=7.5, transform=axes.transAxes, va=side, ha="right")


def _set_axes(axes: Any, budgets: Sequence[int], others: Sequence[int]) -> None:
    first, last = min(budgets), max(budgets)
    axes.set_xscale("log")
    axes.set(xlim=(min([first, *others]) / 1.5, last * 1.5))
    axes.set_xticks([10**power for power in range(math.ceil(math.log10(first)), math.floor(math.log10(last)) + 1)])
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
    axes.minorticks_off()
