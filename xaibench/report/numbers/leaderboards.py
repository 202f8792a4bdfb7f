"""How the methods stand over some of the cells: the leaderboard, of all cells and of every choice of them."""

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
from xaibench.report.read.run_results import RunResults, place
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import LEVEL

Floats = NDArray[np.float64]
#: Resamples of the means over several cells.
RESAMPLES = 1000
#: Scenario, background and model of a choice, each by its place in the run's order, or None for all.
Choice = tuple[int | None, int | None, int | None]
#: Columns of the summary that a leaderboard is made of; the later ones only where something was inferred.
_NUMBERS = ("rank", "median", "mean", "above_controls", "sample_rank", "beats_controls", "low", "high")


@dataclass(frozen=True)
class Standings:
    """The summary as arrays, so that a leaderboard of any of the cells is quickly made.

    Attributes:
        run: The run.
        truth: The kind of truth that all of it is of (:attr:`.RunResults.truths`).
        cells: ``[C]`` scenario, background and model.
        explainers: ``[M]`` names.
        metrics: ``[K]`` names.
        numbers: Column of the summary to ``[C, K, M]``; ``nan`` where missing, and where nothing was ranked.
    """

    run: RunResults
    truth: str
    cells: tuple[tuple[str, str, str], ...]
    explainers: tuple[str, ...]
    metrics: tuple[str, ...]
    numbers: dict[str, Floats]

    @property
    def leading(self) -> tuple[str, ...]:
        """The metrics that methods are ranked by."""
        return tuple(name for name in self.run.leading if name in self.metrics)

    def columns(self, cells: Sequence[int], metrics: Sequence[int] | None = None) -> dict[str, NDArray[Any]]:
        """How the explainers stand over some cells, ``[M]`` each, in the order of ``explainers``.

        Args:
            cells: Which.
            metrics: Over which the mean ranks and places are; None = those that lead. All have their own columns.

        Returns:
            The columns of :func:`leaderboard`, ``nan`` where there is no place.
        """
        over = [self.metrics.index(name) for name in self.leading] if metrics is None else list(metrics)
        settled = [k for k in over if self.metrics[k] not in self.run.unsettled]
        chosen = {name: array[list(cells)] for name, array in self.numbers.items()}
        ranked: NDArray[np.bool_] = np.any(~np.isnan(chosen["rank"][:, over]), axis=1)  # [c, M]
        control = np.array([self.run.explainers[name].control for name in self.explainers], dtype=bool)
        counted, of = ranked.sum(axis=0), int(ranked.any(axis=1).sum())
        mean_rank = _mean(chosen["rank"][:, settled])
        placed = ~control & (counted == of) & (of > 0) & bool(settled)
        place = np.full(len(control), np.nan)
        place[placed] = rankdata(mean_rank[placed], method="min")
        columns: dict[str, NDArray[Any]] = {
            **{"place": place, "explainer": np.array(self.explainers, dtype=object), "control": control},
            **{"cells": counted, "of": np.full(len(control), of), "mean_rank": mean_rank},
        }
        for k, metric in enumerate(self.metrics):
            columns |= _of_metric(metric, {name: array[:, k] for name, array in chosen.items()})
            if metric in self.run.unsettled:
                columns |= {f"{what}:{metric}": np.full(len(control), np.nan) for what in ("mean_rank", "best")}
        if "sample_rank" in chosen:
            columns["sample_rank"] = _mean(chosen["sample_rank"][:, settled])
        return columns

    def board(self, cells: Sequence[int]) -> pd.DataFrame:
        """The explainers over some cells, best first; see :func:`leaderboard`."""
        board = pd.DataFrame(self.columns(cells)).astype({"place": "Int64"})
        return board[board["cells"] > 0].sort_values("mean_rank", kind="stable").reset_index(drop=True)


