"""Figures for papers and slides, in one style: matplotlib figures without a window.

The report page, the audit sheet and the documentation draw with the same functions.

Example:
    >>> import xaibench as xb
    >>> figure = xb.plots.forest(scores)  # doctest: +SKIP
    >>> xb.plots.save(figure, "forest")  # writes forest.svg and forest.png  # doctest: +SKIP
"""

from xaibench.plots.agreement import agreement
from xaibench.plots.curves import budget, curves
from xaibench.plots.figures import save
from xaibench.plots.forest import forest
from xaibench.plots.maps import show

__all__ = ["agreement", "budget", "curves", "forest", "save", "show"]
