"""Leaderboards over all cells, and over every selection of cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from xaibench.report.numbers.inference import Matrices, cell_matrices, resampled_means
from xaibench.report.read.results import RunResults, place
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import ALPHA

Floats = NDArray[np.float64]
#: Resamples of the means over several cells.
RESAMPLES = 1000
#: Indices of the selected subset, variant and model in the run's order; None selects all.
Choice = tuple[int | None, int | None, int | None]
#: Columns of the summary that leaderboards use; the last four only exist after inference.
_NUMBERS = ("rank", "median", "mean", "above_controls", "sample_rank", "beats_controls", "low", "high")


@dataclass(frozen=True)
class Standings:
    """The summary as arrays, from which leaderboards of any selection of cells are computed quickly.

    Attributes:
        run: The run.
        truth: The kind of truth of the metrics (:attr:`.RunResults.truths`).
        cells: ``[C]`` subset, variant and model.
        explainers: ``[M]`` names.
        metrics: ``[K]`` names.
        numbers: Column of the summary to ``[C, K, M]``; NaN if missing, and for scores without a rank.
    """

    run: RunResults
    truth: str
    cells: tuple[tuple[str, str, str], ...]
    explainers: tuple[str, ...]
    metrics: tuple[str, ...]
    numbers: dict[str, Floats]

    @property
    def leading(self) -> tuple[str, ...]:
        """The metrics by which methods are ranked."""
        return tuple(name for name in self.run.leading if name in self.metrics)

    def columns(self, cells: Sequence[int], metrics: Sequence[int] | None = None) -> dict[str, NDArray[Any]]:
        """Return the columns of a leaderboard over some cells, ``[M]`` each, in the order of ``explainers``.

        Args:
            cells: Indices of the cells.
            metrics: Indices of the metrics that mean ranks and places use; None = the leading ones. Every metric has
                its own columns.

        Returns:
            The columns of :func:`leaderboard`; NaN for methods without a place.
        """
        over = [self.metrics.index(name) for name in self.leading] if metrics is None else list(metrics)
        settled = [k for k in over if self.metrics[k] not in self.run.unsettled]
        chosen = {name: array[list(cells)] for name, array in self.numbers.items()}
        ranked: NDArray[np.bool_] = np.any(~np.isnan(chosen["rank"][:, over]), axis=1)  # [c, M]
        control = np.array([self.run.explainers[name].control for name in self.explainers], dtype=bool)
        counted, of = ranked.sum(axis=0), int(ranked.any(axis=1).sum())
        mean_rank = _nan_mean(chosen["rank"][:, settled])
        placed = ~control & (counted == of) & (of > 0) & bool(settled)
        place = np.full(len(control), np.nan)
        place[placed] = rankdata(mean_rank[placed], method="min")
        columns: dict[str, NDArray[Any]] = {
            **{"place": place, "explainer": np.array(self.explainers, dtype=object), "control": control},
            **{"cells": counted, "of": np.full(len(control), of), "mean_rank": mean_rank},
        }
        for k, metric in enumerate(self.metrics):
            columns |= _metric_columns(metric, {name: array[:, k] for name, array in chosen.items()})
            if metric in self.run.unsettled:
                columns |= {f"{what}:{metric}": np.full(len(control), np.nan) for what in ("mean_rank", "best")}
        if "sample_rank" in chosen:
            columns["sample_rank"] = _nan_mean(chosen["sample_rank"][:, settled])
        return columns

    def board(self, cells: Sequence[int]) -> pd.DataFrame:
        """Return the explainers over some cells, best first; see :func:`leaderboard`."""
        board = pd.DataFrame(self.columns(cells)).astype({"place": "Int64"})
        return board[board["cells"] > 0].sort_values("mean_rank", kind="stable").reset_index(drop=True)


def _metric_columns(metric: str, numbers: dict[str, Floats]) -> dict[str, NDArray[Any]]:
    """Return the columns of one metric; ``numbers`` are ``[c, M]``."""
    rank = numbers["rank"]
    top = np.fmin.reduce(rank, axis=1, initial=np.inf)
    columns: dict[str, NDArray[Any]] = {
        f"mean_rank:{metric}": _nan_mean(rank),
        f"median:{metric}": _nan_median(numbers["median"]),
        f"mean:{metric}": _nan_mean(numbers["mean"]),
        f"best:{metric}": (rank == top[:, None]).sum(axis=0),
        f"above:{metric}": np.nansum(numbers["above_controls"], axis=0).astype(np.int64),
        f"against:{metric}": (~np.isnan(numbers["above_controls"])).sum(axis=0),
    }
    if "beats_controls" in numbers:
        columns[f"beats:{metric}"] = np.nansum(numbers["beats_controls"], axis=0).astype(np.int64)
    return columns


def _nan_mean(values: Floats) -> Floats:
    """Return the means ``[M]`` of the defined values of ``[..., M]``; NaN if there are none."""
    flat = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    defined = (~np.isnan(flat)).sum(axis=0)
    mean = np.full(len(defined), np.nan)
    np.divide(np.nansum(flat, axis=0), defined, out=mean, where=defined > 0)
    return mean


def _nan_median(values: Floats) -> Floats:
    """Return the medians ``[M]`` of the defined values of ``[c, M]``; NaN if there are none."""
    median = np.full(values.shape[1], np.nan)
    some = ~np.isnan(values).all(axis=0)
    median[some] = np.nanmedian(values[:, some], axis=0)
    return median


def standings(run: RunResults, summary: pd.DataFrame, truth: str) -> Standings:
    """Return the standings of a run by the metrics of one kind of truth.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarize` or
            :func:`xaibench.report.numbers.inference.infer`.
        truth: Kind of truth, one of :attr:`.RunResults.truths`.
    """
    metrics = run.truths[truth]
    ranked = summary[summary["rank"].notna() & summary["metric"].isin(metrics)]
    codes = {}
    names: dict[str, tuple[str, ...]] = {}
    for key, known in (("explainer", run.explainers), ("metric", metrics)):
        there = set(ranked[key].astype(str))
        names[key] = tuple(name for name in known if name in there or key == "metric")
        codes[key] = ranked[key].astype(str).map({name: i for i, name in enumerate(names[key])}).to_numpy(int)
    places = list(zip(*(ranked[key].astype(str) for key in CELL), strict=True))
    cells = tuple(dict.fromkeys(places))
    number = {cell: i for i, cell in enumerate(cells)}
    where = np.array([number[cell] for cell in places], dtype=int), codes["metric"], codes["explainer"]
    numbers = {}
    for column in _NUMBERS:
        if column in ranked:
            table = np.full((len(cells), len(names["metric"]), len(names["explainer"])), np.nan)
            table[where] = ranked[column].astype("Float64").to_numpy(float, na_value=np.nan)
            numbers[column] = table
    return Standings(run, truth, cells, names["explainer"], names["metric"], numbers)


def leaderboards_by_truth(run: RunResults, summary: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the leaderboard (:func:`leaderboard`) of each kind of truth (:attr:`.RunResults.truths`)."""
    return {truth: leaderboard(run, summary, truth) for truth in run.truths}


def leaderboard(run: RunResults, summary: pd.DataFrame, truth: str | None = None) -> pd.DataFrame:
    """Return the explainers ranked over all cells by the metrics of one kind of truth, best first.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarize` or
            :func:`xaibench.report.numbers.inference.infer`.
        truth: Kind of truth; may be None if the run has only one.

    Returns:
        One row per explainer:

        - ``place``: place among the methods that were ranked in every cell. Missing for controls, and for methods
          without a rank in some cell (such as an explainer of convolutions only), since means over different cells are
          not comparable.
        - ``explainer``, ``control``, ``cells`` (in which it was ranked), ``of`` (number of cells).
        - ``mean_rank``: mean of the ranks over cells and leading metrics of that kind (:attr:`.RunResults.leading`),
          without the unsettled ones (:attr:`.RunResults.unsettled`).
        - per metric of that kind, ``mean_rank:METRIC``, ``median:METRIC`` (median over cells of the cell's median),
          ``mean:METRIC`` (mean over cells of the cell's mean), ``best:METRIC`` (cells in which no explainer, control or
          not, has a better rank), ``above:METRIC`` (cells in which its rank is better than that of every control) and
          ``against:METRIC`` (cells in which this comparison is possible; 0 for controls).
        - if the summary comes from :func:`.inference.infer`, ``sample_rank`` (mean over cells and metrics) and
          ``beats:METRIC`` (cells in which its mean is significantly better than that of every control).

    Raises:
        ValueError: If ``truth`` is not a kind of truth of the run, or is None and the run has several. Scores of
            different kinds are not averaged.
    """
    if truth is None and len(run.truths) == 1:
        truth = next(iter(run.truths))
    if truth not in run.truths:
        raise ValueError(f"truth={truth!r}: expected one of {', '.join(map(repr, run.truths))}, which this run has.")
    found = standings(run, summary, truth)
    return found.board(range(len(found.cells)))


def printable(run: RunResults, board: pd.DataFrame) -> pd.DataFrame:
    """Return the leaderboard as text, best first.

    Args:
        run: The run.
        board: From :func:`leaderboard`, of a summary with inference.

    Returns:
        Columns ``"place"``, ``"method"`` (controls, the user's own methods and methods without a score in some cell are
        marked) and ``"mean rank"``. For up to three metrics, also the median over the cells and the number of cells in
        which the method beats the controls; for more metrics, the mean rank by each.
    """
    metrics = {name: part for name, part in run.metrics.items() if f"mean_rank:{name}" in board}
    leading = [name for name in run.leading if name in metrics]
    few = len(leading) <= 3
    rows = []
    for row in board.to_dict("records"):
        part = run.explainers[row["explainer"]]
        marks = ["control" if part.control else "", "yours" if part.own else ""]
        marks += [f"{row['cells']} of {row['of']} cells" if row["cells"] < row["of"] else ""]
        marked = ", ".join(mark for mark in marks if mark)
        shown = {"place": "" if pd.isna(row["place"]) else str(row["place"])}
        shown |= {"method": f"{part.label} ({marked})" if marked else part.label}
        shown |= {"mean rank": f"{row['mean_rank']:.2f}"}
        for name, metric in metrics.items():
            if not few and name not in leading:
                continue
            number = f"{row[f'median:{name}']:.3f}" if few else f"{row[f'mean_rank:{name}']:.1f}"
            shown[metric.label] = "-" if number == "nan" else number
        if few:
            beats = [(row[f"beats:{name}"], row[f"against:{name}"]) for name in leading]
            shown["beats controls in"] = " · ".join(f"{cells}/{of}" for cells, of in beats if of)
        rows.append(shown)
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else ["place", "method", "mean rank"])


def best_by_cell(run: RunResults, summary: pd.DataFrame) -> pd.DataFrame:
    """Return a printable table of the best method per cell and leading metric, with a last row for all cells."""
    found, leading = leaderboards_by_truth(run, summary), {name: run.metrics[name] for name in run.leading}
    rows = []
    for cell, group in summary.groupby(list(CELL), observed=True, sort=True):
        subset, variant, model = (str(name) for name in cell)
        row = {"subset": place(subset), "variant": place(variant), "model": run.models[model].label}
        for metric, part in leading.items():
            ranked = group[group["metric"] == metric].dropna(subset=["rank"])
            row[part.label] = _best_method_text(run, ranked) if len(ranked) else "-"
        rows.append(row)
    columns = [*CELL, *(part.label for part in leading.values())]
    placed = {truth: board.dropna(subset=["place"]) for truth, board in found.items()}
    if any(len(board) for board in placed.values()):
        rows.append({"subset": "all", "variant": "", "model": ""})
        for metric, part in leading.items():
            ranked = placed[part.truth].dropna(subset=[f"mean_rank:{metric}"])
            best = ranked.nsmallest(1, f"mean_rank:{metric}").to_dict("records")
            named = [
                f"{run.explainers[row['explainer']].label} (mean rank {row[f'mean_rank:{metric}']:.1f})" for row in best
            ]
            rows[-1][part.label] = named[0] if named else "no single order" if metric in run.unsettled else "-"
    return pd.DataFrame(rows, columns=columns)


def _best_method_text(run: RunResults, ranked: pd.DataFrame) -> str:
    best = ranked.nsmallest(1, "rank").iloc[0]
    part = run.explainers[best["explainer"]]
    return f"{part.label} {best['median']:.3f}" + (" (control)" if part.control else "")


@dataclass(frozen=True)
class Boards:
    """Leaderboards by selection of cells.

    Attributes:
        standings: The scores that they are computed from.
        cells: Selection to the indices of its cells; empty selections are left out.
        means: ``[R, C, K, M]`` resampled means of each cell.
    """

    standings: Standings
    cells: Mapping[Choice, tuple[int, ...]]
    means: Floats

    def columns(self, choice: Choice, metric: int | None = None) -> dict[str, NDArray[Any]]:
        """Return the leaderboard of a selection with ``low:METRIC`` and ``high:METRIC``, ranked by one or all metrics.

        The mean is over cells. Its 95 % interval accounts for the data sets, trainings and samples of each subset and
        variant, which all cells of that subset and variant share; the cells themselves are taken as fixed. For
        a single cell it is the interval of that cell.

        Returns:
            The columns of :meth:`Standings.columns`.
        """
        cells = self.cells[choice]
        columns = self.standings.columns(cells, None if metric is None else [metric])
        for k, name in enumerate(self.standings.metrics):
            columns[f"low:{name}"], columns[f"high:{name}"] = self._interval(cells, k)
        return columns

    def _interval(self, cells: Sequence[int], metric: int) -> tuple[Floats, Floats]:
        numbers = self.standings.numbers
        if len(cells) == 1:
            return numbers["low"][cells[0], metric], numbers["high"][cells[0], metric]
        chosen = self.means[:, list(cells), metric]  # [R, c, M]
        scored = ~np.isnan(numbers["mean"][list(cells), metric])
        chosen = np.where(scored, chosen, 0).sum(axis=1) / np.where(scored.any(axis=0), scored.sum(axis=0), np.nan)
        low, high = np.quantile(chosen, [ALPHA / 2, 1 - ALPHA / 2], axis=0)
        # A cell with a single group has no interval, so neither has a mean that includes it.
        is_unknown = (scored & np.isnan(numbers["low"][list(cells), metric])).any(axis=0)
        return np.where(is_unknown, np.nan, low), np.where(is_unknown, np.nan, high)


def boards(run: RunResults, summary: pd.DataFrame) -> dict[str, Boards]:
    """Return the leaderboards of a run by kind of truth (:attr:`.RunResults.truths`).

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.inference.infer`.
    """
    matrices = list(cell_matrices(run))
    resampled = resampled_means(matrices, RESAMPLES)
    every = {truth: standings(run, summary, truth) for truth in run.truths}
    return {
        truth: Boards(found, dict(_selections(run, found.cells)), _resampled_cell_means(matrices, resampled, found))
        for truth, found in every.items()
    }


def _selections(run: RunResults, cells: Sequence[tuple[str, str, str]]) -> Iterator[tuple[Choice, tuple[int, ...]]]:
    """Yield every nonempty selection of cells; a subset, variant or model is selectable if there are several."""
    orders = (run.subsets, run.variants, tuple(run.models))
    options = [[None, *range(len(order))] if len(order) > 1 else [None] for order in orders]
    for first, second, third in itertools.product(*options):
        wanted = [None if i is None else order[i] for i, order in zip((first, second, third), orders, strict=True)]
        fit = tuple(
            number
            for number, cell in enumerate(cells)
            if all(want in (None, name) for want, name in zip(wanted, cell, strict=True))
        )
        if fit:
            yield (first, second, third), fit


def _resampled_cell_means(
    matrices: Sequence[Matrices], resampled: Mapping[tuple[str, str, str], Floats], found: Standings
) -> Floats:
    """Return the resampled means ``[R, C, K, M]``; NaN if a cell has no score."""
    shape = (RESAMPLES, len(found.cells), len(found.metrics), len(found.explainers))
    means = np.full(shape, np.nan, dtype=np.float32)
    for cell in matrices:
        if cell.cell not in found.cells:
            continue
        mine = [k for k, metric in enumerate(cell.metrics) if metric in found.metrics]
        metrics = [found.metrics.index(cell.metrics[k]) for k in mine]
        for m, method in enumerate(cell.methods):
            if method in found.explainers:
                place = found.cells.index(cell.cell), metrics, found.explainers.index(method)
                means[:, *place] = resampled[cell.cell][1:, mine, m]
    return means.astype(np.float64)
