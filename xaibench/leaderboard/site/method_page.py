"""The page of a method: who made it, how it scores on each suite, cell by cell, what it costs, and its maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from xaibench.leaderboard.card import bibtex_entry
from xaibench.leaderboard.manifest import CITATION
from xaibench.leaderboard.site.files import Site, SuiteEntry
from xaibench.leaderboard.site.read import Result
from xaibench.leaderboard.site.sprites import SpriteFiles
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards
from xaibench.leaderboard.site.suite_page import LeaderboardExtras, plain_text
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.content import board_rows, records
from xaibench.runfolder.sanitize import sanitize_text
from xaibench.runfolder.tables import JOBS, SCORES, SUMMARY


@dataclass(frozen=True)
class ExplainCost:
    """What the maps of a result took.

    Attributes:
        seconds: Of explaining, on the clock; None where it does not say.
        maps: How many.
        machine: Where.
    """

    seconds: float | None
    maps: int
    machine: str


@dataclass(frozen=True)
class MethodOnSuite:
    """A method on one suite.

    Attributes:
        entry: Of the suite.
        result: What was submitted.
        standings: By kind of truth: ``place``, ``of``, ``mean_rank``, and of each leading metric its label, mean,
            interval and what it is not told apart from.
        metrics: Label and direction of each metric, as columns of ``cells``.
        cells: Words of a cell to ``{metric: row of the summary}``.
        cost: Of its maps.
        sprite: The address of its picture of maps; empty without.
        samples: The address of the picture of the samples.
        columns: How many samples a row of it shows.
        shown: The cells of the pictures, in words.
        pictured: The rows that have maps of this method.
        files: What to download, below the root: words to address.
    """

    entry: SuiteEntry
    result: Result
    standings: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Mapping[str, Any]]]
    cost: ExplainCost
    sprite: str = ""
    samples: str = ""
    columns: int = 0
    shown: Sequence[str] = field(default_factory=list)
    pictured: Sequence[int] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)


def method_rows(
    site: Site, entry: SuiteEntry, board: SuiteLeaderboards, more: LeaderboardExtras, pictures: SpriteFiles
) -> dict[str, MethodOnSuite]:
    """What the pages of the methods say of one suite; writes the files of each method to download."""
    run = board.run
    standings = {truth: _standings(board, own, more) for truth, own in board.boards.items()}
    by_method = dict(list(board.summary.groupby("explainer", observed=True, sort=False)))
    told: dict[str, list[dict[str, Any]]] = {}
    for row in records(board.summary):
        told.setdefault(row["explainer"], []).append(row)
    shown = pictures.shown
    words = [run.words_of(cell) for cell in shown.samples] if shown else []
    counted = (
        run.scores.groupby(["explainer", "metric"], observed=True).size().groupby("explainer", observed=True).max()
    )
    found = {}
    for name, result in board.results.items():
        rows = by_method.get(name, board.summary.iloc[:0])
        cells: dict[str, dict[str, Any]] = {}
        for row in told.get(name, []):
            place = run.words_of((row["subset"], row["variant"], row["model"]))
            cells.setdefault(place, {})[row["metric"]] = row
        found[name] = MethodOnSuite(
            entry=entry,
            result=result,
            standings={truth: of[name] for truth, of in standings.items() if name in of},
            metrics={
                metric: part for metric, part in run.metrics.items() if any(metric in cell for cell in cells.values())
            },
            cells=cells,
            cost=_cost(result, int(counted.get(name, 0))),
            sprite=pictures.maps.get(name, ""),
            samples=pictures.samples,
            columns=shown.columns if shown else 0,
            shown=words,
            pictured=pictures.rows.get(name, ()),
            files=_files(site, entry, name, result, rows),
        )
    return found


def _standings(board: SuiteLeaderboards, own: Boards, more: LeaderboardExtras) -> dict[str, dict[str, Any]]:
    leading = own.standings.leading
    return {
        row["explainer"]: {
            **{name: row[name] for name in ("place", "cells", "of", "mean_rank")},
            "metrics": [
                {
                    "label": board.run.metrics[metric].label,
                    **{name: row[f"{name}:{metric}"] for name in ("mean", "low", "high", "beats", "against")},
                    "tied": more.tied.get(metric, {}).get(row["explainer"]),
                    "fresh": more.fresh.get(metric, {}).get(row["explainer"]),
                }
                for metric in leading
            ],
        }
        for row in board_rows(own)
    }


def _cost(result: Result, maps: int) -> ExplainCost:
    jobs = JOBS.read(result.folder)
    mine = jobs[(jobs["stage"] == "explain") & ~jobs["failed"].astype(bool)].drop_duplicates("key", keep="last")
    machine = result.environment.get("machine", {})
    words = [str(machine.get("processor") or ""), *map(str, machine.get("gpus") or [])]
    return ExplainCost(float(mine["seconds"].sum()) if len(mine) else None, maps, " · ".join(filter(None, words)))


def _files(site: Site, entry: SuiteEntry, name: str, result: Result, rows: pd.DataFrame) -> dict[str, str]:
    place = f"{entry.slug}/methods/{site.methods[name]}"
    site.write_table(place, plain_text(rows[list(SUMMARY.columns)]))
    scores = f"downloads/{place}-scores.parquet"
    site.write(scores, (result.folder / SCORES.name).read_bytes())
    return {
        "Cells as CSV": f"downloads/{place}.csv",
        "Cells as Parquet": f"downloads/{place}.parquet",
        "Every score as Parquet": scores,
    }


def bibtex(result: Result) -> str:
    """How to cite the method, as its result says it."""
    file = result.folder / CITATION
    if file.is_file():
        return sanitize_text(file.read_text(encoding="utf-8", errors="replace")).strip()
    return bibtex_entry(result.manifest).strip()


def write_method(site: Site, name: str, rows: Sequence[MethodOnSuite]) -> None:
    """Write the page of a method.

    Args:
        site: The site.
        name: Of the method.
        rows: On each suite; those of one suite behind each other, the newest last.
    """
    newest = max((row.result for row in rows), key=lambda one: (one.manifest.submitted, one.key.words))
    page = site.method_page(name)
    method = newest.manifest.method
    text = site.render(
        "site/method.html.j2",
        page,
        {},
        method=method,
        newest=newest,
        rows=rows,
        bibtex=bibtex(newest),
        homepage=method.homepage if method.homepage.startswith(("https://", "http://")) else "",
        verified=sum(row.result.is_verified for row in rows),
    )
    site.write(page, text)
