"""Columns and cells that several tables of the page share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from xaibench.benchmarks.facets import DATASET_HEADING, facet_headings
from xaibench.report.page.templating import number
from xaibench.report.read.results import RunResults, place
from xaibench.report.tables import Column, ColumnGroup, Row, TableCell
from xaibench.runfolder.descriptions import PartDescription

#: Footnote marks of the scores that do not beat the controls.
UNPROVEN, LOSES = "†", "▾"
_FLAG_NOTE = (
    "dagger: not significantly better than the controls; double dagger: mean not better than the best control's"
)


def number_column(label: str, digits: int = 0, **changes: Any) -> Column:
    """Return a column of numbers with ``digits`` decimals."""
    usual: dict[str, Any] = {"format": partial(number, digits=digits), "is_number": True, "css": "n", "head_css": "n"}
    return Column(label, **(usual | changes))


def head_column(label: str, **changes: Any) -> Column:
    """Return a column whose cells are the headings of their rows."""
    return Column(label, is_row_head=True, **changes)


def place_columns(run: RunResults) -> list[Column]:
    """Return the columns for subset and variant, or for the data set if the run has no variants."""
    headings = facet_headings(run.subsets) if run.has_variants else (DATASET_HEADING,)
    return [Column(heading) for heading in headings]


def place_labels(run: RunResults, subset: str, variant: str) -> list[str]:
    """Return the values of :func:`place_columns`."""
    return [place(subset), place(variant)] if run.has_variants else [place(subset)]


def model_label(run: RunResults, model: str) -> str:
    """Return the label of a model; its name if the run does not describe it."""
    return run.models[model].label if model in run.models else model


def method_cell(run: RunResults, name: str) -> TableCell:
    """Return the cell with a method's label; controls and the user's own methods are marked on the page."""
    part = run.explainers[name]
    return TableCell(part.label, detail={"kind": method_kind(part), "own": part.own})


def method_css(run: RunResults, name: str) -> str:
    """Return the class of a method's row."""
    kind = method_kind(run.explainers[name])
    return f"is-{kind}" if kind else ""


def method_kind(part: PartDescription) -> str:
    """Return ``"control"``, ``"own"`` for the user's own methods, or an empty string."""
    return "control" if part.control else "own" if part.own else ""


def metric_group(part: PartDescription, key: str = "", caution: str = "") -> ColumnGroup:
    """Return the heading above the columns of a metric."""
    return ColumnGroup(part.label, "↑" if part.higher_is_better else "↓", "‡" if caution else "", caution, key)


def flag_notes(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the explanation of the footnote marks if some cell has one."""
    flagged = any(isinstance(cell, TableCell) and cell.flag for row in rows for cell in row.cells)
    return (_FLAG_NOTE,) if flagged else ()
