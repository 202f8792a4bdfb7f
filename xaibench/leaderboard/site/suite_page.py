"""The page of a suite: its leaderboards, with the numbers of every choice of cells in files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from markupsafe import Markup

from xaibench.leaderboard.site.files import Site, SuiteEntry
from xaibench.leaderboard.site.read import SuiteKey
from xaibench.leaderboard.site.significance import PublicPrivateGap, public_private_gaps, tied_ranks
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards
from xaibench.report.numbers.inference import promises
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.content import board_rows, board_values, page_values
from xaibench.runfolder.tables import CELL, SUMMARY

#: Stand in a page for what is known when all suites are read; no text of a user's can be this.
CHOICE, OVERVIEW = "<!-- suite choice -->", "<!-- suites -->"
#: The choice of all cells, which is in the page itself.
_ALL = ".."


@dataclass(frozen=True)
class LeaderboardExtras:
    """What the leaderboard of a suite says beside its numbers.

    Attributes:
        pages: Of each method, the address below the root.
        verdicts: Of each method, what its verification says; empty without.
        tied: Metric to method to the ranks that it is not told apart from.
        fresh: Metric to method to its score on fresh seeds.
    """

    pages: Mapping[str, str]
    verdicts: Mapping[str, str]
    tied: Mapping[str, Mapping[str, tuple[int, int]]]
    fresh: Mapping[str, Mapping[str, PublicPrivateGap]] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteSummaryRow:
    """What the table of suites says of one.

    Attributes:
        key: Which.
        title: For people.
        page: The address below the root.
        methods: How many, controls left out.
        cells: How many.
        best: Who has the best mean rank.
    """

    key: SuiteKey
    title: str
    page: str
    methods: int
    cells: int
    best: str


def leaderboard_extras(site: Site, board: SuiteLeaderboards, fresh: Mapping[str, Boards]) -> LeaderboardExtras:
    """What the leaderboard says beside its numbers.

    Args:
        site: The site.
        board: Of the suite.
        fresh: Of its newest round of fresh seeds, by kind of truth; empty without one.
    """
    ranked = board.ranks.items()
    tied = {metric: found for metric, ranking in ranked if (found := tied_ranks(ranking, board.pairs))}
    beside: dict[str, Mapping[str, PublicPrivateGap]] = {}
    for truth, own in board.boards.items():
        if truth in fresh:
            beside |= public_private_gaps(own, fresh[truth])
    pages = {name: site.method_page(name) for name in board.results}
    return LeaderboardExtras(pages, {name: one.verdict for name, one in board.results.items()}, tied, beside)


def render_suite(
    site: Site, entry: SuiteEntry, board: SuiteLeaderboards, more: LeaderboardExtras, pairs_page: str
) -> str:
    """The page, with :data:`CHOICE` and :data:`OVERVIEW` in it; writes the files of its choices.

    Args:
        site: The site.
        entry: Of the suite.
        board: Its numbers.
        more: What the leaderboard says beside them.
        pairs_page: The address of the page of two methods, below the root.
    """
    run = board.run
    data = page_values(run, {}) | {"slug": entry.slug}
    del data["palette"]
    values = {truth: board_values(found) for truth, found in board.boards.items()}
    data["choices"] = list(dict.fromkeys(key for value in values.values() for key in value["boards"]))
    for key in data["choices"]:
        if key != _ALL:
            there = {truth: value["boards"][key] for truth, value in values.items() if key in value["boards"]}
            site.write_data(f"{entry.slug}/cells-{key}", there)
    data["truths"] = {
        truth: value | {"boards": {_ALL: value["boards"][_ALL]} if _ALL in value["boards"] else {}}
        for truth, value in values.items()
    }
    return site.render(
        "site/suite.html.j2",
        entry.page,
        data,
        key=board.key,
        slug=entry.slug,
        run=run,
        facts=_facts(board),
        promises=promises(run),
        boards={truth: rows for truth, found in board.boards.items() if (rows := board_rows(found))},
        extras=more,
        pairs_page=pairs_page,
        choice=Markup(CHOICE),
        overview=Markup(OVERVIEW),
        left_out=[one for one in site.left_out if one.name.partition("/")[2] == board.key.words],
    )


def _facts(board: SuiteLeaderboards) -> dict[str, str]:
    run = board.run
    verified = sum(board.results[name].is_verified for name in run.explainers)  # references are ranked with none
    controls = sum(part.control for part in run.explainers.values())
    return {
        "Suite": board.key.name,
        "Version": board.key.version,
        "Methods": str(len(run.explainers) - controls),
        "Controls": str(controls),
        "Cells": str(board.summary.groupby(list(CELL), observed=True).ngroups),
        "Verified": f"{verified} of {len(run.explainers)}",
        "Newest result": max(one.manifest.submitted for one in board.results.values()),
    }


def suite_summary_rows(entry: SuiteEntry, board: SuiteLeaderboards) -> dict[str, SuiteSummaryRow]:
    """What the table of suites says of this one, by kind of truth."""
    found = {}
    for truth, own in board.boards.items():
        if rows := board_rows(own):
            first = next((board.run.explainers[row["explainer"]].label for row in rows if row["place"] == 1), "")
            methods = sum(not row["control"] for row in rows)
            found[truth] = SuiteSummaryRow(entry.key, entry.title, entry.page, methods, len(own.standings.cells), first)
    return found


def write_tables(site: Site, entry: SuiteEntry, board: SuiteLeaderboards, more: LeaderboardExtras) -> None:
    """Write the tables of the suite to download: leaderboard, cells, pairs."""
    site.write_table(f"{entry.slug}/leaderboard", pd.DataFrame(_leaderboard(board, more)))
    site.write_table(f"{entry.slug}/cells", plain_text(board.summary[list(SUMMARY.columns)]))


def plain_text(table: pd.DataFrame) -> pd.DataFrame:
    """A table with text in place of categories."""
    return table.astype({name: str for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)})


_OF_METRIC = ("mean_rank", "mean", "low", "high", "median", "best", "above", "beats", "against")


def _leaderboard(board: SuiteLeaderboards, more: LeaderboardExtras) -> list[dict[str, Any]]:
    rows = []
    for truth, own in board.boards.items():
        for row in board_rows(own):
            name = row["explainer"]
            for metric in own.standings.metrics:
                tied = more.tied.get(metric, {}).get(name, (None, None))
                gap = more.fresh.get(metric, {}).get(name)
                rows.append(
                    {"suite": board.key.name, "version": board.key.version, "round": board.key.round, "truth": truth}
                    | {"method": name, "label": board.run.explainers[name].label, "control": row["control"]}
                    | {"verified": more.verdicts[name], "place": row["place"], "cells": row["cells"], "of": row["of"]}
                    | {"mean_rank_of_truth": row["mean_rank"], "metric": metric}
                    | {column: row[f"{column}:{metric}"] for column in _OF_METRIC}
                    | {"not_told_apart_from": tied[0], "not_told_apart_to": tied[1]}
                    | {f"fresh_{name}": getattr(gap, name, None) for name in ("mean", "gap", "low", "high")}
                )
    return rows