def _of_metric(metric: str, numbers: dict[str, Floats]) -> dict[str, NDArray[Any]]:
    """The columns of one metric; ``numbers`` are ``[c, M]``."""
    rank = numbers["rank"]
    top = np.fmin.reduce(rank, axis=1, initial=np.inf)
    columns: dict[str, NDArray[Any]] = {
        f"mean_rank:{metric}": _mean(rank),
        f"median:{metric}": _median(numbers["median"]),
        f"mean:{metric}": _mean(numbers["mean"]),
        f"best:{metric}": (rank == top[:, None]).sum(axis=0),
        f"above:{metric}": np.nansum(numbers["above_controls"], axis=0).astype(np.int64),
        f"against:{metric}": (~np.isnan(numbers["above_controls"])).sum(axis=0),
    }
    if "beats_controls" in numbers:
        columns[f"beats:{metric}"] = np.nansum(numbers["beats_controls"], axis=0).astype(np.int64)
    return columns


def _mean(values: Floats) -> Floats:
    """``[M]`` of ``[..., M]``: the mean of what is defined, ``nan`` where nothing is."""
    flat = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    defined = (~np.isnan(flat)).sum(axis=0)
    mean = np.full(len(defined), np.nan)
    np.divide(np.nansum(flat, axis=0), defined, out=mean, where=defined > 0)
    return mean


def _median(values: Floats) -> Floats:
    """``[M]`` of ``[c, M]``, in the same way."""
    median = np.full(values.shape[1], np.nan)
    some = ~np.isnan(values).all(axis=0)
    median[some] = np.nanmedian(values[:, some], axis=0)
    return median


