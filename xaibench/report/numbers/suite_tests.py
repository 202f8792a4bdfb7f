"""Paired tests of methods over all cells of a suite.

The tested quantity is the mean over the cells, which are taken as fixed. The mean difference of each cell, its variance
and degrees of freedom come from the paired tests of the cell (:mod:`xaibench.report.numbers.pair_testing`). Subsets
and variants have independent data, so their variances add. The networks of one subset and variant see the same
images; the correlation of their differences is unknown and assumed to be one, which makes the tests conservative.
Degrees of freedom of the sum: Satterthwaite, Biometrics Bulletin 1946. They are too large if one cell dominates the sum
and its variance is small by chance. Therefore they are at most those of the mean variances over all pairs, which show a
dominating cell reliably.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import CELL
from xaibench.statistics import holm
from xaibench.statistics.nested_draws import two_sided_p_values

_PAIR = ["first", "second"]
Floats = NDArray[np.float64]


def pairs_over_cells(pairs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Test every two methods that were tested in each cell of a metric, over all its cells.

    Args:
        pairs: :data:`~xaibench.runfolder.tables.COMPARISONS` of a run.
        metric: One of its metrics.

    Returns:
        One row per pair: ``first``, ``second``; ``difference``, the mean over the cells of first minus second;
        ``df``, the degrees of freedom; ``p``; and ``p_holm``, Holm-corrected for all pairs of the metric. Pairs
        without a test in some cell are left out.
    """
    mine = pairs[pairs["metric"].astype(str) == metric]
    if mine.empty:
        return pd.DataFrame(columns=[*_PAIR, "difference", "df", "p", "p_holm"])
    cells = mine.groupby(list(CELL), observed=True, sort=False).ngroup()
    places = mine.groupby(list(CELL[:2]), observed=True, sort=False).ngroup()
    place_of = np.asarray(places.groupby(cells).first().sort_index(), dtype=np.int64)
    tables = {
        name: mine.assign(cell=cells).pivot(index="cell", columns=_PAIR, values=name).sort_index()
        for name in ("difference", "low", "high", "df")
    }
    whole = ~np.isnan(tables["low"].to_numpy(float)).any(axis=0)
    difference, low, high, df = (np.asarray(table, dtype=np.float64)[:, whole] for table in tables.values())
    mean, variance, total_df = _over_cells(difference, (high - low) / 2, df, place_of)
    p = two_sided_p_values(mean, variance, total_df)
    found = {"difference": mean, "df": total_df, "p": p, "p_holm": holm(p)}
    return pd.DataFrame(found, index=tables["low"].columns[whole]).reset_index()


def _over_cells(
    difference: Floats, half: Floats, df: Floats, place_of: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Return mean, variance and degrees of freedom over the cells, from ``[cells, pairs]`` and their places."""
    from scipy.stats import t

    with np.errstate(invalid="ignore"):
        own = half / t.ppf(0.975, df) / len(difference)
    count = int(place_of.max()) + 1
    deviations, least = np.zeros((count, own.shape[1])), np.full((count, own.shape[1]), np.inf)
    np.add.at(deviations, place_of, own)
    np.minimum.at(least, place_of, df)
    variances = deviations**2
    pooled = variances.mean(axis=1, keepdims=True)
    total_df = np.minimum(_satterthwaite(variances, least), _satterthwaite(pooled, least.min(axis=1, keepdims=True)))
    return difference.mean(axis=0), variances.sum(axis=0), total_df


def _satterthwaite(variances: Floats, df: Floats) -> Floats:
    """Return the degrees of freedom of sums of independent variances ``[places, pairs]``; infinite for sums of 0."""
    total, spread = variances.sum(axis=0), (variances**2 / df).sum(axis=0)
    df: Floats = np.divide(total**2, spread, out=np.full(len(total), np.inf), where=spread > 0)
    return df
