"""Sentences on a method's page: where it is significantly better than the controls, and where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.content import board_rows, records
from xaibench.report.results import RunResults, place
from xaibench.runfolder.tables import CELL


@dataclass(frozen=True)
class MethodSummary:
    """What the results of a method on one suite show, by the metric that orders the leaderboard of a kind of truth.

    Attributes:
        truth: Kind of truth.
        metric: Label of the metric.
        good: Sentence on the cells in which the method is significantly better than every control.
        bad: Sentence on the other cells.
        standing: Sentence that compares it with the other methods over all cells.
    """

    truth: str
    metric: str
    good: str
    bad: str
    standing: str


def summarize_methods(
    run: RunResults, summary: pd.DataFrame, boards: Mapping[str, Boards]
) -> dict[str, list[MethodSummary]]:
    """Return the summaries of each method, one per kind of truth; controls have none."""
    found: dict[str, list[MethodSummary]] = {}
    for truth, board in boards.items():
        metric = board.standings.metrics[board.standings.ranking or 0]
        table = summary[summary["metric"] == metric]
        rows = board_rows(board)
        ranked = sum(row["place"] is not None for row in rows)
        cells: dict[str, list[dict[str, Any]]] = {}
        for row in records(table[[*CELL, "explainer", "above_controls", "beats_controls"]]):
            cells.setdefault(row["explainer"], []).append(row)
        for row in rows:
            if not row["control"]:
                name = row["explainer"]
                good, bad = _against_controls(run, cells[name])
                standing = _standing(row, ranked)
                found.setdefault(name, []).append(MethodSummary(truth, run.metrics[metric].label, good, bad, standing))
    return found


def _against_controls(run: RunResults, cells: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    known = [cell for cell in cells if cell["above_controls"] is not None]
    if not known:
        return "", "There is no control to compare with."
    beaten = [cell for cell in known if cell["beats_controls"]]
    lost = [cell for cell in known if not cell["above_controls"]]
    unclear = [cell for cell in known if cell["above_controls"] and not cell["beats_controls"]]
    count = f"{len(known)} cell{'s' * (len(known) > 1)}"
    good = (
        f"Significantly better than every control in {len(beaten)} of {count}: {_places(run, beaten, known)}."
        if beaten
        else f"Not significantly better than every control in any of {count}."
    )
    bad = [
        f"Not better than the best control in {len(lost)}: {_places(run, lost, known)}." if lost else "",
        f"Better, but not significantly, in {len(unclear)}: {_places(run, unclear, known)}." if unclear else "",
    ]
    return good, " ".join(filter(None, bad)) or f"None of {count}."


def _places(run: RunResults, cells: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]) -> str:
    """Return the cells by subset and variant, with the models unless all models of that place are meant."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        found.setdefault((cell["subset"], cell["variant"]), []).append(cell["model"])
    texts = []
    for (subset, variant), models in found.items():
        every = [cell["model"] for cell in known if (cell["subset"], cell["variant"]) == (subset, variant)]
        name = " ".join(filter(None, (place(subset), place(variant))))
        some = f" ({', '.join(run.models[model].label for model in models)})" if len(models) < len(every) else ""
        texts.append(name + some)
    return "; ".join(texts)


def _standing(row: Mapping[str, Any], ranked: int) -> str:
    if row["place"] is None:
        if row["cells"] < row["of"]:
            return f"Without a place, because it has scores in {row['cells']} of {row['of']} cells only."
        return "Without a place, because it is not significantly better than the controls over all cells."
    better, worse = row["place"] - 1, ranked - row["last_place"]
    return (
        f"Of the {ranked - 1} other ranked methods, {better} {_are(better)} significantly better and {worse} "
        f"{_are(worse)} significantly worse over all cells; {ranked - 1 - better - worse} do not differ significantly."
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
