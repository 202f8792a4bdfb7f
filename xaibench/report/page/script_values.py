"""What the page's script works with, and the rows of its tables."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from xaibench.report.draw.sample_figures import palette
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.page_content import records
from xaibench.report.read.run_results import RunResults, place
from xaibench.runfolder.tables import KEYS


def board_rows(boards: Boards) -> list[dict[str, Any]]:
    """The rows of the leaderboard over all cells, best first; empty where nothing was ranked."""
    everything = (None, None, None)
    if everything not in boards.cells:
        return []
    board = pd.DataFrame(boards.columns(everything)).sort_values("mean_rank", kind="stable")
    whole = ["place", *(name for name in board if str(name).startswith(("best:", "above:", "beats:", "against:")))]
    return records(board.astype(dict.fromkeys(whole, "Int64")))


def summary_rows(run: RunResults, summary: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of the table of all numbers, with ``codes``: what each is of, as places in the run's orders."""
    codes = [summary[key].cat.codes.astype(str) for key in KEYS] if len(summary) else []
    rows = records(summary.drop(columns=["outliers"]))
    return [row | {"codes": " ".join(of)} for row, of in zip(rows, zip(*codes, strict=True), strict=True)]


def page_values(run: RunResults, boards: Boards) -> dict[str, Any]:
    """What the script must know: names and labels, leaderboards, the cells that have samples, the colours of maps."""
    placed = [row for row in board_rows(boards) if row["place"] is not None]
    return {
        "scenarios": [{"name": name, "label": place(name)} for name in run.scenarios],
        "backgrounds": [{"name": name, "label": place(name)} for name in run.backgrounds],
        "models": [{"name": part.name, "label": part.label} for part in run.models.values()],
        "explainers": [
            {"name": part.name, "label": part.label, "control": part.control} for part in run.explainers.values()
        ],
        "metrics": [
            {"name": part.name, "label": part.label, "higher": part.higher_is_better} for part in run.metrics.values()
        ],
        **board_values(boards),
        "leader": placed[0]["explainer"] if placed else "",
        "palette": base64.b64encode(palette().tobytes()).decode("ascii"),
    }


def board_values(found: Boards) -> dict[str, Any]:
    """What the page's script needs, as JSON-ready values.

    ``boards`` maps a choice (``"1..0"``: second scenario, any background, first model) to the number of its ``cells``;
    ``over``: for all metrics, then for each, a row ``[place, cells, of, mean rank, rank over samples]`` an explainer;
    and ``metrics``: for each a row ``[rank, mean, low, high, median, best, above, beats, against]`` an explainer.
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
_OF_METRIC = ("mean_rank", "mean", "low", "high", "median", "best", "above", "beats", "against")


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
