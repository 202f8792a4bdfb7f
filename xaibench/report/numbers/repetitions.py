"""Reproducibility: variance components of the scores, and stability of the methods' ranking."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.read.results import RunResults
from xaibench.statistics.variance_sources import variance_components

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
    found = []
    for cell in cell_matrices(run):
        if cell.drawn.level != "samples":
            methods = [m for m, name in enumerate(cell.methods) if not run.explainers[name].control]
            leading = [k for k, name in enumerate(cell.metrics) if name in run.leading]
            found += [_metric_reproducibility(cell, k, methods) for k in leading] if methods else []
    return found


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
    counts = np.array([(~np.isnan(part)).sum(axis=0) for part in rows])
    sums = np.array([np.nansum(part, axis=0) for part in rows])
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _taus(means: Floats) -> list[float]:
    """Return Kendall's tau-b of every two rows."""
    from scipy.stats import kendalltau

    if means.shape[1] < 3:
        return []
    found = (float(kendalltau(one, other).statistic) for one, other in itertools.combinations(means, 2))
    return [tau for tau in found if not np.isnan(tau)]


def first_places(boards: Boards) -> dict[str, list[tuple[str, float]]]:
    """Estimate how often each method would rank first over all cells if the run were repeated.

    Methods are ranked by their mean over the cells. Methods without a score in some cell are left out.

    Args:
        boards: The leaderboards of the run.

    Returns:
        For each metric with a single ranking, the methods that rank first in some repetition with their share of the
        repetitions, the largest first. Ties share a repetition.
    """
    standings = boards.standings
    control = np.array([standings.run.explainers[name].control for name in standings.explainers], dtype=bool)
    directions = standings.run.metrics
    found = {}
    for metric in standings.leading:
        if metric in standings.run.unsettled:
            continue
        k = standings.metrics.index(metric)
        means = boards.means[:, :, k]  # [R, C, M]
        placed = ~control & ~np.isnan(means).any(axis=(0, 1))
        if placed.any():
            sign = -1.0 if directions[metric].higher_is_better else 1.0
            losses = sign * means[:, :, placed].mean(axis=1)
            firsts = losses == losses.min(axis=1, keepdims=True)
            shares = (firsts / firsts.sum(axis=1, keepdims=True)).mean(axis=0)
            found[metric] = _sort_by_share(np.array(standings.explainers)[placed], shares)
    return found


def _sort_by_share(names: Iterable[str], shares: Floats) -> list[tuple[str, float]]:
    kept = [(str(name), float(share)) for name, share in zip(names, shares, strict=True) if share >= MIN_SHARE]
    return sorted(kept, key=lambda one: -one[1])
