"""Are two methods told apart over all cells of a suite? Paired tests of the mean over the cells, which stay the same.

The mean difference of a cell, its variance over what was drawn and the degrees of freedom of that come from the paired
tests of the cell (:mod:`xaibench.report.numbers.pair_testing`). Scenarios and backgrounds have data of their own, so
that their variances add up. The networks of one of them see the same images: how much their differences vary together
is not known, so it is taken to be the most that it can be, and a test errs on the side of *not told apart*. Degrees of
freedom of the sum: Satterthwaite, Biometrics Bulletin 1946.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import CELL
from xaibench.statistics import holm
from xaibench.statistics.nested_draws import two_sided

_PAIR = ["first", "second"]
Floats = NDArray[np.float64]


def pairs_over_cells(pairs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Every two methods that were tested in each cell of a metric, over its cells.

    Args:
        pairs: :data:`~xaibench.runfolder.tables.COMPARISONS` of a run.
        metric: One of its metrics.

    Returns:
        A row a pair: ``first``, ``second``; ``difference``, the mean over the cells of first minus second; ``freedom``,
        degrees of freedom; ``p``; and ``p_holm``, after Holm's correction for all pairs of the metric. A pair that some
        cell has no test of is left out.
    """
    mine = pairs[pairs["metric"].astype(str) == metric]
    if mine.empty:
        return pd.DataFrame(columns=[*_PAIR, "difference", "freedom", "p", "p_holm"])
    cells = mine.groupby(list(CELL), observed=True, sort=False).ngroup()
    places = mine.groupby(list(CELL[:2]), observed=True, sort=False).ngroup()
    place_of = np.asarray(places.groupby(cells).first().sort_index(), dtype=np.int64)
    tables = {
        name: mine.assign(cell=cells).pivot(index="cell", columns=_PAIR, values=name).sort_index()
        for name in ("difference", "low", "high", "freedom")
    }
    whole = ~np.isnan(tables["low"].to_numpy(float)).any(axis=0)
    difference, low, high, freedom = (np.asarray(table, dtype=np.float64)[:, whole] for table in tables.values())
    mean, variance, sure = _over_cells(difference, (high - low) / 2, freedom, place_of)
    p = two_sided(mean, variance, sure)
    found = {"difference": mean, "freedom": sure, "p": p, "p_holm": holm(p)}
    return pd.DataFrame(found, index=tables["low"].columns[whole]).reset_index()


def _over_cells(
    difference: Floats, half: Floats, freedom: Floats, place_of: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Mean over the cells, its variance, and degrees of freedom; from ``[cells, pairs]`` and their places."""
    from scipy.stats import t

    with np.errstate(invalid="ignore"):
        own = half / t.ppf(0.975, freedom) / len(difference)
    count = int(place_of.max()) + 1
    together, unsure = np.zeros((2, count, difference.shape[1]))
    np.add.at(together, place_of, own)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.add.at(unsure, place_of, np.where(own > 0, own**2 / freedom, 0.0))
        variance, spread = (together**2).sum(axis=0), (together**2 * unsure).sum(axis=0)
        sure = np.where(spread > 0, variance**2 / spread, np.inf)
    return difference.mean(axis=0), variance, sure
