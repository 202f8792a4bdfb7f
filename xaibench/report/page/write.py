"""Writes the report: a single HTML page that loads nothing from the network, with its tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from xaibench.core.files import write_file
from xaibench.plots.run_figures import forest_content
from xaibench.report.page.content import (
    accuracy_rows,
    citations,
    counts,
    facts,
    left_out_text,
    method_pairs,
    own_comparisons,
    page_values,
    parameters,
    records,
    scored_rule,
    scored_text,
    subject,
    unlearned_text,
    unranked,
    verdict,
)
from xaibench.report.page.figure_files import FigureWriter, Findings, compute_findings, start_helper
from xaibench.report.page.samples import browser, map_strip, sheet_tables
from xaibench.report.page.tables import grid_tables, page_tables
from xaibench.report.page.templating import json_block, script, template_environment
from xaibench.runfolder.sample_file import MOST_VOXELS
from xaibench.runfolder.schema import CELL, COMPARISONS, SUMMARY, RunFolderError
from xaibench.scores import published_comparison as published
from xaibench.scores.cells import BUNDLES
from xaibench.scores.claims import claims, exclusions
from xaibench.scores.leaderboards import (
    best_by_cell,
    first_places,
    leaderboards_by_truth,
    overall_comparisons,
    printable,
    reproducibility,
)
from xaibench.scores.metric_agreement import mean_agreements, table_4
from xaibench.scores.render import to_csv, to_latex
from xaibench.scores.results import RunResults, read_run
from xaibench.scores.run_time import costs
from xaibench.scores.shares import SHARE_LABELS, share_bars
from xaibench.scores.signal_to_noise import accuracy_summary, chosen_ratios
from xaibench.scores.summary import (
    ALL_PAIRS,
    count_unscored,
    infer,
    min_accuracy,
    promises,
    summarize,
    undefined,
    unscored_notes,
)


def write_report(run_dir: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the tables, figures and page of a run into its folder.

    Writes ``summary.csv``, ``comparisons.csv`` (paired tests of methods), ``tables/*.csv`` and ``*.tex`` (the tables of
    the page), ``figures/*.png``, ``figures/*.svg`` (photographs: ``.jpg``) and ``report.html``. Each file is written to
    a temporary name and then renamed, so no file is ever incomplete, and a failing report leaves the previous one
    unchanged.

    Args:
        run_dir: Folder that ``xaibench run`` wrote, or its address, such as ``"s3://bucket/run"``. Only
            ``scores.parquet`` is required.
        out: Folder to write to; by default ``run_dir``. Required if that is an address.

    Returns:
        Path of the page.

    Raises:
        RunFolderError: If the folder has no scores, or one of its files is damaged.
        OSError: If the folder cannot be written.
    """
    return make_report(run_dir, out).page


@dataclass(frozen=True)
class Report:
    """A written report.

    Attributes:
        page: Path of the page.
        ranked: As :func:`ranked_methods`.
        best: As :func:`best_methods`; without scores, the test accuracies or the chosen signal-to-noise ratios.
        warning: Which scored networks have not learned their task; empty if all have.
        notes: Sentences about the user's own methods, methods that are not ranked, samples that count, controls that
            are not ranked, maps that were scored as chance, and undefined scores.
    """

    page: Path
    ranked: dict[str, pd.DataFrame]
    best: pd.DataFrame
    warning: str
    notes: list[str]


