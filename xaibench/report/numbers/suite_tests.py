"""Paired tests of methods over all cells of a suite, and ranks as far as they are significant.

The tested quantity is the mean over the cells, which are taken as fixed. The mean difference of each cell, its variance
and degrees of freedom come from the paired tests of the cell (:mod:`xaibench.report.numbers.pair_testing`). Subsets
and variants have independent data, so their variances add. The networks of one subset and variant see the same
images; the correlation of their differences is unknown and assumed to be one, which makes the tests conservative.
Degrees of freedom of the sum: Satterthwaite, Biometrics Bulletin 1946. They are too large if one cell dominates the sum
and its variance is small by chance. Therefore they are limited by the degrees of freedom of the mean variances over all
pairs, which show a dominating cell reliably.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import CELL
from xaibench.statistics import holm
from xaibench.statistics.multiple_tests import ALPHA
from xaibench.statistics.nested_draws import two_sided_p_values

_PAIR = ["first", "second"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellTests:
    """Paired tests of one metric in every cell, as arrays; ``nan`` for a pair without a test.

    Attributes:
        cells: ``[C]`` subset, variant and model.
        pairs: ``[P]`` first and second method.
        difference: ``[C, P]`` mean of first minus second.
        deviation: ``[C, P]`` standard deviation of that mean.
        df: ``[C, P]`` degrees of freedom of its variance.
        groups: ``[C, P]`` number of groups of samples.
    """

    cells: tuple[tuple[str, str, str], ...]
    pairs: tuple[tuple[str, str], ...]
    difference: Floats
    deviation: Floats
    df: Floats
    groups: Floats

    @classmethod
    def read(cls, pairs: pd.DataFrame, metric: str) -> CellTests:
        """Take the tests of a metric from :data:`~xaibench.runfolder.tables.COMPARISONS`."""
        from scipy.stats import t

        mine = pairs[pairs["metric"].astype(str) == metric].astype(dict.fromkeys(CELL, str))
        columns = ("difference", "low", "df", "n_groups")
        tables = [mine.pivot(index=list(CELL), columns=_PAIR, values=name) for name in columns]
        difference, low, df, groups = (table.to_numpy(dtype=np.float64) for table in tables)
        with np.errstate(invalid="ignore"):
            deviation = (difference - low) / t.ppf(0.975, df)
        methods: list[Any] = tables[0].columns.to_list()  # tuples, from two levels of the columns
        return cls(tuple(tables[0].index.to_list()), tuple(methods), difference, deviation, df, groups)

    def cells_of(self, first: str, second: str) -> list[tuple[str, str, str]]:
        """Return the cells in which two methods were tested against each other."""
        columns = [i for i, pair in enumerate(self.pairs) if set(pair) == {first, second}]
        tested: NDArray[np.bool_] = np.any(~np.isnan(self.deviation[:, columns]), axis=1)
        return [cell for cell, is_tested in zip(self.cells, tested, strict=True) if is_tested]

    def over(
        self,
        cells: Collection[tuple[str, str, str]] | None = None,
        pairs: Collection[tuple[str, str]] | None = None,
    ) -> pd.DataFrame:
        """Test pairs of methods over cells.

        Args:
            cells: Cells to test over; None = all.
            pairs: Pairs to test, in either order, which are one family; None = all.

        Returns:
            One row per pair: ``first``, ``second``; ``difference``, the mean over the cells of first minus second;
            ``low`` and ``high``, its 95 % interval; ``df``, the degrees of freedom; ``p`` (of the sign test if no
            difference varies in any cell); and ``p_holm``, Holm-corrected for all rows. Pairs without a test in some
            cell are left out.
        """
        from scipy.stats import t

        found = self.test(cells, pairs)
        mean, half = found["difference"], t.ppf(0.975, found["df"]) * np.sqrt(found["variance"])
        names = [*_PAIR, "difference", "low", "high", "df", "p", "p_holm"]
        return pd.DataFrame(found | {"low": mean - half, "high": mean + half}, columns=names)

    def test(
        self,
        cells: Collection[tuple[str, str, str]] | None = None,
        pairs: Collection[tuple[str, str]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Run the tests of :meth:`over`, without intervals; much faster for the many selections of cells of a page.

        Returns:
            The columns of :meth:`over` except ``low`` and ``high``, and the ``variance`` of ``difference``.
        """
        wanted = None if pairs is None else {*pairs, *((second, first) for first, second in pairs)}
        rows = np.array([i for i, cell in enumerate(self.cells) if cells is None or cell in cells], dtype=np.int64)
        kept = np.array([wanted is None or pair in wanted for pair in self.pairs], dtype=bool)
        columns = np.flatnonzero(kept & ~np.isnan(self.deviation[rows]).any(axis=0)) if len(rows) else rows
        mean, variance, df = (np.zeros(0),) * 3
        if len(columns):
            difference, deviation, of_cells = (
                array[np.ix_(rows, columns)] for array in (self.difference, self.deviation, self.df)
            )
            places = [self.cells[i][:2] for i in rows]
            numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
            place_of = np.array([numbers[place] for place in places], dtype=np.int64)
            mean, variance, df = _over_cells(difference, deviation, of_cells, place_of)
        p = two_sided_p_values(mean, variance, df)
        groups = self.groups[np.ix_(rows, columns)].sum(axis=0)
        p = np.where((variance == 0) & (mean != 0), 2.0 ** (1 - groups), p)
        first, second = (np.array([self.pairs[i][side] for i in columns], dtype=object) for side in (0, 1))
        numbers_of = {"difference": mean, "variance": variance, "df": df, "p": p, "p_holm": holm(p)}
        return {"first": first, "second": second} | numbers_of