def standings(run: RunResults, summary: pd.DataFrame, truth: str) -> Standings:
    """The standings of a run by the metrics of one kind of truth.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarise` or
            :func:`xaibench.report.numbers.inference.infer`.
        truth: The kind, one of :attr:`.RunResults.truths`.
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
    """The leaderboard of each kind of truth (:attr:`.RunResults.truths`), as :func:`leaderboard` gives it."""
    return {truth: leaderboard(run, summary, truth) for truth in run.truths}


def leaderboard(run: RunResults, summary: pd.DataFrame, truth: str | None = None) -> pd.DataFrame:
    """The explainers over all cells by the metrics of one kind of truth, best first.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarise` or
            :func:`xaibench.report.numbers.inference.infer`.
        truth: The kind; None where the run has only one.

    Returns:
        One row for each explainer:

        - ``place``: position among the methods that were ranked in every cell; missing for controls and for methods
          that were not (an explainer of convolutions only, or one whose jobs failed), since a mean over other cells is
          another quantity.
        - ``explainer``, ``control``, ``cells`` (in which it was ranked), ``of`` (number of cells).
        - ``mean_rank``: mean of the ranks over cells and those metrics of the kind that lead
          (:attr:`.RunResults.leading`); those that are not settled (:attr:`.RunResults.unsettled`) have no ranks.
        - for each metric of the kind, ``mean_rank:METRIC``, ``median:METRIC`` (median over the cells of the cell's
          median), ``mean:METRIC`` (mean over the cells of the cell's mean), ``best:METRIC`` (cells in which no
          explainer, control or not, has a better rank), ``above:METRIC`` (cells in which its rank is above every
          control's) and ``against:METRIC`` (cells in which that can be asked; 0 for controls).
        - where the summary is one of :func:`.inference.infer`, ``sample_rank`` (mean over cells and metrics) and
          ``beats:METRIC`` (cells in which its mean is better than every control's by more than chance).

    Raises:
        ValueError: If it has several and none is named, or there is no such kind: none is averaged with another.
    """
    if truth is None and len(run.truths) == 1:
        truth = next(iter(run.truths))
    if truth not in run.truths:
        raise ValueError(f"truth={truth!r}: expected one of {', '.join(map(repr, run.truths))}, which this run has.")
    found = standings(run, summary, truth)
    return found.board(range(len(found.cells)))


def printable(run: RunResults, board: pd.DataFrame) -> pd.DataFrame:
    """The leaderboard as text, best first.

    Args:
        run: The run.
        board: From :func:`leaderboard`, with what is inferred.

    Returns:
        Columns ``"place"``, ``"method"`` (controls, the user's own and who was not scored in every cell are marked),
        ``"mean rank"``, and of up to three metrics the median over the cells and in how many of them the method beats
        the controls; of more, the mean rank by each.
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
    """The best method of each cell and, in the last row, over all cells; a printable column for each leading metric."""
    found, leading = leaderboards_by_truth(run, summary), {name: run.metrics[name] for name in run.leading}
    rows = []
    for cell, group in summary.groupby(list(CELL), observed=True, sort=True):
        scenario, background, model = (str(name) for name in cell)
        row = {"scenario": place(scenario), "background": place(background), "model": run.models[model].label}
        for metric, part in leading.items():
            ranked = group[group["metric"] == metric].dropna(subset=["rank"])
            row[part.label] = _winner(run, ranked) if len(ranked) else "-"
        rows.append(row)
    columns = [*CELL, *(part.label for part in leading.values())]
    placed = {truth: board.dropna(subset=["place"]) for truth, board in found.items()}
    if any(len(board) for board in placed.values()):
        rows.append({"scenario": "all", "background": "", "model": ""})
        for metric, part in leading.items():
            ranked = placed[part.truth].dropna(subset=[f"mean_rank:{metric}"])
            best = ranked.nsmallest(1, f"mean_rank:{metric}").to_dict("records")
            named = [
                f"{run.explainers[row['explainer']].label} (mean rank {row[f'mean_rank:{metric}']:.1f})" for row in best
            ]
            rows[-1][part.label] = named[0] if named else "no single order" if metric in run.unsettled else "-"
    return pd.DataFrame(rows, columns=columns)


def _winner(run: RunResults, ranked: pd.DataFrame) -> str:
    best = ranked.nsmallest(1, "rank").iloc[0]
    part = run.explainers[best["explainer"]]
    return f"{part.label} {best['median']:.3f}" + (" (control)" if part.control else "")


@dataclass(frozen=True)
class Boards:
    """Leaderboards by choice.

    Attributes:
        standings: What they are made of.
        cells: Choice to the cells that it holds; a choice that no cell fits is not there.
        means: ``[R, C, K, M]`` means of the scores of each cell under the resamples.
    """

    standings: Standings
    cells: Mapping[Choice, tuple[int, ...]]
    means: Floats

    def columns(self, choice: Choice, metric: int | None = None) -> dict[str, NDArray[Any]]:
        """The leaderboard of a choice with ``low:METRIC`` and ``high:METRIC``, ranked by one metric or by all.

        The mean is over cells; its 95 % interval is over what was drawn in each scenario and background, all of
        whose cells see the same data sets and samples, while the cells stay what they are. Of one cell it is that
        cell's interval.

        Returns:
            As :meth:`Standings.columns`.
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
        low, high = np.quantile(chosen, [LEVEL / 2, 1 - LEVEL / 2], axis=0)
        # A cell of one group has no interval, and so has no mean over it.
        open_ended = (scored & np.isnan(numbers["low"][list(cells), metric])).any(axis=0)
        return np.where(open_ended, np.nan, low), np.where(open_ended, np.nan, high)


def boards(run: RunResults, summary: pd.DataFrame) -> dict[str, Boards]:
    """The leaderboards of a run, by their kind of truth (:attr:`.RunResults.truths`).

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.inference.infer`.
    """
    matrices = list(cell_matrices(run))
    resampled = resampled_means(matrices, RESAMPLES)
    every = {truth: standings(run, summary, truth) for truth in run.truths}
    return {
        truth: Boards(found, dict(_choices(run, found.cells)), _means(matrices, resampled, found))
        for truth, found in every.items()
    }


def _choices(run: RunResults, cells: Sequence[tuple[str, str, str]]) -> Iterator[tuple[Choice, tuple[int, ...]]]:
    """Every choice that some cell fits; where there is but one scenario, background or model, there is none of it."""
    orders = (run.scenarios, run.backgrounds, tuple(run.models))
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


def _means(matrices: Sequence[Matrices], resampled: Mapping[tuple[str, str, str], Floats], found: Standings) -> Floats:
    """``[R, C, K, M]``; ``nan`` where a cell has no score."""
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
