"""Page of a method: authors, scores per suite and cell, maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.leaderboard.site.files import Site, SpriteFiles, SuiteEntry
from xaibench.leaderboard.site.results import Result, SuiteLeaderboards
from xaibench.leaderboard.site.suite_page import plain_text
from xaibench.report.page.content import records
from xaibench.runfolder.descriptions import PartDescription
from xaibench.runfolder.schema import CELL, SCORES, SUMMARY
from xaibench.scores.leaderboards import Boards
from xaibench.scores.results import RunResults, place


@dataclass(frozen=True)
class MethodSummary:
    """Summary of a method's results on one suite, by the metric that orders the leaderboard of a kind of truth.

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


@dataclass(frozen=True)
class MethodOnSuite:
    """A method on one suite.

    Attributes:
        entry: The suite.
        result: The submitted result.
        standings: By kind of truth, its row of the leaderboard and the leading metrics.
        metrics: Metric to label and direction: the columns of ``cells``.
        cells: Cell label to ``{metric: row of the summary}``.
        pictures: Sprites of the suite.
        sprite: Address of the sprite of its maps; empty if there is none.
        files: Label to address of downloads, relative to the root.
        summaries: What the results show, by kind of truth.
    """

    entry: SuiteEntry
    result: Result
    standings: Mapping[str, tuple[Mapping[str, Any], Sequence[PartDescription]]]
    metrics: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Mapping[str, Any]]]
    pictures: SpriteFiles
    sprite: str
    files: Mapping[str, str]
    summaries: Sequence[MethodSummary]


def method_rows(
    site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards, pictures: SpriteFiles
) -> dict[str, MethodOnSuite]:
    """Return the content of the methods' pages for one suite, and write each method's downloads."""
    run = leaderboards.run
    standings = {
        truth: ({row["explainer"]: row for row in own.rows()}, [run.metrics[name] for name in own.standings.leading])
        for truth, own in leaderboards.boards.items()
    }
    by_method = dict(list(leaderboards.summary.groupby("explainer", observed=True, sort=False)))
    rows_by_method: dict[str, list[dict[str, Any]]] = {}
    for row in records(leaderboards.summary):
        rows_by_method.setdefault(row["explainer"], []).append(row)
    summaries = summarize_methods(run, leaderboards.summary, leaderboards.boards)
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
            standings={truth: (of[name], leading) for truth, (of, leading) in standings.items() if name in of},
            metrics={
                metric: part for metric, part in run.metrics.items() if any(metric in cell for cell in cells.values())
            },
            cells=cells,
            pictures=pictures,
            sprite=pictures.maps.get(name, ""),
            files=_write_downloads(site, entry, name, result, rows),
            summaries=summaries.get(name, []),
        )
    return methods


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


def summarize_methods(
    run: RunResults, summary: pd.DataFrame, boards: Mapping[str, Boards]
) -> dict[str, list[MethodSummary]]:
    """Return the summaries of each method, one per kind of truth; controls have none."""
    found: dict[str, list[MethodSummary]] = {}
    for truth, board in boards.items():
        metric = board.standings.metrics[board.standings.ranking or 0]
        table = summary[summary["metric"] == metric]
        rows = board.rows()
        comparable = sum(not row["control"] and row["cells"] == row["of"] for row in rows)
        cells: dict[str, list[dict[str, Any]]] = {}
        for row in records(table[[*CELL, "explainer", "above_controls", "beats_controls"]]):
            cells.setdefault(row["explainer"], []).append(row)
        for row in rows:
            if not row["control"]:
                name = row["explainer"]
                good, bad = _against_controls(run, cells[name])
                standing = _standing(row, comparable)
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


def _standing(row: Mapping[str, Any], comparable: int) -> str:
    if row["place"] is None:
        if row["cells"] < row["of"]:
            return f"Without a place, because it has scores in {row['cells']} of {row['of']} cells only."
        if row["ahead"]:
            return "Without a place, because it is significantly worse than a control over all cells of that control."
        return "Without a place, because it is in no cell significantly better than every control."
    better, worse = row["place"] - 1, comparable - row["last_place"]
    return (
        f"Of the {comparable - 1} other methods with scores in all cells, {better} {_are(better)} significantly better "
        f"and {worse} {_are(worse)} significantly worse over all cells; {comparable - 1 - better - worse} do not "
        "differ significantly."
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
