"""The leaderboard of every choice of scenario, background and model, with intervals, for a page that filters.

All is worked out here, so that the page's script only shows what fits the reader's choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.inference import LEVEL, cell_matrices
from xaibench.report.numbers.leaderboards import Floats, Standings, standings
from xaibench.report.numbers.resampling import resampled_means
from xaibench.report.read.run_reading import Run

#: Resamples of the bootstrap over several cells.
RESAMPLES = 1000
#: Scenario, background and model of a choice, each by its place in the run's order, or None for all.
Choice = tuple[int | None, int | None, int | None]


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

        The mean is over cells; its 95 % interval is over the groups of samples of each data set, all of whose cells
        see the same resample, while the cells stay what they are. Of one cell it is that cell's interval.

        Returns:
            As :meth:`xaibench.report.numbers.leaderboards.Standings.columns`.
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


def boards(run: Run, summary: pd.DataFrame) -> Boards:
    """The leaderboards of a run.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.inference.infer`.
    """
    found = standings(run, summary)
    return Boards(found, dict(_choices(run, found.cells)), _means(run, found))


def _choices(run: Run, cells: Sequence[tuple[str, str, str]]) -> Iterator[tuple[Choice, tuple[int, ...]]]:
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


def _means(run: Run, found: Standings) -> Floats:
    """``[R, C, K, M]``; ``nan`` where a cell has no score."""
    shape = (RESAMPLES, len(found.cells), len(found.metrics), len(found.explainers))
    means = np.full(shape, np.nan, dtype=np.float32)
    matrices = list(cell_matrices(run))
    resampled = resampled_means(matrices, RESAMPLES)
    for cell in matrices:
        if cell.cell not in found.cells:
            continue
        for m, method in enumerate(cell.methods):
            if method in found.explainers:
                metrics = [found.metrics.index(metric) for metric in cell.metrics]
                place = found.cells.index(cell.cell), metrics, found.explainers.index(method)
                means[:, *place] = resampled[cell.cell][1:, :, m]
    return means.astype(np.float64)


def page_data(found: Boards) -> dict[str, Any]:
    """What the page's script needs, as JSON-ready values.

    ``boards`` maps a choice (``"1..0"``: second scenario, any background, first model) to the number of its ``cells``;
    ``over``: for all metrics, then for each, a row ``[place, cells, of, mean rank, rank over samples]`` an explainer;
    and ``metrics``: for each a row ``[rank, mean, low, high, median, best, beats, exceeds, against]`` an explainer.
    Rows are in the order of ``ranked``; an explainer without a ranked score has None.
    """
    some = found.standings
    scopes: list[int | None] = [None, *range(len(some.metrics))] if len(some.metrics) > 1 else [None]
    chosen: dict[str, Any] = {}
    for choice, cells in found.cells.items():
        columns = found.columns(choice)
        scoped = [columns, *(some.columns(cells, [scope]) for scope in scopes if scope is not None)]
        chosen[".".join("" if i is None else str(i) for i in choice)] = {
            "cells": len(cells),
            "over": [_lines(each, _OVER_METRICS) for each in scoped],
            "metrics": [_lines(columns, [f"{name}:{metric}" for name in _OF_METRIC]) for metric in some.metrics],
        }
    return {"ranked": list(some.explainers), "boards": chosen}


_OVER_METRICS = ("place", "cells", "of", "mean_rank", "sample_rank")
_OF_METRIC = ("mean_rank", "mean", "low", "high", "median", "best", "beats", "exceeds", "against")


def _lines(columns: Mapping[str, NDArray[Any]], names: Sequence[str]) -> list[list[float | None] | None]:
    lines = zip(*(columns[name].tolist() for name in names), strict=True)
    return [
        [short(value) for value in line] if cells else None for line, cells in zip(lines, columns["cells"], strict=True)
    ]


def short(value: float) -> float | None:
    """Six digits: what the page shows, and no more."""
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")
