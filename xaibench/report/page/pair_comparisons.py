"""Is one method better than another? Every pair of them in every cell, for the page's script and for who has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.page.page_content import records, short
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL
from xaibench.statistics.multiple_tests import LEVEL

#: Comparisons (a pair, a cell, a metric) on the page at most; of more, only those of :attr:`Pairs.subject` are there.
MOST = 20_000


@dataclass(frozen=True)
class Comparison:
    """A method beside the subject in one cell, by one metric: subject minus method.

    Attributes:
        difference: Of the means, on the samples that both have a score of.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: After Holm's correction.
        verdict: ``"better"``, ``"worse"``, ``"not told apart"``, of the subject, or ``"no sample in common"``.
    """

    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: str


@dataclass(frozen=True)
class Pairs:
    """What the page says of pairs.

    Attributes:
        subject: The method that all others are put beside: the user's own, or the first of the leaderboard.
        whole: Whether the script has all pairs, and not those of the subject alone.
        cells: Cell in words to method to metric to how they compare; for readers without scripts.
        data: For the script: the above, the order of the methods, the cells, and ``pairs``: ``"first second"`` (places
            in the run's order) to rows ``[cell, metric, difference, low, high, p]``, one behind the other.
    """

    subject: str
    whole: bool
    cells: Mapping[str, Mapping[str, Mapping[str, Comparison]]]
    data: Mapping[str, Any]


def method_pairs(run: RunResults, pairs: pd.DataFrame, subject: str, order: Sequence[str]) -> Pairs | None:
    """The pairs of a run.

    Args:
        run: The run.
        pairs: From :func:`xaibench.report.numbers.inference.infer`.
        subject: Who is put beside all others.
        order: The methods as the leaderboard has them.

    Returns:
        None where the subject was compared with nobody.
    """
    mine = pairs[(pairs["first"] == subject) | (pairs["second"] == subject)]
    if mine.empty:
        return None
    whole = len(pairs) <= MOST
    data = {"subject": subject, "whole": whole, "order": list(order), **_plain(run, pairs if whole else mine)}
    return Pairs(subject, whole, _beside(run, mine, subject), data)


def _beside(run: RunResults, mine: pd.DataFrame, subject: str) -> dict[str, dict[str, dict[str, Comparison]]]:
    order = {name: place for place, name in enumerate(run.explainers)}
    found: dict[str, dict[str, dict[str, Comparison]]] = {}
    for row, cell in _rows(run, mine):
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
    elif row["p_holm"] is None or row["p_holm"] >= LEVEL:
        verdict = "not told apart"
    else:
        verdict = "better" if (difference > 0) == higher else "worse"
    return Comparison(difference, low, high, row["p_holm"], verdict)


def _plain(run: RunResults, pairs: pd.DataFrame) -> dict[str, Any]:
    """The pairs as the script reads them."""
    methods = {name: place for place, name in enumerate(run.explainers)}
    metrics = {name: place for place, name in enumerate(run.metrics)}
    cells: dict[tuple[str, str, str], int] = {}
    rows: dict[str, list[float | None]] = {}
    for row, cell in _rows(run, pairs):
        numbers = [None if row[name] is None else short(row[name]) for name in ("difference", "low", "high", "p_holm")]
        key = f"{methods[row['first']]} {methods[row['second']]}"
        rows.setdefault(key, []).extend([cells.setdefault(cell, len(cells)), metrics[row["metric"]], *numbers])
    return {"level": LEVEL, "cells": [dict(zip(CELL, cell, strict=True)) for cell in cells], "pairs": rows}


def _rows(run: RunResults, pairs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], tuple[str, str, str]]]:
    for row in records(pairs):
        yield row, (row["scenario"], row["background"], row["model"])