def make_report(
    run_dir: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, helper: Executor | None = None
) -> Report:
    """Write the report, and return the tables that the command prints.

    Args:
        run_dir: As for :func:`write_report`.
        out: As for :func:`write_report`.
        helper: Executor with a single process, which draws figures while this process does the rest.
    """
    if helper is not None:
        start_helper(helper)
    run = read_run(run_dir)
    if out is None and not isinstance(run.path, Path):
        raise RunFolderError(
            f"{run_dir} is an address, not a local folder; say into which folder the report goes: --out FOLDER."
        )
    target = Path(out) if out is not None else run.path
    findings = compute_findings(run)
    figures = FigureWriter(run, findings, target / "figures")
    begun = None if helper is None else figures.begin(helper)
    write_file(target / SUMMARY.name, SUMMARY.to_csv(findings.summary))
    overall = overall_comparisons(findings.boards)
    comparisons = pd.concat([findings.pairs, overall.assign(**dict.fromkeys(CELL, ALL))], ignore_index=True)
    comparisons = comparisons.astype(dict.fromkeys(("n_valid", "n_groups"), "Int64"))
    write_file(target / COMPARISONS.name, COMPARISONS.to_csv(comparisons))
    page = _render(run, findings, overall, lambda: figures.finish(begun), target)
    write_file(target / "report.html", page)
    leaderboards = {truth: board.standings.board() for truth, board in findings.boards.items()}
    ranked, best = _printable(run, leaderboards), best_by_cell(run, findings.summary, leaderboards)
    if run.scores.empty:
        best = accuracy_summary(run)
    notes = [
        *own_comparisons(run, findings.boards, overall),
        *unranked(run, findings.boards),
        *filter(None, [scored_text(run), left_out_text(run), run.answers_text]),
        *_unscored(run),
    ]
    return Report(target / "report.html", ranked, best, unlearned_text(run), notes)


def _unscored(run: RunResults) -> list[str]:
    return unscored_notes(count_unscored(run.scores), {name: part.label for name, part in run.explainers.items()})


def ranked_methods(run_dir: str | os.PathLike[str]) -> dict[str, pd.DataFrame]:
    """Return the leaderboards over all cells as text, to print at the end of a run.

    Args:
        run_dir: Folder that ``xaibench run`` wrote.

    Returns:
        By kind of truth (``"data"``, ``"use"``, ``"human"``, ``"intervention"``; ``"none"`` for metrics that describe
        the map alone; ``""`` in run folders without kinds of truth), one row per method and control, best mean first:
        the places that it may have, and the mean by each metric. Empty without scores.

    Raises:
        RunFolderError: If the folder has no scores, or one of its files is damaged.
    """
    run = read_run(run_dir)
    return _printable(run, leaderboards_by_truth(run, *infer(run, summarize(run))))


