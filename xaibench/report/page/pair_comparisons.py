"""Comparisons of two methods, over all cells and in every cell, as data of the page's script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.page.content import round_for_page
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import ALPHA

#: Largest number of comparisons (pair, cell, metric) on the page. If there are more, only the subject's are shown.
MAX_COMPARISONS = 20_000
#: Stands for all cells together.
ALL_CELLS = -1
#: Columns of a comparison that the page shows.
PAIR_COLUMNS = ["difference", "low", "high", "p_holm"]


@dataclass(frozen=True)
class Pairs:
    """Comparisons shown on the page.

    Attributes:
        subject: The method that is compared first: the user's own, or the first of the leaderboard.
        whole: Whether the page has all pairs, rather than the subject's only.
        data: Data of the script: the fields above, the significance level, the order of the methods, the cells, and
            ``pairs``: ``"first second"`` (indices in the run's order) to concatenated rows ``[cell, metric, difference,
            low, high, p]``, where the cell is :data:`ALL_CELLS` for the difference of the means over all cells.
    """

    subject: str
    whole: bool
    data: dict[str, Any]


def method_pairs(
    run: RunResults, pairs: pd.DataFrame, overall: pd.DataFrame, subject: str, order: Sequence[str]
) -> Pairs | None:
    """Return the comparisons of a run.

    Args:
        run: The run.
        pairs: From :func:`xaibench.report.numbers.inference.infer`.
        overall: From :func:`xaibench.report.numbers.rankings.overall_comparisons`.
        subject: Method that is compared first.
        order: The methods in the order of the leaderboard.

    Returns:
        None if the subject was not compared with any method.
    """
    mine, mine_overall = (rows[(rows["first"] == subject) | (rows["second"] == subject)] for rows in (pairs, overall))
    if mine.empty:
        return None
    whole = len(pairs) <= MAX_COMPARISONS
    cells = list(dict.fromkeys(_cells(pairs)))
    shown = (overall, pairs) if whole else (mine_overall, mine)
    data = {"subject": subject, "whole": whole, **comparison_settings(cells, order), "pairs": _rows(run, cells, *shown)}
    return Pairs(subject, whole, data)


def comparison_settings(cells: Sequence[tuple[str, ...]], order: Sequence[str]) -> dict[str, Any]:
    """Return what the script needs besides the pairs: significance level, cells, and the order of the methods."""
    return {"level": ALPHA, "order": list(order), "cells": [dict(zip(CELL, cell, strict=True)) for cell in cells]}


def _rows(
    run: RunResults, cells: Sequence[tuple[str, ...]], overall: pd.DataFrame, pairs: pd.DataFrame
) -> dict[str, list[float | None]]:
    methods = {name: place for place, name in enumerate(run.explainers)}
    metrics = {name: place for place, name in enumerate(run.metrics)}
    number = {cell: place for place, cell in enumerate(cells)}
    rows: dict[str, list[float | None]] = {}
    for frame in (overall, pairs):
        if frame.empty:
            continue
        over_cells = CELL[0] not in frame
        where = [ALL_CELLS] * len(frame) if over_cells else [number[cell] for cell in _cells(frame)]
        names = (frame[name].tolist() for name in ("first", "second", "metric"))
        values = zip(*(frame[name].astype(float).tolist() for name in PAIR_COLUMNS), strict=True)
        for cell, first, second, metric, numbers in zip(where, *names, values, strict=True):
            row = rows.setdefault(f"{methods[first]} {methods[second]}", [])
            row += [cell, metrics[metric], *map(round_for_page, numbers)]
    return rows


def _cells(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    return zip(*(frame[key].astype(str) for key in CELL), strict=True)
