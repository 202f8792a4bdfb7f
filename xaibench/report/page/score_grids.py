"""Tables of scores with explainers in rows: one per metric with cells in columns, or one per cell with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.page.content import heading, records
from xaibench.report.read.results import RunResults, place
from xaibench.runfolder.tables import CELL


@dataclass(frozen=True)
class GridCell:
    """Scores of one explainer by one metric in one cell.

    Attributes:
        median: Median score.
        mean: Mean score.
        low: Lower end of the 95 % interval of the mean.
        high: Upper end.
        strength: Intensity of the color in [0, 1], by the mean; reversed if lower is better.
        best: Whether it is the best of its cell.
        mark: ``"loses"`` (its mean is not better than the best control's), ``"unproven"`` (it is, but not
            significantly) or empty.
        tinted: Whether the color is shown: for methods above the controls.
        bar: Whether it is the best control of its cell.
    """

    median: float | None
    mean: float | None
    low: float | None
    high: float | None
    strength: float
    best: bool
    mark: str
    tinted: bool
    bar: bool


@dataclass(frozen=True)
class GridColumn:
    """A column: its headings, outermost first, and whether lower scores are better."""

    head: tuple[str, ...]
    lower: bool = False


@dataclass(frozen=True)
class Grid:
    """Table with explainers in rows and cells or metrics in columns; None for cells without scores."""

    title: str
    columns: list[GridColumn]
    rows: dict[str, list[GridCell | None]]

    @property
    def levels(self) -> list[list[tuple[str, int, bool]]]:
        """The lines of the head: text, columns spanned, and whether the outermost heading changes here."""
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
    """Return the tables of a run: one per cell if there are more metrics than cells, otherwise one per metric.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.inference.infer`.
    """
    rows = [row | {"cell": tuple(str(row[key]) for key in CELL)} for row in records(summary)]
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    if len(run.leading) > len(cells):
        return [_cell_grid(run, [row for row in rows if row["cell"] == cell], cell) for cell in cells]
    return [_metric_grid(run, [row for row in rows if row["metric"] == metric], metric) for metric in run.metrics]


def _metric_grid(run: RunResults, rows: Sequence[dict[str, Any]], metric: str) -> Grid:
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    places = [[place(cell[0]), *([place(cell[1])] if run.has_variants else [])] for cell in cells]
    heads = [(*words, run.models[cell[2]].label) for words, cell in zip(places, cells, strict=True)]
    scales = {key: [row["mean"] for row in rows] for key in cells}
    lines = {(row["explainer"], row["cell"]): row for row in rows}
    table = _grid_rows(run, lines, cells, scales)
    return Grid(run.metrics[metric].label, [GridColumn(head) for head in heads], table)


def _cell_grid(run: RunResults, rows: Sequence[dict[str, Any]], cell: tuple[str, ...]) -> Grid:
    scored = {row["metric"] for row in rows}
    metrics = [metric for own in run.truths.values() for metric in own if metric in scored]
    lines = {(row["explainer"], row["metric"]): row for row in rows}
    scales = {metric: [row["mean"] for row in rows if row["metric"] == metric] for metric in metrics}
    lower = {row["metric"]: not row["higher_is_better"] for row in rows}
    words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
    columns = [
        GridColumn((*_truth_heading(run, metric), run.metrics[metric].label), lower[metric]) for metric in metrics
    ]
    table = _grid_rows(run, lines, metrics, scales)
    return Grid(" · ".join(word for word in words if word), columns, table)


def _truth_heading(run: RunResults, metric: str) -> list[str]:
    """Return the heading for the metric's kind of truth, if there are several kinds."""
    return [heading(run.metrics[metric].truth)] if len(run.truths) > 1 else []


def _grid_rows(
    run: RunResults,
    rows: Mapping[Any, dict[str, Any]],
    columns: Sequence[Any],
    scales: Mapping[Any, list[float | None]],
) -> dict[str, list[GridCell | None]]:
    """Return the body of a grid; ``rows`` are by explainer and column."""
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
                None if row is None else _grid_cell(row, scales[column], best.get(column), bar.get(column))
                for column, row in found
            ]
    return table


def _grid_cell(row: dict[str, Any], scale: list[float | None], best: float | None, bar: float | None) -> GridCell:
    known = [value for value in scale if value is not None]
    span = max(known, default=0.0) - min(known, default=0.0)
    strength = 0.0 if row["mean"] is None or not span else float((row["mean"] - min(known)) / span)
    loses, unproven = row["above_controls"] is False, row["beats_controls"] is False
    return GridCell(
        **{name: row[name] for name in ("median", "mean", "low", "high")},
        strength=round(strength if row["higher_is_better"] else 1 - strength, 2),
        best=row["rank"] is not None and row["rank"] == best,
        mark="loses" if loses else "unproven" if unproven else "",
        tinted=bool(row["above_controls"]),
        bar=bool(row["control"]) and row["rank"] is not None and row["rank"] == bar,
    )
