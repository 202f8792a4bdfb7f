"""Rankings of the methods over all cells, and their stability when a run is repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.numbers.leaderboards import Boards, CellTests, Standings
from xaibench.report.results import RunResults
from xaibench.statistics.nested_draws import variance_components
from xaibench.statistics.rank_tests import ALPHA


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
    """Rank the explainers by each leading metric with paired tests.

    Args:
        boards: The leaderboards by kind of truth.

    Returns:
        Metric to ranking; only of metrics with scores of three or more explainers.
    """
    by_metric = {}
    for board in boards.values():
        standings = board.standings
        for metric in standings.leading:
            has_scores = not np.isnan(standings.numbers["rank"][:, standings.metrics.index(metric)]).all()
            if metric in standings.tests and has_scores:
                ranking = _rank(standings, metric)
                if len(ranking.means) > 2:
                    by_metric[metric] = ranking
    return by_metric


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
    placed: NDArray[np.bool_] = ~np.isnan(standings.columns(cells, k)["place"])
    ranked = [standings.explainers[m] for m in np.flatnonzero(placed)]
    return standings.test_pairs(metric, there, ranked, intervals=True)


def overall_comparisons(boards: Mapping[str, Boards]) -> pd.DataFrame:
    """Return the tests of every two methods over all cells that both have, by each leading metric.

    Returns:
        The rows of :meth:`.CellTests.over` with the column ``metric``. Pairs that lack a cell are corrected with the
        other pairs of the same cells.
    """
    tables = []
    for board in boards.values():
        for metric in board.standings.leading:
            if metric in board.standings.tests:
                whole = tests_over_cells(board.standings, metric)
                partial = _tests_over_common_cells(board.standings.tests[metric], whole)
                tables += [rows.assign(metric=metric) for rows in (whole, *partial)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["metric", "first", "second"])


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
    groups: list[tuple[str, ...]] = []
    reached = 0
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not differs[start : end + 1, start : end + 1].any():
            end += 1
        if end - start > 1 and end > reached:
            groups.append(tuple(names[start:end]))
        reached = max(reached, end)
    return tuple(groups)


#: Smallest share of repetitions that is reported.
MIN_SHARE = 0.005


@dataclass(frozen=True)
class Reproducibility:
    """Variance components and ranking stability of one cell and metric, over its methods (without controls).

    Attributes:
        cell: Subset, variant and model.
        metric: Name.
        shares: Shares of a score's variance between data sets, between trainings, between samples, and the residual;
            mean over the methods. The share of a level that was not repeated is 0.
        tau: Kendall's tau of the methods' mean scores between two trainings: median, smallest and largest over all
            pairs of trainings. NaN if fewer than three methods have scores for all trainings.
        trainings: Number of trainings over all data sets.
    """

    cell: tuple[str, str, str]
    metric: str
    shares: tuple[float, float, float, float]
    tau: tuple[float, float, float]
    trainings: int


def reproducibility(run: RunResults) -> list[Reproducibility]:
    """Compute the reproducibility of each cell with several trainings, metric by metric.

    Args:
        run: The run.

    Returns:
        One entry per cell and metric, in the order of the cells; empty if each network was trained once.
    """
    rows = []
    for cell in cell_matrices(run):
        if cell.drawn.level != "samples":
            methods = [m for m, name in enumerate(cell.methods) if not run.explainers[name].control]
            leading = [k for k, name in enumerate(cell.metrics) if name in run.leading]
            rows += [_metric_reproducibility(cell, k, methods) for k in leading] if methods else []
    return rows


def _metric_reproducibility(cell: Matrices, metric: int, methods: list[int]) -> Reproducibility:
    values = cell.values[:, metric][:, methods]
    shares = variance_components(values, cell.drawn).shares()
    known = shares[:, ~np.isnan(shares).any(axis=0)]
    mean = known.mean(axis=1) if known.size else np.full(4, np.nan)
    means = _means_of_trainings(cell, values)
    taus = _taus(means[:, ~np.isnan(means).any(axis=0)])
    between = (float(np.median(taus)), min(taus), max(taus)) if taus else (np.nan,) * 3
    first, second, third, fourth = (float(share) for share in mean)
    return Reproducibility(cell.cell, cell.metrics[metric], (first, second, third, fourth), between, len(means))


def _means_of_trainings(cell: Matrices, values: Floats) -> Floats:
    """Return ``[T, M]``, the mean score of each training of each data set."""
    drawn = cell.drawn
    places = sorted(set(zip(drawn.data_sets.tolist(), drawn.trainings.tolist(), strict=True)))
    rows = [values[(drawn.data_sets == data_set) & (drawn.trainings == training)] for data_set, training in places]
    counts = np.array([(~np.isnan(scores)).sum(axis=0) for scores in rows])
    sums = np.array([np.nansum(scores, axis=0) for scores in rows])
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _taus(means: Floats) -> list[float]:
    """Return Kendall's tau-b of every two rows."""
    from scipy.stats import kendalltau

    if means.shape[1] < 3:
        return []
    taus = (float(kendalltau(one, other).statistic) for one, other in itertools.combinations(means, 2))
    return [tau for tau in taus if not np.isnan(tau)]


def first_places(boards: Boards) -> dict[str, list[tuple[str, float]]]:
    """Estimate how often each method would rank first over all cells if the run were repeated.

    Methods are ranked by their mean over the cells. Methods without a score in some cell are left out.

    Args:
        boards: The leaderboards of the run.

    Returns:
        For each leading metric, the methods that rank first in some repetition with their share of the
        repetitions, the largest first. Ties share a repetition.
    """
    standings = boards.standings
    control = np.array([standings.run.explainers[name].control for name in standings.explainers], dtype=bool)
    directions = standings.run.metrics
    firsts_of = {}
    for metric in standings.leading:
        k = standings.metrics.index(metric)
        means = boards.means[:, :, k]  # [R, C, M]
        placed = ~control & ~np.isnan(means).any(axis=(0, 1))
        if placed.any():
            sign = -1.0 if directions[metric].higher_is_better else 1.0
            losses = sign * means[:, :, placed].mean(axis=1)
            firsts = losses == losses.min(axis=1, keepdims=True)
            shares = (firsts / firsts.sum(axis=1, keepdims=True)).mean(axis=0)
            listed = zip(np.array(standings.explainers)[placed].tolist(), shares.tolist(), strict=True)
            firsts_of[metric] = sorted((pair for pair in listed if pair[1] >= MIN_SHARE), key=lambda pair: -pair[1])
    return firsts_of
