"""Pages of a suite: its leaderboards and the comparison of two methods, with numbers in separate files."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from xaibench.leaderboard.site.files import Site, SpriteFiles, SuiteEntry
from xaibench.leaderboard.site.results import SuiteLeaderboards
from xaibench.report.page.content import (
    PAIR_COLUMNS,
    board_values,
    comparison_settings,
    page_values,
    pair_cells,
    pair_rows,
)
from xaibench.report.page.templating import json_block
from xaibench.runfolder.schema import CELL, SUMMARY
from xaibench.scores.leaderboards import overall_comparisons
from xaibench.scores.summary import ALL_PAIRS, promises, unscored_notes

#: Placeholders in a page for content that needs all suites. HTML escaping prevents them in users' text.
CHOICE, OVERVIEW = "<!-- suite choice -->", "<!-- suites -->"
#: Selection of all cells; its numbers are part of the page.
_ALL_CELLS = ".."
#: Largest number of methods that the table of suites names as best.
_MAX_BEST = 3


class SuiteSummaryRow(NamedTuple):
    """Row of the table of suites: numbers of methods without controls and of cells, and the methods in first place."""

    entry: SuiteEntry
    methods: int
    cells: int
    best: str


def render_suite(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards, pairs_page: str) -> str:
    """Render the page of a suite, and write the data files of its cell selections.

    The page contains the placeholders :data:`CHOICE` and :data:`OVERVIEW`.

    Args:
        site: The site.
        entry: The suite.
        leaderboards: Its numbers.
        pairs_page: Address of the page that compares two methods, relative to the root.
    """
    run, results = leaderboards.run, leaderboards.results
    # The most frequent verdict, which the head of the page states once for all results.
    usual = Counter(results[name].verdict for name in run.explainers).most_common(1)[0][0]
    data = page_values(run, {}) | {"slug": entry.slug}
    del data["palette"]
    values = {truth: board_values(found) for truth, found in leaderboards.boards.items()}
    data["choices"] = list(dict.fromkeys(key for value in values.values() for key in value["boards"]))
    for key in data["choices"]:
        if key != _ALL_CELLS:
            there = {truth: value["boards"][key] for truth, value in values.items() if key in value["boards"]}
            site.write_data(f"{entry.slug}/cells-{key}", there)
    data["truths"] = {
        truth: value | {"boards": {_ALL_CELLS: value["boards"][_ALL_CELLS]} if _ALL_CELLS in value["boards"] else {}}
        for truth, value in values.items()
    }
    return site.render(
        "site/suite.html.j2",
        entry.page,
        data,
        slug=entry.slug,
        run=run,
        facts=_suite_facts(entry, leaderboards, usual),
        promises=promises(run),
        unscored=unscored_notes(leaderboards.unscored, {name: part.label for name, part in run.explainers.items()}),
        boards={truth: rows for truth, found in leaderboards.boards.items() if (rows := found.rows())},
        results=results,
        usual=usual,
        pairs_page=pairs_page,
        choice=Markup(CHOICE),
        overview=Markup(OVERVIEW),
        left_out=[one for one in site.left_out if one.name.partition("/")[2] == entry.key],
    )


def _suite_facts(entry: SuiteEntry, leaderboards: SuiteLeaderboards, usual: str) -> list[str]:
    """Return the facts in the head of the page, and what rows without a mark are."""
    run = leaderboards.run
    controls = sum(part.control for part in run.explainers.values())
    verdicts = [leaderboards.results[name].verdict for name in run.explainers]  # without reference explainers
    verified = sum(verdict in ("bit-equal", "equal") for verdict in verdicts)
    state = f"{verified} of {len(verdicts)} results verified; without a mark: {usual or 'not verified'}"
    if set(verdicts) == {usual}:
        state = f"all results verified: {usual}" if verified else "no result verified yet"
    counts = (len(run.explainers) - controls, "method"), (controls, "control"), (len(run.scored_cells), "cell")
    return [
        *(f"{number} {what}{'s' * (number != 1)}" for number, what in counts),
        state,
        f"newest result {max(one.manifest.submitted for one in leaderboards.results.values())}",
        f"version {entry.version[:8]}",
    ]


def suite_summary_rows(entry: SuiteEntry, leaderboards: SuiteLeaderboards) -> dict[str, SuiteSummaryRow]:
    """Return the rows of this suite in the table of suites, by kind of truth."""
    summary = {}
    for truth, own in leaderboards.boards.items():
        if rows := own.rows():
            labels = [leaderboards.run.explainers[row["explainer"]].label for row in rows if row["place"] == 1]
            more = f" and {len(labels) - _MAX_BEST} more" if len(labels) > _MAX_BEST else ""
            best = ", ".join(labels[:_MAX_BEST]) + more
            methods = sum(not row["control"] for row in rows)
            summary[truth] = SuiteSummaryRow(entry, methods, len(own.standings.cells), best)
    return summary


def write_tables(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards) -> None:
    """Write the downloadable tables of the suite: leaderboard and cells."""
    site.write_table(f"{entry.slug}/leaderboard", pd.DataFrame(_leaderboard_rows(entry, leaderboards)))
    site.write_table(f"{entry.slug}/cells", plain_text(leaderboards.summary[list(SUMMARY.columns)]))


def plain_text(table: pd.DataFrame) -> pd.DataFrame:
    """Convert the categorical columns of a table to text."""
    return table.astype({name: str for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)})


_METRIC_COLUMNS = (
    *("mean", "low", "high", "n", "first", "last", "ahead", "beats", "against"),
    *("above", "best", "median", "mean_rank"),
)


def _leaderboard_rows(entry: SuiteEntry, leaderboards: SuiteLeaderboards) -> list[dict[str, Any]]:
    rows = []
    for truth, own in leaderboards.boards.items():
        for row in own.rows():
            name = row["explainer"]
            for metric in own.standings.metrics:
                rows.append(
                    {"suite": entry.suite, "version": entry.version, "truth": truth}
                    | {"method": name, "label": leaderboards.run.explainers[name].label, "control": row["control"]}
                    | {"verified": leaderboards.results[name].verdict, "metric": metric}
                    | {"cells": row[f"cells:{metric}"], "of": row[f"of:{metric}"]}
                    | {column: row[f"{column}:{metric}"] for column in _METRIC_COLUMNS}
                )
    return rows


#: Columns written in single precision, because there may be millions of pairs.
_SINGLE_PRECISION = [*PAIR_COLUMNS, "p"]


def render_pairs(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards, pictures: SpriteFiles) -> str:
    """Render the page for two methods, and write the data file of each method.

    Args:
        site: The site.
        entry: The suite.
        leaderboards: Its numbers.
        pictures: Sprites of its samples and maps.
    """
    run, names = leaderboards.run, list(leaderboards.run.explainers)
    comparisons = overall_comparisons(leaderboards.boards), leaderboards.pairs
    cells = list(dict.fromkeys(pair_cells(leaderboards.pairs)))
    for number, name in enumerate(names):  # each method has a file of its pairs with all later ones
        mine = (table[table["first"] == name] for table in comparisons)
        site.write_data(f"{entry.slug}/pairs-{number}", pair_rows(run, cells, *mine))
    order = list(dict.fromkeys(row["explainer"] for own in leaderboards.boards.values() for row in own.rows()))
    pairs = {"subject": order[0] if order else names[0], "whole": True, **comparison_settings(cells, order)}
    pairs |= {"pairs": {}, "files": {}}
    data = page_values(run, {}) | {
        "slug": entry.slug,
        "sprites": [pictures.maps.get(name, "") for name in names],
        "pictured": [pictures.rows.get(name, ()) for name in names],
        "shown": [dict(zip(CELL, cell, strict=True)) for cell in pictures.cells],
    }
    del data["palette"]
    return site.render(
        "site/pairs.html.j2",
        f"pairs/{entry.slug}.html",
        data,
        entry=entry,
        run=run,
        pairs_data=json_block(pairs),
        pictures=pictures,
        limit=ALL_PAIRS,
    )


def write_pairs(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards) -> None:
    """Write all pairs for download, as Parquet and gzipped CSV."""
    import pyarrow as pa
    import pyarrow.csv

    folder = site.folder / "downloads" / entry.slug
    folder.mkdir(parents=True, exist_ok=True)
    table = plain_text(leaderboards.pairs)
    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    table = table.astype(dict.fromkeys(text, "category") | dict.fromkeys(_SINGLE_PRECISION, "float32"))
    table.to_parquet(folder / "pairs.parquet", index=False, compression="zstd")
    columns = pa.Table.from_pandas(table, preserve_index=False)
    kinds = [pa.field(one.name, pa.string() if one.name in text else one.type) for one in columns.schema]
    content = io.BytesIO()
    pyarrow.csv.write_csv(columns.cast(pa.schema(kinds)), content)
    site.write(f"downloads/{entry.slug}/pairs.csv.gz", gzip.compress(content.getvalue(), compresslevel=1, mtime=0))
