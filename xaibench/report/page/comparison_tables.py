"""The tables of comparisons: pairs of methods, reproducibility, and a paper's findings and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from xaibench.report.claims.evaluation import Claim
from xaibench.report.numbers import published_comparison as published
from xaibench.report.numbers.repetitions import Reproducibility
from xaibench.report.page.pair_comparisons import Comparison, Pairs
from xaibench.report.page.table_columns import (
    head_column,
    method_cell,
    method_css,
    metric_group,
    number_column,
)
from xaibench.report.page.templating import number, p_value, signed
from xaibench.report.read.results import RunResults, place
from xaibench.report.tables import Column, ColumnGroup, Row, Table, TableCell


def pair_tables(run: RunResults, pairs: Pairs) -> Iterator[Table]:
    """Yield, cell by cell, the comparisons of the page's subject with every other method."""
    columns = [head_column("Than", kind="method")]
    for metric in run.metrics.values():
        groups = (metric_group(metric),)
        difference: dict[str, Any] = {"css": "n first", "head_css": "n first", "format": partial(signed, digits=3)}
        columns.append(number_column("Difference", groups=groups, has_interval=True, **difference))
        columns += [number_column("Adjusted p", groups=groups, format=p_value), Column("It is", groups=groups)]
    subject = run.explainers[pairs.subject].label
    for index, (cell, methods) in enumerate(pairs.cells.items(), 1):
        rows = []
        for other, by_metric in methods.items():
            cells = [method_cell(run, other)]
            for name in run.metrics:
                cells += _comparison_cells(by_metric.get(name))
            rows.append(Row(cells, css=method_css(run, other)))
        caption, label = f"{subject} minus each other method, {cell}", f"{subject} beside the others, {cell}"
        yield Table(f"pairs-{index}", caption, columns, rows, label=label, css="beside")


def _comparison_cells(found: Comparison | None) -> list[TableCell]:
    if found is None:
        return [TableCell(css="faint"), TableCell(""), TableCell("")]
    difference = TableCell(found.difference, interval=(_as_number(found.low), _as_number(found.high)))
    return [difference, TableCell(found.p), TableCell("", badge=found.verdict)]


def _as_number(end: float | None) -> str:
    return number(end, 3)  # without the sign that a difference has


def reproducibility_table(run: RunResults, rows: Sequence[Reproducibility]) -> Table:
    """Return the variance components of the scores and the agreement of the trainings' rankings."""
    columns = [head_column("Cell"), Column("Metric")]
    columns += [number_column(label, format=_percent) for label in ("Data sets", "Trainings", "Samples", "The rest")]
    columns += [number_column("Tau", 2, css="n strong"), number_column("Range of tau"), number_column("Of trainings")]
    lines = []
    for row in rows:
        words = [place(row.cell[0]), place(row.cell[1]), run.models[row.cell[2]].label]
        cells: list[Any] = [" · ".join(filter(None, words)), run.metrics[row.metric].label, *map(_percent, row.shares)]
        lines.append(Row([*cells, row.tau[0], _range_text(row.tau[1], row.tau[2]), row.trainings]))
    caption = "Where the variance comes from, and how alike the order is"
    return Table("reproducibility", caption, columns, lines, attributes={"data-sortable": "sort.again"})


def _percent(share: float) -> str:
    return f"{number(100 * share, 0)} %"


def _range_text(low: float, high: float) -> str:
    return f"{number(low, 2)} to {number(high, 2)}"


def claims_table(run: RunResults, claims: Sequence[Claim]) -> Table:
    """Return the paper's findings tested on this run."""
    columns = [head_column("The paper says", css="wrap"), Column("Metric"), Column("Verdict", kind="strong")]
    columns += [number_column("Here", 2, css="n strong"), number_column("Interval"), Column("Holds if")]
    columns.append(Column("The number is", css="wrap"))
    rows = []
    for claim in claims:
        unit = "comparison" if claim.cells == 1 else "comparisons"
        cells: list[Any] = [claim.statement, run.metrics[claim.metric].label, claim.verdict_text, claim.value]
        cells += [_range_text(claim.low, claim.high), claim.bound_text]
        rows.append(Row([*cells, f"{claim.quantity}; {claim.cells} {unit} ({claim.place})"]))
    caption = "The paper’s findings, held against this run"
    return Table("claims", caption, columns, rows, attributes={"data-sortable": "sort.claims"})


def published_accuracy_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our accuracies next to the paper's Table 2."""
    columns = [head_column("Data set"), Column("Model"), number_column("Ours", 1, css="n strong")]
    columns += [number_column("Paper", 1)]
    columns += [number_column("Difference", is_exact=True, format=partial(signed, digits=1))]
    lines = [Row([row["set"], _network_cell(row), row["ours"], row["theirs"], row["difference"]]) for row in rows]
    caption, label = "Accuracy beside Table 2 of the paper, in percent", "Accuracy beside Table 2 of the paper"
    attributes = {"data-sortable": "sort.published"}
    return Table("published-accuracy", caption, columns, lines, label=label, attributes=attributes)


def _network_cell(row: Mapping[str, Any], before: str = "") -> TableCell:
    return TableCell(f"{before}{row['model']}", note="" if row["same_network"] else "not the paper’s")


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
                cells += _beside_paper(cell, "faint")
            lines.append(Row(cells))
    caption, label = "Mean scores beside Table 3 of the paper", "Scores beside Table 3 of the paper"
    return Table("published-scores", caption, columns, lines, label=label, css="beside")


def _beside_paper(cell: Mapping[str, Any] | None, css: str) -> list[TableCell]:
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
    caption = "Agreement of metrics beside Table 4 of the paper"
    return Table("agreement", caption, columns, lines, css="beside", region_css="tall")
