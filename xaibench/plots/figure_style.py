"""Colors and settings of all figures, for matplotlib's object interface (no pyplot, no global state)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Colors of the light theme by role. Series colors are from the color-blind safe palette of Okabe and Ito.
THEME = {
    "ink": "#1b2330",
    "soft": "#5b6675",
    "line": "#d5dae1",
    "band": "#f3f5f8",
    "paper": "#fffffe",
    "series-1": "#0072b2",
    "series-2": "#d55e00",
    "series-3": "#009e73",
    "series-4": "#cc79a7",
}
#: Font size in points.
FONT = 8.5


@contextmanager
def house_style() -> Iterator[None]:
    """Use matplotlib's defaults with the library's settings, regardless of the user's configuration.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed; the message says how to install it.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Figures need matplotlib: pip install matplotlib.", name=error.name) from error
    defaults: dict[str, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
    ours: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "xaibench",
        "font.size": FONT,
        "axes.linewidth": 0.6,
        "axes.facecolor": "none",
        "figure.facecolor": THEME["paper"],
        "savefig.facecolor": THEME["paper"],
        # Labels are names, not formulas: dollar signs are printed.
        "text.parse_math": False,
    }
    settings: Any = defaults | ours
    with matplotlib.rc_context(settings):
        yield
