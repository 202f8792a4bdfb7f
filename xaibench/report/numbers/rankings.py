"""Means over all cells, with the groups of methods that do not differ significantly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.leaderboards import Boards, Standings
from xaibench.report.numbers.suite_tests import CellTests
from xaibench.statistics.multiple_tests import ALPHA


@dataclass(frozen=True)
class Ranking:
    """The explainers' means by one metric.

    Attributes:
        metric: Name of the metric.
        means: Explainer to the mean over the cells of the cell's mean, best first.
        cells: Number of cells.
        groups: Maximal runs of neighbors of which no two differ significantly, of two or more. Pairs of ranked methods
            are the family of tests from which the places follow, all other pairs are corrected with all pairs.
        left_out: Explainers without a score in some cell, or that are the answer by construction in one.
    """

    metric: str
    means: dict[str, float]
    cells: int
    groups: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...]


def rankings(boards: Mapping[str, Boards]) -> dict[str, Ranking]:
    """Rank the explainers by each leading metric with paired tests; see :attr:`.RunResults.unsettled` for exceptions.

    Args:
        boards: The leaderboards by kind of truth.

    Returns:
        Metric to ranking; only of metrics with three or more explainers.
    """
    found = {}
    for board in boards.values():
        standings = board.standings
        for metric in standings.leading:
            if metric in standings.tests and metric not in standings.run.unsettled:
                ranking = _rank(standings, metric)
                if len(ranking.means) > 2:
                    found[metric] = ranking
    return found


def _rank(standings: Standings, metric: str) -> Ranking:
    k = standings.metrics.index(metric)
    mean, ranked = standings.numbers["mean"][:, k], ~np.isnan(standings.numbers["rank"][:, k])
    cells = np.flatnonzero(np.any(ranked, axis=1))
    whole: NDArray[np.bool_] = np.all(ranked[cells], axis=0)
    means = mean[cells].mean(axis=0)
    order = np.argsort(means if not standings.run.metrics[metric].higher_is_better else -means, kind="stable")
    names = [standings.explainers[m] for m in order if whole[m]]
    tests = tests_over_cells(standings, metric)
    return Ranking(
        metric=metric,
        means={standings.explainers[m]: float(means[m]) for m in order if whole[m]},
        cells=len(cells),
        groups=_groups(names, tests),
        left_out=tuple(name for m, name in enumerate(standings.explainers) if not whole[m] and ranked[:, m].any()),
    )


def tests_over_cells(standings: Standings, metric: str) -> pd.DataFrame:
    """Test every two methods over all cells that have scores of a metric.

    Pairs of ranked methods are the family from which their places follow; all other pairs are corrected with all pairs.

    Returns:
        The rows of :meth:`.CellTests.over`.
    """
    k = standings.metrics.index(metric)
    cells = np.flatnonzero(np.any(~np.isnan(standings.numbers["rank"][:, k]), axis=1)).tolist()
    there = [standings.cells[c] for c in cells]
    every = standings.tests[metric].over(there)
    placed: NDArray[np.bool_] = ~np.isnan(standings.columns(cells, k)["place"])
    ranked = [standings.explainers[m] for m in np.flatnonzero(placed)]
    among_ranked = standings.tests[metric].over(there, list(itertools.combinations(ranked, 2)))
    is_other = ~(every["first"].isin(ranked) & every["second"].isin(ranked))
    return pd.concat([every[is_other], among_ranked], ignore_index=True)


def overall_comparisons(boards: Mapping[str, Boards]) -> pd.DataFrame:
    """Return the tests of every two methods over all cells that both have, by each leading metric.

    Returns:
        The rows of :meth:`.CellTests.over` with the column ``metric``. Pairs that lack a cell are corrected with the
        other pairs of the same cells.
    """
    found = []
    for board in boards.values():
        for metric in board.standings.leading:
            if metric in board.standings.tests:
                whole = tests_over_cells(board.standings, metric)
                partial = _tests_over_common_cells(board.standings.tests[metric], whole)
                found += [rows.assign(metric=metric) for rows in (whole, *partial)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["metric", "first", "second"])


def _tests_over_common_cells(tests: CellTests, whole: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the tests of pairs that are not in ``whole``, because one of the methods has no score in some cell."""
    done = set(zip(whole["first"], whole["second"], strict=True))
    tested = ~np.isnan(tests.deviation)
    by_cells: dict[tuple[bool, ...], list[tuple[str, str]]] = {}
    for pair, known in zip(tests.pairs, tested.T.tolist(), strict=True):
        if pair not in done and any(known):
            by_cells.setdefault(tuple(known), []).append(pair)
    for known, pairs in by_cells.items():
        yield tests.over([cell for cell, there in zip(tests.cells, known, strict=True) if there], pairs)


def _groups(names: list[str], tests: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    """Return the maximal runs of neighbors without a significant difference. Pairs without a test do not differ."""
    number = {name: i for i, name in enumerate(names)}
    differs = np.zeros((len(names), len(names)), dtype=bool)
    for first, second, p in tests[["first", "second", "p_holm"]].itertuples(index=False, name=None):
        if p < ALPHA and first in number and second in number:
            differs[number[first], number[second]] = differs[number[second], number[first]] = True
    found: list[tuple[str, ...]] = []
    reached = 0
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not differs[start : end + 1, start : end + 1].any():
            end += 1
        if end - start > 1 and end > reached:
            found.append(tuple(names[start:end]))
        reached = max(reached, end)
    return tuple(found)
