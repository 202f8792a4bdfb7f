"""Page of a method: authors, scores per suite and cell, maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from xaibench.leaderboard.site.files import Site, SuiteEntry
from xaibench.leaderboard.site.method_summary import MethodSummary, summarize_methods
from xaibench.leaderboard.site.read import Result
from xaibench.leaderboard.site.sprites import SpriteFiles
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards
from xaibench.leaderboard.site.suite_page import plain_text
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.content import board_rows, records
from xaibench.runfolder.tables import SCORES, SUMMARY


@dataclass(frozen=True)
class MethodOnSuite:
    """A method on one suite.

    Attributes:
        entry: The suite.
        result: The submitted result.
        standings: By kind of truth: ``place``, ``last_place``, ``of``, and for each leading metric its label, mean,
            interval and range of ranks without a significant difference.
        metrics: Metric to label and direction: the columns of ``cells``.
        cells: Cell label to ``{metric: row of the summary}``.
        sprite: Address of the sprite of its maps; empty if there is none.
        samples: Address of the sprite of the samples.
        columns: Number of samples per row of the sprite.
        shown: Labels of the cells in the sprite.
        pictured: Rows of the sprite with maps of this method.
        files: Label to address of downloads, relative to the root.
        summaries: What the results show, by kind of truth.
    """

    entry: SuiteEntry
    result: Result
    standings: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Mapping[str, Any]]]
    sprite: str = ""
    samples: str = ""
    columns: int = 0
    shown: Sequence[str] = field(default_factory=list)
    pictured: Sequence[int] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    summaries: Sequence[MethodSummary] = field(default_factory=list)


def method_rows(
    site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards, pictures: SpriteFiles
) -> dict[str, MethodOnSuite]:
    """Return the content of the methods' pages for one suite, and write each method's downloads."""
    run = leaderboards.run
    standings = {truth: _standings(leaderboards, own) for truth, own in leaderboards.boards.items()}
    by_method = dict(list(leaderboards.summary.groupby("explainer", observed=True, sort=False)))
    rows_by_method: dict[str, list[dict[str, Any]]] = {}
    for row in records(leaderboards.summary):
        rows_by_method.setdefault(row["explainer"], []).append(row)
    summaries = summarize_methods(run, leaderboards.summary, leaderboards.boards)
    shown = pictures.layout
    words = [run.words_of(cell) for cell in shown.cells] if shown else []
    methods = {}
    for name, result in leaderboards.results.items():
        rows = by_method.get(name, leaderboards.summary.iloc[:0])
        cells: dict[str, dict[str, Any]] = {}
        for row in rows_by_method.get(name, []):
            cell = run.words_of((row["subset"], row["variant"], row["model"]))
            cells.setdefault(cell, {})[row["metric"]] = row
        methods[name] = MethodOnSuite(
            entry=entry,
            result=result,
            standings={truth: of[name] for truth, of in standings.items() if name in of},
            metrics={
                metric: part for metric, part in run.metrics.items() if any(metric in cell for cell in cells.values())
            },
            cells=cells,
            sprite=pictures.maps.get(name, ""),
            samples=pictures.samples,
            columns=shown.columns if shown else 0,
            shown=words,
            pictured=pictures.rows.get(name, ()),
            files=_write_downloads(site, entry, name, result, rows),
            summaries=summaries.get(name, []),
        )
    return methods


def _standings(leaderboards: SuiteLeaderboards, own: Boards) -> dict[str, dict[str, Any]]:
    leading = own.standings.leading
    return {
        row["explainer"]: {
            **{name: row[name] for name in ("place", "last_place", "cells", "of")},
            "metrics": [
                {
                    "label": leaderboards.run.metrics[metric].label,
                    **{
                        name: row[f"{name}:{metric}"]
                        for name in ("mean", "low", "high", "n", "first", "last", "beats", "against")
                    },
                }
                for metric in leading
            ],
        }
        for row in board_rows(own)
    }


def _write_downloads(site: Site, entry: SuiteEntry, name: str, result: Result, rows: pd.DataFrame) -> dict[str, str]:
    path = f"{entry.slug}/methods/{site.methods[name]}"
    site.write_table(path, plain_text(rows[list(SUMMARY.columns)]))
    scores = f"downloads/{path}-scores.parquet"
    site.write(scores, (result.folder / SCORES.name).read_bytes())
    return {
        "Cells as CSV": f"downloads/{path}.csv",
        "Cells as Parquet": f"downloads/{path}.parquet",
        "Every score as Parquet": scores,
    }


def write_method(site: Site, name: str, rows: Sequence[MethodOnSuite]) -> None:
    """Write the page of a method.

    Args:
        site: The site.
        name: Name of the method.
        rows: The method on each suite, grouped by suite, newest last.
    """
    latest = {row.entry.suite: row for row in rows}  # the newest version of each suite
    newest = max((row.result for row in rows), key=lambda one: (one.manifest.submitted, one.manifest.suite_folder))
    page = site.method_page(name)
    text = site.render(
        "site/method.html.j2",
        page,
        {},
        method=newest.manifest,
        newest=newest,
        rows=rows,
        latest=[row for row in latest.values() if row.summaries],
        verified=sum(row.result.verdict in ("bit-equal", "equal") for row in rows),
    )
    site.write(page, text)
