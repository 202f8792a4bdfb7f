"""The scores of a run as tables of explainers: one a metric with cells in columns, or one a cell with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pandas as pd

from xaibench.report.page.page_content import heading, records
from xaibench.report.read.run_results import RunResults, place
from xaibench.runfolder.tables import CELL

#: What a grid shows first: medians, as the first paper compares, or means, as the second.
View: TypeAlias = Literal["median", "mean"]


@dataclass(frozen=True)
class GridCell:
    """One explainer's scores of one metric in one cell.

    Attributes:
        median: Median score.
        mean: Mean score.
        low: Lower end of the 95 % interval of the mean.
        high: Upper end.
        sample_rank: Mean rank over the samples.
        strength: From 0 to 1 over the scores that its scale shows first; turned where lower is better.
        best: True for the best of its cell.
        mark: ``"loses"`` (its median is not above the best control's), ``"unproven"`` (it is, but it does not beat
            the controls by more than chance) or empty.
        tinted: Whether the strength is shown: for methods that are above the controls.
        bar: True for the best control of its cell: what a method must beat.
    """

    median: float | None
    mean: float | None
    low: float | None
    high: float | None
    sample_rank: float | None
    strength: float
    best: bool
    mark: str
    tinted: bool
    bar: bool


@dataclass(frozen=True)
class Column:
    """A column: the words of its head, outermost first, and whether lower scores are better."""

    head: tuple[str, ...]
    lower: bool = False


@dataclass(frozen=True)
class Grid:
    """Explainers in rows, cells or metrics in columns; None where nothing was scored."""

    title: str
    columns: list[Column]
    rows: dict[str, list[GridCell | None]]
    first: View

    @property
    def levels(self) -> list[list[tuple[str, int, bool]]]:
        """Of each line of the head: text, columns it spans, and whether the outermost word changes with it."""
        lines = []
        depth = len(self.columns[0].head) if self.columns else 0
        for level in range(depth):
            line: list[tuple[str, int, bool]] = []
            for number, column in enumerate(self.columns):
                before = self.columns[number - 1].head if number else None
                if before is not None and level < depth - 1 and before[: level + 1] == column.head[: level + 1]:
                    text, span, edge = line[-1]
                    line[-1] = (text, span + 1, edge)
                else:
                    line.append((column.head[level], 1, before is None or before[0] != column.head[0]))
            lines.append(line)
        return lines


def grids(run: RunResults, summary: pd.DataFrame) -> list[Grid]:
    """The tables of a run: by cell where there are more metrics than cells, else by metric.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.inference.infer`.
    """
    rows = [row | {"cell": tuple(str(row[key]) for key in CELL)} for row in records(summary)]
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    if len(run.leading) > len(cells):
        return [_by_cell(run, [row for row in rows if row["cell"] == cell], cell) for cell in cells]
    return [_by_metric(run, [row for row in rows if row["metric"] == metric], metric) for metric in run.metrics]


def _by_metric(run: RunResults, rows: Sequence[dict[str, Any]], metric: str) -> Grid:
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    places = [[place(cell[0]), *([place(cell[1])] if run.has_backgrounds else [])] for cell in cells]
    heads = [(*words, run.models[cell[2]].label) for words, cell in zip(places, cells, strict=True)]
    medians = [row["median"] for row in rows]
    scales = dict.fromkeys(cells, medians)
    lines = {(row["explainer"], row["cell"]): row for row in rows}
    table = _lines(run, lines, cells, scales, "median")
    return Grid(run.metrics[metric].label, [Column(head) for head in heads], table, "median")


def _by_cell(run: RunResults, rows: Sequence[dict[str, Any]], cell: tuple[str, ...]) -> Grid:
    scored = {row["metric"] for row in rows}
    metrics = [metric for own in run.truths.values() for metric in own if metric in scored]
    lines = {(row["explainer"], row["metric"]): row for row in rows}
    scales = {metric: [row["mean"] for row in rows if row["metric"] == metric] for metric in metrics}
    lower = {row["metric"]: not row["higher_is_better"] for row in rows}
    words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
    columns = [Column((*_of_truth(run, metric), run.metrics[metric].label), lower[metric]) for metric in metrics]
    table = _lines(run, lines, metrics, scales, "mean")
    return Grid(" · ".join(word for word in words if word), columns, table, "mean")


def _of_truth(run: RunResults, metric: str) -> list[str]:
    """Above the metrics of each kind of truth its name, where there are several."""
    return [heading(run.metrics[metric].truth)] if len(run.truths) > 1 else []


def _lines(
    run: RunResults,
    rows: Mapping[Any, dict[str, Any]],
    columns: Sequence[Any],
    scales: Mapping[Any, list[float | None]],
    view: View,
) -> dict[str, list[GridCell | None]]:
    """The body of a grid; ``rows`` by explainer and column."""
    best: dict[Any, float] = {}
    bar: dict[Any, float] = {}
    for (_, column), row in rows.items():
        for ranks in (best, bar) if row["control"] else (best,):
            if row["rank"] is not None:
                ranks[column] = min(row["rank"], ranks.get(column, row["rank"]))
    table: dict[str, list[GridCell | None]] = {}
    for name in run.explainers:
        found = [(column, rows.get((name, column))) for column in columns]
        if any(row for _, row in found):
            table[name] = [
                None if row is None else _cell(row, scales[column], best.get(column), bar.get(column), view)
                for column, row in found
            ]
    return table


def _cell(
    row: dict[str, Any], scale: list[float | None], best: float | None, bar: float | None, view: View
) -> GridCell:
    known = [value for value in scale if value is not None]
    span = max(known, default=0.0) - min(known, default=0.0)
    strength = 0.0 if row[view] is None or not span else float((row[view] - min(known)) / span)
    loses, unproven = row["above_controls"] is False, row["beats_controls"] is False
    return GridCell(
        **{name: row[name] for name in ("median", "mean", "low", "high", "sample_rank")},
        strength=round(strength if row["higher_is_better"] else 1 - strength, 2),
        best=row["rank"] is not None and row["rank"] == best,
        mark="loses" if loses else "unproven" if unproven else "",
        tinted=bool(row["above_controls"]),
        bar=bool(row["control"]) and row["rank"] is not None and row["rank"] == bar,
    )
