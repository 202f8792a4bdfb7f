"""The tables of reproducibility, and of a paper's findings and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from xaibench.report.claims import Claim
from xaibench.report.numbers import published_comparison as published
from xaibench.report.numbers.repetitions import Reproducibility
from xaibench.report.page.table_columns import (
    head_column,
    method_cell,
    metric_group,
    number_column,
)
from xaibench.report.page.templating import number, signed
from xaibench.report.read.results import RunResults, place
from xaibench.report.tables import Column, ColumnGroup, Row, Table, TableCell


def reproducibility_table(run: RunResults, rows: Sequence[Reproducibility]) -> Table:
    """Return the variance components of the scores and the agreement of the trainings' rankings."""
    columns = [head_column("Cell"), Column("Metric")]
    columns += [number_column(label, format=_percent) for label in ("Data sets", "Trainings", "Samples", "Residual")]
    columns += [
        number_column("Tau", 2, css="n strong"),
        number_column("Range of tau"),
        number_column("Trainings compared"),
    ]
    lines = []
    for row in rows:
        words = [place(row.cell[0]), place(row.cell[1]), run.models[row.cell[2]].label]
        cells: list[Any] = [" · ".join(filter(None, words)), run.metrics[row.metric].label, *map(_percent, row.shares)]
        lines.append(Row([*cells, row.tau[0], _range_text(row.tau[1], row.tau[2]), row.trainings]))
    caption = "Sources of variance, and agreement of the rankings"
    return Table("reproducibility", caption, columns, lines, attributes={"data-sortable": "sort.reproducibility"})


def _percent(share: float) -> str:
    return f"{number(100 * share, 0)} %"


def _range_text(low: float, high: float) -> str:
    return f"{number(low, 2)} to {number(high, 2)}"


def claims_table(run: RunResults, claims: Sequence[Claim]) -> Table:
    """Return the paper's findings tested on this run."""
    columns = [head_column("Finding", css="wrap"), Column("Metric"), Column("Verdict", kind="strong")]
    columns += [number_column("Value", 2, css="n strong"), number_column("Interval"), Column("Holds if")]
    columns.append(Column("Definition of the value", css="wrap"))
    rows = []
    for claim in claims:
        unit = "comparison" if claim.cells == 1 else "comparisons"
        cells: list[Any] = [claim.statement, run.metrics[claim.metric].label, claim.verdict_text, claim.value]
        cells += [_range_text(claim.low, claim.high), claim.bound_text]
        rows.append(Row([*cells, f"{claim.quantity}; {claim.cells} {unit} ({claim.place})"]))
    caption = "Findings of the paper in this run"
    return Table("claims", caption, columns, rows, attributes={"data-sortable": "sort.claims"})


def published_accuracy_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our accuracies next to the paper's Table 2."""
    columns = [head_column("Data set"), Column("Model"), number_column("Ours", 1, css="n strong")]
    columns += [number_column("Paper", 1)]
    columns += [number_column("Difference", is_exact=True, format=partial(signed, digits=1))]
    lines = [Row([row["set"], _network_cell(row), row["ours"], row["theirs"], row["difference"]]) for row in rows]
    caption, label = "Accuracy and Table 2 of the paper, in percent", "Accuracy and Table 2 of the paper"
    attributes = {"data-sortable": "sort.published"}
    return Table("published-accuracy", caption, columns, lines, label=label, attributes=attributes)


def _network_cell(row: Mapping[str, Any], before: str = "") -> TableCell:
    return TableCell(f"{before}{row['model']}", note="" if row["same_network"] else "another network than the paper’s")


def published_scores_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our mean scores next to the paper's Table 3."""
    columns = [head_column("Method", kind="method")]
    for metric in published.shown_metrics(run):
        groups = (metric_group(metric),)
        ours = {"has_interval": True, "css": "n first", "head_css": "n first"}
        columns.append(number_column("Ours", 3, groups=groups, **ours))
        columns += [number_column("Paper", 3, groups=groups)]
        columns += [number_column("Diff.", groups=groups, format=partial(signed, digits=3))]
    lines = []
    for _, group in groupby(sorted(rows, key=lambda row: row["place"]), key=lambda row: row["place"]):
        listed = list(group)
        lines.append(Row([_network_cell(listed[0], f"{listed[0]['set']} · ")], is_group=True))
        for row in listed:
            cells = [method_cell(run, row["explainer"])]
            for cell in row["cells"]:
                cells += _paper_cells(cell, "faint")
            lines.append(Row(cells))
    caption, label = "Mean scores and Table 3 of the paper", "Scores and Table 3 of the paper"
    return Table("published-scores", caption, columns, lines, label=label, css="compared")


def _paper_cells(cell: Mapping[str, Any] | None, css: str) -> list[TableCell]:
    if cell is None:
        return [TableCell(css=css)] * 3
    ours = TableCell(cell["ours"], interval=(cell["low"], cell["high"]), css="strong")
    return [ours, TableCell(cell["theirs"]), TableCell(cell["difference"])]


def agreement_table(run: RunResults, explainers: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our correlations of metrics next to the paper's Table 4."""
    columns = [head_column("Metrics")]
    for name in explainers:
        groups = (ColumnGroup(run.explainers[name].label),)
        columns += [number_column("Ours", 2, groups=groups, css="n first", head_css="n first")]
        columns += [number_column("n", groups=groups, css="n faint"), number_column("Paper", 1, groups=groups)]
        columns += [number_column("Diff.", groups=groups, format=partial(signed, digits=2))]
    lines = []
    for cell, group in groupby(sorted(rows, key=lambda row: str(row["cell"]).lower()), key=lambda row: row["cell"]):
        lines.append(Row([cell], is_group=True))
        for row in group:
            cells: list[Any] = [row["pair"]]
            for one in row["cells"]:
                empty = [TableCell(css="faint"), "", "", ""]
                found = one and [TableCell(one["ours"], css="strong"), one["n"], one["theirs"], one["difference"]]
                cells += found or empty
            lines.append(Row(cells))
    caption = "Agreement of metrics and Table 4 of the paper"
    return Table("agreement", caption, columns, lines, css="compared", region_css="tall")