def _printable(run: RunResults, leaderboards: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {truth: printable(run, board) for truth, board in leaderboards.items()}


def best_methods(run_dir: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the best explainers per cell as text, to print at the end of a run.

    Args:
        run_dir: Folder that ``xaibench run`` wrote.

    Returns:
        One row per subset, variant and model with the best explainer by each metric and its mean (``"Deep SHAP
        0.931"``, with ``"(control)"`` if no method has a better mean than that control), and a last row with the ranked
        method of the best mean over all cells. Empty without scores.

    Raises:
        RunFolderError: If the folder has no scores, or one of its files is damaged.
    """
    run = read_run(run_dir)
    summary, pairs = infer(run, summarize(run))
    return best_by_cell(run, summary, leaderboards_by_truth(run, summary, pairs))


#: Subset, variant and model of the rows of ``comparisons.csv`` over all cells together.
ALL = "all"
#: Largest size of the page in bytes, with its sample browser.
MAX_PAGE_BYTES = 4_900_000
#: Placeholders of the sample browser and its data, which get the remaining bytes. Text of users is escaped and cannot
#: equal them. The data are at the end, so that the results are there before the whole page is loaded.
_SAMPLES, _SAMPLE_DATA = "<!-- samples -->", "<!-- sample data -->"


def _render(
    run: RunResults, findings: Findings, overall: pd.DataFrame, draw: Callable[[], dict[str, Markup]], target: Path
) -> str:
    templates = template_environment()
    first = subject(run, findings.boards)
    content = _page_content(run, findings, overall, first)
    tables = {table.name: table for table in page_tables(run, content)}
    for table in tables.values():
        write_file(target / "tables" / f"{table.name}.csv", to_csv(table))
        write_file(target / "tables" / f"{table.name}.tex", to_latex(table))
    values = json_block(page_values(run, findings.boards))
    page = templates.get_template("report.html.j2").render(
        run=run,
        **content,
        tables=tables,
        drawings=draw(),
        data=values,
        script=script(),
        samples=Markup(_SAMPLES),
        sample_data=Markup(_SAMPLE_DATA),
    )
    view, data = _render_samples(templates, run, MAX_PAGE_BYTES - len(page.encode()))
    return page.replace(_SAMPLES, view, 1).replace(_SAMPLE_DATA, data, 1)


def _page_content(run: RunResults, findings: Findings, overall: pd.DataFrame, first: str) -> dict[str, Any]:
    rows = {truth: board.rows() for truth, board in findings.boards.items()}
    order = list(dict.fromkeys(row["explainer"] for board in rows.values() for row in board))
    pairs = method_pairs(run, findings.pairs, overall, first, order)
    return {
        "facts": facts(run),
        "verdict": [*filter(None, [unlearned_text(run)]), *verdict(run, findings.boards)],
        "forest": forest_content(run, findings.boards),
        "strip": map_strip(run, order),
        "counts": counts(run, findings.summary),
        "boards": {truth: board for truth, board in rows.items() if board},
        "pairs": pairs,
        "pairs_data": json_block(pairs) if pairs else "",
        "parameters": parameters(run),
        "grids": grid_tables(run, findings.summary),
        "shares": share_bars(run),
        "share_words": SHARE_LABELS,
        "ranks": findings.ranks,
        "claims": claims(run),
        "claims_left_out": exclusions(run),
        "firsts": {name: shares for board in findings.boards.values() for name, shares in first_places(board).items()},
        "reproducibility": reproducibility(run),
        "scored": scored_rule(run),
        "all_scored": scored_rule(run) == "all",
        "scored_text": " ".join(filter(None, [scored_text(run), left_out_text(run)])),
        "min_accuracy": f"{min_accuracy(run):g}",
        "signed": run.settings.get("explaining", {}).get("sign") == "signed",
        "promises": [*promises(run), *(f"{name}: {said}" for name, said in run.environment.get("notes", {}).items())],
        "limits": {"pairs": ALL_PAIRS, "bundles": BUNDLES},
        "published": {
            "scores": published.scores(run, findings.summary),
            "accuracies": published.accuracies(run),
            "thresholding": published.thresholding(run),
        },
        "agreement": {
            "table": table_4(run, findings.agreements),
            "explainers": list(mean_agreements(findings.agreements)),
            "cells": len({key[:3] for key in findings.agreements}),
        },
        "curves": [(key, "-".join(("curves", *key))) for key in findings.curves],
        "budgets": findings.budgets,
        "sheets": sheet_tables(run),
        "accuracy": accuracy_rows(run),
        "ratios": chosen_ratios(run),
        "trainings": records(run.trainings),
        "undefined": records(undefined(run)),
        "unscored": _unscored(run),
        "costs": costs(run),
        "failures": records(run.failures),
        "citations": citations(run),
    }


def _render_samples(templates: jinja2.Environment, run: RunResults, room: int) -> tuple[str, str]:
    """Return the sample browser and its data, which fit into ``room`` bytes; empty without samples."""
    shown = browser(run, room)
    if not shown.cells:
        return "", ""
    view = templates.get_template("samples.html.j2").render(
        run=run, browser=shown, voxels=MOST_VOXELS, uneven=len({len(cell["samples"]) for cell in shown.cells}) > 1
    )
    data = templates.get_template("sample_data.html.j2").render(
        index=json_block([{key: cell[key] for key in ("name", *CELL)} for cell in shown.cells]),
        data=[json_block(cell) for cell in shown.cells],
    )
    return view, data
