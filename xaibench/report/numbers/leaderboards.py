"""How the methods stand over some of the cells: the leaderboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from xaibench.report.read.run_reading import CELL, Run

Floats = NDArray[np.float64]
#: Columns of the summary that a leaderboard is made of; the later ones only where something was inferred.
_NUMBERS = ("rank", "median", "mean", "beats_controls", "sample_rank", "exceeds_controls", "low", "high")


@dataclass(frozen=True)
class Standings:
    """The summary as arrays, so that a leaderboard of any of the cells is quickly made.

    Attributes:
        run: The run.
        cells: ``[C]`` scenario, background and model.
        explainers: ``[M]`` names.
        metrics: ``[K]`` names.
        numbers: Column of the summary to ``[C, K, M]``; ``nan`` where missing, and where nothing was ranked.
    """

    run: Run
    cells: tuple[tuple[str, str, str], ...]
    explainers: tuple[str, ...]
    metrics: tuple[str, ...]
    numbers: dict[str, Floats]

    def columns(self, cells: Sequence[int], metrics: Sequence[int] | None = None) -> dict[str, NDArray[Any]]:
        """How the explainers stand over some cells, ``[M]`` each, in the order of ``explainers``.

        Args:
            cells: Which.
            metrics: Over which the mean ranks and places are; None = all. All have their own columns.

        Returns:
            The columns of :func:`xaibench.report.numbers.summary_tables.leaderboard`, ``nan`` where there is no place.
        """
        over = list(range(len(self.metrics))) if metrics is None else list(metrics)
        chosen = {name: array[list(cells)] for name, array in self.numbers.items()}
        ranked: NDArray[np.bool_] = np.any(~np.isnan(chosen["rank"][:, over]), axis=1)  # [c, M]
        control = np.array([self.run.explainers[name].control for name in self.explainers], dtype=bool)
        counted, of = ranked.sum(axis=0), int(ranked.any(axis=1).sum())
        mean_rank = _mean(chosen["rank"][:, over])
        placed = ~control & (counted == of) & (of > 0)
        place = np.full(len(control), np.nan)
        place[placed] = rankdata(mean_rank[placed], method="min")
        columns: dict[str, NDArray[Any]] = {
            **{"place": place, "explainer": np.array(self.explainers, dtype=object), "control": control},
            **{"cells": counted, "of": np.full(len(control), of), "mean_rank": mean_rank},
        }
        for k, metric in enumerate(self.metrics):
            columns |= _of_metric(metric, {name: array[:, k] for name, array in chosen.items()})
        if "sample_rank" in chosen:
            columns["sample_rank"] = _mean(chosen["sample_rank"][:, over])
        return columns

    def board(self, cells: Sequence[int]) -> pd.DataFrame:
        """The explainers over some cells, best first; see :func:`.summary_tables.leaderboard`."""
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
        f"beats:{metric}": np.nansum(numbers["beats_controls"], axis=0).astype(np.int64),
        f"against:{metric}": (~np.isnan(numbers["beats_controls"])).sum(axis=0),
    }
    if "exceeds_controls" in numbers:
        columns[f"exceeds:{metric}"] = np.nansum(numbers["exceeds_controls"], axis=0).astype(np.int64)
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


def standings(run: Run, summary: pd.DataFrame) -> Standings:
    """The standings of a run.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.summary_tables.summarise` or
        :func:`xaibench.report.numbers.inference.infer`.
    """
    ranked = summary[summary["rank"].notna()]
    codes = {}
    names: dict[str, tuple[str, ...]] = {}
    for key, known in (("explainer", run.explainers), ("metric", run.metrics)):
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
    return Standings(run, cells, names["explainer"], names["metric"], numbers)