def pairs_over_cells(pairs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Test every two methods that were tested in each cell of a metric, over all its cells.

    Args:
        pairs: :data:`~xaibench.runfolder.tables.COMPARISONS` of a run.
        metric: One of its metrics.

    Returns:
        The rows of :meth:`CellTests.over`.
    """
    return CellTests.read(pairs, metric).over()


def _over_cells(
    difference: Floats, deviation: Floats, df: Floats, place_of: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Return mean, variance and degrees of freedom over the cells, from ``[cells, pairs]`` and their places."""
    count = int(place_of.max()) + 1
    deviations, least = np.zeros((count, deviation.shape[1])), np.full((count, deviation.shape[1]), np.inf)
    np.add.at(deviations, place_of, deviation / len(difference))
    np.minimum.at(least, place_of, df)
    variances = deviations**2
    pooled = variances.mean(axis=1, keepdims=True)
    total_df = np.minimum(_satterthwaite(variances, least), _satterthwaite(pooled, least.min(axis=1, keepdims=True)))
    return difference.mean(axis=0), variances.sum(axis=0), total_df


def _satterthwaite(variances: Floats, df: Floats) -> Floats:
    """Return the degrees of freedom of sums of independent variances ``[places, pairs]``; infinite for sums of 0."""
    total, spread = variances.sum(axis=0), (variances**2 / df).sum(axis=0)
    found: Floats = np.divide(total**2, spread, out=np.full(len(total), np.inf), where=spread > 0)
    return found


def rank_intervals(
    names: Sequence[str], tests: Mapping[str, Any] | pd.DataFrame, *, higher_is_better: bool
) -> Mapping[str, tuple[int, int]]:
    """Return the ranks that each method may have, given which differences are significant.

    Args:
        names: Methods to rank.
        tests: Tests of their pairs, from :meth:`CellTests.over` or :meth:`CellTests.test`; other pairs are ignored.
        higher_is_better: Whether higher scores are better.

    Returns:
        Method to first and last rank: one plus the number of significantly better methods, and the number of methods
        minus the number of significantly worse ones.

    Example:
        >>> tests = pd.DataFrame({"first": ["a", "a", "b"], "second": ["b", "c", "c"],
        ...                       "difference": [0.1, 0.3, 0.2], "p_holm": [0.2, 0.01, 0.04]})
        >>> rank_intervals(["a", "b", "c"], tests, higher_is_better=True)
        {'a': (1, 2), 'b': (1, 2), 'c': (3, 3)}
    """
    better, worse = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for first, second, difference, p in zip(*(tests[name] for name in (*_PAIR, "difference", "p_holm")), strict=True):
        if p < ALPHA and first in better and second in better:
            ahead, behind = (first, second) if (difference > 0) == higher_is_better else (second, first)
            better[ahead] += 1
            worse[behind] += 1
    return {name: (1 + worse[name], len(names) - better[name]) for name in names}
