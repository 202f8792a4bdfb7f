"""What the page says, worked out from the run: header, verdict, tables for the template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from xaibench.report import tables
from xaibench.report.folder import Run

#: A mean accuracy this many points below the paper's is marked.
TOLERANCE = 3.0


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries, with None for whatever is missing."""
    plain = frame.astype(object)
    return [
        {str(key): value for key, value in row.items()} for row in plain.where(plain.notna(), None).to_dict("records")
    ]


def citations(run: Run) -> list[str]:
    """The suite's publication, then those of the parts, each once."""
    parts = [*run.explainers.values(), *run.metrics.values(), *run.models.values()]
    return [text for text in dict.fromkeys([run.citation, *(part.citation for part in parts)]) if text]


def counts(run: Run, summary: pd.DataFrame) -> dict[str, int]:
    """How much was done, for the opening paragraph."""
    return {
        "cells": int(summary.groupby(tables.CELL, observed=True).ngroups) if len(summary) else len(run.accuracy),
        "methods": sum(not part.control for part in run.explainers.values()),
        "controls": sum(part.control for part in run.explainers.values()),
        "trainings": len(run.trainings),
        "scores": len(run.scores),
        "correct": int(run.scores["correct"].sum()),
        "failures": len(run.failures),
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield path, value


def facts(run: Run) -> dict[str, str]:
    """The lines of the header that the environment has an entry for."""
    leaves = list(_leaves(run.environment))

    def find(*names: str) -> Any:
        return next((v for name in names for p, v in leaves if p[-1] == name and v not in (None, "")), None)

    gpus = find("gpus") or []
    processor = [find("processor"), f"{find('cpus')} CPUs" if find("cpus") else "", *gpus, find("system")]
    engine = [find("engine"), f"{find('workers')} workers" if (find("workers") or 1) > 1 else "", find("device")]
    facts = {
        "Suite": run.suite,
        "Date": _date(find("finished", "started")),
        "Time of the last run": _duration(find("seconds")),
        "xaibench": find("xaibench"),
        "Commit": str(find("commit") or "")[:12],
        "Machine": _joined(processor),
        "Engine": _joined(engine),
    }
    return {term: str(value) for term, value in facts.items() if value not in (None, "")}


def _joined(parts: Iterable[Any]) -> str:
    return " · ".join(str(part) for part in parts if part)


def _date(text: Any) -> str:
    try:
        return datetime.fromisoformat(str(text)).strftime("%d %B %Y, %H:%M %Z").strip()
    except ValueError:
        return str(text or "")


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{rest} s" if not hours else ""]
    return " ".join(part for part in parts if part)


def verdict(run: Run, board: pd.DataFrame) -> list[str]:
    """For each metric, the best method over all cells, and which methods never beat the controls."""
    placed = records(board.dropna(subset=["place"]))
    sentences = []
    for metric, part in run.metrics.items() if placed else ():
        best = min(placed, key=lambda row: _or_last(row[f"mean_rank:{metric}"]))
        if best[f"mean_rank:{metric}"] is None:
            continue
        sentence = (
            f"By {part.label}, {run.explainers[best['explainer']].label} ranks best over all cells (mean rank "
            f"{best[f'mean_rank:{metric}']:.1f})"
        )
        if best[f"against:{metric}"]:
            beats, against = best[f"beats:{metric}"], best[f"against:{metric}"]
            sentence += f"; it beats every control in {beats} of {against} cells"
        judged = [row for row in placed if row[f"against:{metric}"]]
        never = [run.explainers[row["explainer"]].label for row in judged if row[f"beats:{metric}"] == 0]
        if never:
            sentence += f". Never better than the best control: {', '.join(never)}"
        sentence += "."
        sentences.append(sentence)
    return sentences


def _or_last(rank: float | None) -> float:
    return float("inf") if rank is None else rank


@dataclass(frozen=True)
class HeatCell:
    """A median in the table of cells.

    Attributes:
        value: Median score, or None.
        strength: From 0 to 1 over the medians of the table; turned where lower is better.
        best: True for the best of its cell.
        beats: True, False, or None for controls and where there is no control.
        bar: True for the best control of its cell: what a method must beat.
    """

    value: float | None
    strength: float
    best: bool
    beats: bool | None
    bar: bool


@dataclass(frozen=True)
class Heat:
    """Medians of one metric: explainers in rows, cells in columns, None where nothing was scored."""

    metric: str
    cells: list[tuple[str, str, str]]
    rows: dict[str, list[HeatCell | None]]


def _cell(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["scenario"], row["background"], row["model"]


def heat(run: Run, summary: pd.DataFrame, metric: str) -> Heat:
    """The medians of one metric as a table of explainers and cells."""
    rows = records(summary[summary["metric"] == metric])
    medians = [row["median"] for row in rows if row["median"] is not None]
    low, span = min(medians, default=0.0), max(medians, default=0.0) - min(medians, default=0.0)
    best: dict[tuple[str, ...], float] = {}
    bars: dict[tuple[str, ...], float] = {}
    for row in rows:
        if row["rank"] is not None:
            best[_cell(row)] = min(row["rank"], best.get(_cell(row), row["rank"]))
        if row["rank"] is not None and row["control"]:
            bars[_cell(row)] = min(row["rank"], bars.get(_cell(row), row["rank"]))

    def cell_of(row: dict[str, Any]) -> HeatCell:
        value, rank = row["median"], row["rank"]
        strength = 0.0 if value is None or not span else float((value - low) / span)
        if not row["higher_is_better"]:
            strength = 1 - strength
        return HeatCell(
            value=value,
            strength=round(strength, 2),
            best=rank is not None and rank == best[_cell(row)],
            beats=row["beats_controls"],
            bar=bool(row["control"]) and rank is not None and rank == bars[_cell(row)],
        )

    cells = list(dict.fromkeys(_cell(row) for row in rows))
    found = {(row["explainer"], *_cell(row)): row for row in rows}
    table: dict[str, list[HeatCell | None]] = {}
    for name in run.explainers:
        line = [found.get((name, *cell)) for cell in cells]
        if any(line):
            table[name] = [None if row is None else cell_of(row) for row in line]
    return Heat(metric, cells, table)


def accuracy(run: Run) -> list[dict[str, Any]]:
    """The accuracy table, with the single trainings of each cell and how the mean stands to the paper's."""
    expected = [*tables.CELL, *("alpha", "trainings", "mean", "std", "best", "learned", "paper", "difference")]
    rows = records(run.accuracy.reindex(columns=expected))
    for row in rows:
        tests = run.trainings
        for key in tables.CELL:
            tests = tests[tests[key] == row[key]] if key in tests else tests.iloc[:0]
        row["tests"] = [float(value) for value in tests.get("test_accuracy", pd.Series(dtype=float)).dropna()]
        difference = row.get("difference")
        row["standing"] = ""
        if difference is not None:
            row["standing"] = "below" if difference < -TOLERANCE else "above" if round(difference, 1) > 0 else ""
    return rows


def alternative(run: Run, name: str) -> str:
    """Text alternative of a figure."""
    kind, _, metric = name.partition("-")
    if kind == "maps":
        return f"Saliency maps ({metric})"
    what = "Box plots" if kind == "box" else "Means and standard deviations"
    return f"{what} of {run.metrics[metric].label} by scenario, model, explainer and background; numbers in the table."
