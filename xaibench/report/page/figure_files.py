"""The numbers of a run that its page, tables and figures share, each computed once."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from xaibench import plots
from xaibench.core.correlations import MetricAgreement
from xaibench.core.files import write_file
from xaibench.plots.box_plots import score_figure
from xaibench.plots.figures import Drawn, encode, inline_svg
from xaibench.plots.map_sheets import map_sheets, sheet_figure
from xaibench.plots.run_figures import (
    accuracy_figure,
    band_figure,
    budget_figure,
    curve_sets,
    forest_figure,
    ranking_figure,
    ratio_sheet,
)
from xaibench.report.page.content import alternative
from xaibench.scores.budgets import BudgetScores, budget_scores
from xaibench.scores.leaderboards import Boards, Ranking, boards, rankings
from xaibench.scores.metric_agreement import agreements, mean_agreements
from xaibench.scores.results import RunResults
from xaibench.scores.summary import infer, summarize


@dataclass(frozen=True)
class Findings:
    """The numbers of a run.

    Attributes:
        summary: From :func:`xaibench.scores.summary.infer`.
        pairs: The paired tests, from the same function.
        boards: Leaderboards by kind of truth.
        ranks: Rankings by metric.
        agreements: From :func:`xaibench.scores.metric_agreement.agreements`.
        curves: Insertion and deletion curves by data set, model and metric.
        budgets: Scores by number of passes, by metric.
    """

    summary: pd.DataFrame
    pairs: pd.DataFrame
    boards: dict[str, Boards]
    ranks: dict[str, Ranking]
    agreements: dict[tuple[str, str, str, str], MetricAgreement]
    curves: dict[tuple[str, str, str], pd.DataFrame]
    budgets: dict[str, BudgetScores]


def compute_findings(run: RunResults) -> Findings:
    """Compute the numbers of a run."""
    summary, pairs = infer(run, summarize(run))
    ranked, at_budgets = boards(run, summary, pairs), budget_scores(run, summary)
    return Findings(summary, pairs, ranked, rankings(ranked), agreements(run), curve_sets(run), at_budgets)


#: Largest length of a figure's file name, without a suffix that makes it distinct.
_MAX_NAME_LENGTH = 120


class FigureWriter:
    """Writes the figures of a run.

    A figure is written as PNG and SVG, photographs as JPEG. The files do not depend on the process that draws them.

    Args:
        run: The run.
        found: Its numbers.
        folder: Folder of the files.
    """

    def __init__(self, run: RunResults, findings: Findings, folder: Path) -> None:
        self._run, self._folder = run, folder
        self._figures = figures(run, findings)
        self._files = dict(zip(self._figures, file_names(self._figures), strict=True))

    def begin(self, helper: Executor) -> Mapping[str, Future[Markup | None]]:
        """Let a process draw the figures, first to last, while this one does something else.

        Args:
            helper: Executor with a single process.

        Returns:
            For :meth:`finish`.
        """
        helper.submit(_keep, self)
        return {name: helper.submit(_write_kept, name) for name in self._figures}

    def finish(self, begun: Mapping[str, Future[Markup | None]] | None = None) -> dict[str, Markup]:
        """Write the figures that the helper has not begun, last to first, and wait for the others.

        Args:
            begun: From :meth:`begin`; None if there is no helper.

        Returns:
            The vector drawings by name, as inline SVG, without figures that have nothing to draw.
        """
        drawn = {name: self._wait_or_write(name, (begun or {}).get(name)) for name in reversed(self._figures)}
        return {name: drawing for name in self._figures if (drawing := drawn[name]) is not None}

    def _wait_or_write(self, name: str, future: Future[Markup | None] | None) -> Markup | None:
        if future is None or future.cancel():
            return self.write(name)
        try:
            return future.result()
        except BrokenExecutor:  # the helper was killed
            return self.write(name)

    def write(self, name: str) -> Markup | None:
        """Write the files of a figure, and return it as inline SVG; None for photographs, or if there is nothing."""
        figure, file = self._figures[name](), self._files[name]
        if figure is None:
            return None
        if name.startswith("sheet-"):  # photographs
            write_file(self._folder / f"{file}.jpg", encode(figure, "jpg"))
            return None
        svg = encode(figure, "svg")
        write_file(self._folder / f"{file}.svg", svg)
        write_file(self._folder / f"{file}.png", encode(figure, "png"))
        return inline_svg(svg, file, alternative(self._run, name))


#: The writer of a helper process, which is sent to it once for all its figures.
_kept: FigureWriter | None = None


def _keep(writer: FigureWriter | None) -> None:
    global _kept
    _kept = writer


def _write_kept(name: str) -> Markup | None:
    return None if _kept is None else _kept.write(name)


def start_helper(helper: Executor) -> None:
    """Start the process of an executor, and let it import what it needs to draw."""
    helper.submit(_keep, None)


def figures(run: RunResults, findings: Findings) -> dict[str, Callable[[], Drawn]]:
    """Return the figures of a run by name, as functions that draw them; None if there is nothing to draw."""
    draw = functools.partial
    drawn: dict[str, Callable[[], Drawn]] = {"forest": draw(forest_figure, run, findings.boards)}
    drawn |= {f"box-{metric}": draw(score_figure, run, findings.summary, metric) for metric in run.metrics}
    drawn |= {sheet.name: draw(sheet_figure, run, sheet) for sheet in map_sheets(run)}
    drawn |= {f"ranks-{metric}": draw(ranking_figure, run, ranking) for metric, ranking in findings.ranks.items()}
    labels = {name: part.label for name, part in run.metrics.items()}
    for explainer, matrix in mean_agreements(findings.agreements).items():
        drawn[f"agreement-{explainer}"] = draw(plots.agreement, matrix, labels)
    drawn |= {f"budgets-{metric}": draw(budget_figure, run, scores) for metric, scores in findings.budgets.items()}
    drawn |= {"-".join(("curves", *key)): draw(band_figure, run, part, key[2]) for key, part in findings.curves.items()}
    if "alpha" in run.accuracy_keys:
        drawn |= {"ratios": draw(accuracy_figure, run), "ratio-samples": draw(ratio_sheet, run)}
    return drawn


def file_names(names: Iterable[str]) -> list[str]:
    """Return valid, distinct file names for figures, without folders.

    Example:
        >>> file_names(["box-iou", "box-../iou", "box-..:iou"])
        ['box-iou', 'box-...iou', 'box-...iou-10c6d9bf']
    """
    files: dict[str, str] = {}
    for name in names:
        file = re.sub(r"[^A-Za-z0-9_.+-]", ".", name)[:_MAX_NAME_LENGTH]
        if file.casefold() in files:
            file += f"-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"
        files[file.casefold()] = file
    return list(files.values())
