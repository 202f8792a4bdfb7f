"""The tables of the page that document the run: trainings, parameters, undefined scores, failures and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from xaibench.report.numbers.run_time import Costs, Spent
from xaibench.report.page.table_columns import (
    head_column,
    method_cell,
    method_css,
    model_label,
    number_column,
)
from xaibench.report.page.templating import format_duration, memory, number
from xaibench.report.read.results import RunResults, place
from xaibench.report.tables import Column, Row, Table, TableCell


def trainings_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return every training."""
    labels = {key: key.replace("_", " ").capitalize() for key in rows[0]}
    columns = [
        Column(label) if i < 3 else number_column(label, format=partial(_training_value, key=key))
        for i, (key, label) in enumerate(labels.items())
    ]
    lines = []
    for row in rows:
        shown = {key: place(row[key]) for key in ("subset", "variant") if key in row}
        shown |= {"model": model_label(run, row["model"])} if "model" in row else {}
        lines.append(Row([shown.get(key, value) for key, value in row.items()]))
    attributes = {"data-sortable": "sort.trainings"}
    return Table(
        "trainings", "Every training", columns, lines, label="Trainings", region_css="tall", attributes=attributes
    )


def _training_value(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value, 4 if key == "val_loss" else 1) if isinstance(value, float) else str(value)


def parameters_table(run: RunResults, parameters: Mapping[str, Sequence[tuple[str, str, bool]]]) -> Table:
    """Return the parameters of each method."""
    columns = [head_column("Method", kind="method"), Column("Name", kind="code")]
    columns.append(Column("Parameters", kind="parameters", css="wrap"))
    rows = []
    for name, values in parameters.items():
        text = ", ".join(f"{key} = {value}" for key, value, _ in values) or "none"
        rows.append(Row([method_cell(run, name), name, TableCell(text, detail=values)], css=method_css(run, name)))
    return Table("methods", "Parameters of the methods", columns, rows, css="parameters")


def undefined_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the number of undefined scores, and of scores of maps scored as chance, by method, metric and reason."""
    columns = [head_column("Method", kind="method"), Column("Metric"), Column("Reason")]
    columns += [number_column(label, format="{:,}".format, is_exact=True) for label in ("Scores", "Of")]
    columns.append(number_column("Share", format=_percent, is_exact=True))
    lines = []
    for row in rows:
        cells: list[Any] = [method_cell(run, row["explainer"]), run.metrics[row["metric"]].label, row["reason"]]
        lines.append(Row([*cells, row["undefined"], row["of"], row["share"]]))
    caption = "Undefined scores and maps scored as chance, by method, metric and reason"
    label = "Table of undefined scores"
    return Table("undefined", caption, columns, lines, label=label, attributes={"data-sortable": "sort.undefined"})


def _percent(share: float) -> str:
    return f"{number(100 * share, 1)} %"


def failures_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the failed jobs."""
    keys = list(rows[0])
    columns = [Column(key.capitalize(), css="error" if key == keys[-1] else "") for key in keys]
    lines = [Row(["" if value is None else value for value in row.values()]) for row in rows]
    return Table("failures", "Failed jobs", columns, lines, label="Table of failures", css="failures")


#: The stages whose time is listed by method, model and metric.
_STAGES = {"method": ("explain", "score"), "model": ("train", "explain", "score"), "metric": ("score",)}


def time_tables(costs: Costs) -> Iterator[Table]:
    """Yield the time by stage; by method, model and metric; and the longest jobs."""
    yield _stages_table(costs)
    by_part = {"method": costs.explainers, "model": costs.models, "metric": costs.metrics}
    for index, (key, rows) in enumerate(((key, rows) for key, rows in by_part.items() if rows), 1):
        yield _part_table(key, rows, f"time-{index}")
    yield _longest_table(costs)


def _stages_table(costs: Costs) -> Table:
    columns = [head_column("Stage"), number_column("Time", format=format_duration, css="n strong"), _share_column()]
    columns += [number_column(label, format="{:,}".format) for label in ("Jobs", "Reused")]
    columns += [number_column("Waiting", format=_whole_percent), number_column("Largest process", format=memory)]
    most = max((spent.share for spent in costs.stages.values()), default=0.0)
    rows = []
    for stage, spent in costs.stages.items():
        cells: list[Any] = [spent.label, spent.seconds, _share_cell(spent, [stage], most), spent.jobs]
        rows.append(Row([*cells, costs.reused.get(stage), spent.waiting, spent.peak_mb]))
    return Table("time-stages", "Time by stage", columns, rows, id="time-stages", css="time")


def _part_table(key: str, rows: Sequence[Spent], name: str) -> Table:
    down = {"data-first": "down"}
    time = number_column("Time", format=format_duration, is_exact=True, css="n strong", head_attributes=down)
    columns = [head_column(key.capitalize()), time, _share_column(head_css="n", head_attributes=down)]
    lines = []
    for spent in rows:
        cells = [spent.label, round(spent.seconds, 3), _share_cell(spent, _STAGES[key], rows[0].share)]
        lines.append(Row(cells, css="is-control" if spent.control else ""))
    attributes = {"data-sortable": f"sort.{name}"}
    return Table(name, f"Time by {key}", columns, lines, id=name, css="time", attributes=attributes)


def _longest_table(costs: Costs) -> Table:
    exact: dict[str, Any] = {"is_exact": True, "head_attributes": {"data-first": "down"}}
    columns = [
        head_column("Job"),
        Column("Stage"),
        number_column("Time", format=format_duration, **exact | {"css": "n strong"}),
    ]
    columns += [number_column("Waiting", format=_whole_percent, **exact)]
    columns += [number_column("Process", format=memory, **exact)]
    rows = [
        Row([job["what"], job["stage"], job["seconds"], round(job["waiting"], 3), job["peak_mb"]])
        for job in costs.longest
    ]
    name, attributes = "time-longest", {"data-sortable": "sort.time-longest"}
    return Table(name, "The longest jobs", columns, rows, id=name, css="time", attributes=attributes)


def _share_column(**changes: Any) -> Column:
    usual: dict[str, Any] = {"kind": "bars", "css": "stack", "head_css": "", "format": _percent, "is_exact": True}
    return number_column("Share", **(usual | changes))


def _share_cell(spent: Spent, stages: Sequence[str], most: float) -> TableCell:
    return TableCell(
        round(spent.share, 5), detail={stage: spent.parts[stage] / most if most else 0.0 for stage in stages}
    )


def _whole_percent(share: float) -> str:
    return f"{number(100 * share, 0)} %"
