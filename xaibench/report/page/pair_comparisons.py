"""Comparisons of two methods in every cell, for the page's script and for readers without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.page.content import records, round_for_page
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import ALPHA

#: Largest number of comparisons (pair, cell, metric) on the page. If there are more, only the subject's are shown.
MAX_COMPARISONS = 20_000


@dataclass(frozen=True)
class Comparison:
    """Comparison of the subject with another method in one cell by one metric: subject minus method.

    Attributes:
        difference: Difference of the means, over the samples with a score of both.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: Holm-corrected p-value.
        verdict: ``"better"``, ``"worse"`` or ``"not told apart"`` (about the subject), or ``"no sample in common"``.
    """

    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: str


@dataclass(frozen=True)
class Pairs:
    """Comparisons shown on the page.

    Attributes:
        subject: The method that all others are compared with: the user's own, or the first of the leaderboard.
        whole: Whether the script has all pairs, rather than the subject's only.
        cells: Label of the cell to method to metric to comparison; for readers without scripts.
        data: Data of the script: the fields above, the order of the methods, the cells, and ``pairs``: ``"first
            second"`` (indices in the run's order) to concatenated rows ``[cell, metric, difference, low, high, p]``.
    """

    subject: str
    whole: bool
    cells: Mapping[str, Mapping[str, Mapping[str, Comparison]]]
    data: Mapping[str, Any]


def method_pairs(run: RunResults, pairs: pd.DataFrame, subject: str, order: Sequence[str]) -> Pairs | None:
    """Return the comparisons of a run.

    Args:
        run: The run.
        pairs: From :func:`xaibench.report.numbers.inference.infer`.
        subject: Method that all others are compared with.
        order: The methods in the order of the leaderboard.

    Returns:
        None if the subject was not compared with any method.
    """
    mine = pairs[(pairs["first"] == subject) | (pairs["second"] == subject)]
    if mine.empty:
        return None
    whole = len(pairs) <= MAX_COMPARISONS
    data = {"subject": subject, "whole": whole, "order": list(order), **_pairs_data(run, pairs if whole else mine)}
    return Pairs(subject, whole, _compare_subject(run, mine, subject), data)


def _compare_subject(run: RunResults, mine: pd.DataFrame, subject: str) -> dict[str, dict[str, dict[str, Comparison]]]:
    order = {name: place for place, name in enumerate(run.explainers)}
    found: dict[str, dict[str, dict[str, Comparison]]] = {}
    for row, cell in _iterate_rows(run, mine):
        turned = row["second"] == subject
        other = row["first" if turned else "second"]
        comparison = _comparison(row, turned, higher=run.metrics[row["metric"]].higher_is_better)
        found.setdefault(run.words_of(cell), {}).setdefault(other, {})[row["metric"]] = comparison
    return {cell: dict(sorted(table.items(), key=lambda item: order[item[0]])) for cell, table in found.items()}


def _comparison(row: Mapping[str, Any], turned: bool, *, higher: bool) -> Comparison:
    difference, low, high = (row[name] for name in ("difference", "low", "high"))
    if turned:
        difference, low, high = (None if value is None else -value for value in (difference, high, low))
    if difference is None:
        verdict = "no sample in common"
    elif row["p_holm"] is None or row["p_holm"] >= ALPHA:
        verdict = "not told apart"
    else:
        verdict = "better" if (difference > 0) == higher else "worse"
    return Comparison(difference, low, high, row["p_holm"], verdict)


def _pairs_data(run: RunResults, pairs: pd.DataFrame) -> dict[str, Any]:
    """Return the pairs in the form that the script reads."""
    methods = {name: place for place, name in enumerate(run.explainers)}
    metrics = {name: place for place, name in enumerate(run.metrics)}
    cells: dict[tuple[str, str, str], int] = {}
    rows: dict[str, list[float | None]] = {}
    for row, cell in _iterate_rows(run, pairs):
        numbers = [
            None if row[name] is None else round_for_page(row[name]) for name in ("difference", "low", "high", "p_holm")
        ]
        key = f"{methods[row['first']]} {methods[row['second']]}"
        rows.setdefault(key, []).extend([cells.setdefault(cell, len(cells)), metrics[row["metric"]], *numbers])
    return {"level": ALPHA, "cells": [dict(zip(CELL, cell, strict=True)) for cell in cells], "pairs": rows}


def _iterate_rows(run: RunResults, pairs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], tuple[str, str, str]]]:
    for row in records(pairs):
        yield row, (row["subset"], row["variant"], row["model"])
