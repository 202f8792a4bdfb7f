"""The tables of scores: leaderboards, scores per cell, all numbers, accuracies, shares and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from xaibench.report.figures.budgets import BudgetScore, BudgetScores
from xaibench.report.page.score_grids import Grid, GridCell
from xaibench.report.page.share_tables import SHARE_LABELS, ShareBars, ShareMeans
from xaibench.report.page.table_columns import (
    LOSES,
    UNPROVEN,
    flag_notes,
    head_column,
    method_cell,
    method_css,
    method_kind,
    metric_group,
    model_label,
    number_column,
    place_columns,
    place_labels,
)
from xaibench.report.page.templating import number, signed
from xaibench.report.read.results import RunResults
from xaibench.report.tables import Column, ColumnGroup, Row, Table, TableCell


def leaderboard_table(run: RunResults, truth: str, board: Sequence[Mapping[str, Any]], suffix: str) -> Table:
    """Return the leaderboard of one kind of truth; of several metrics, most columns are hidden until one is chosen."""
    metrics, shown = list(run.metrics), run.truths[truth]
    leading = sum(name in run.leading for name in shown)
    columns = [
        _board_column("Place", "place", 0, css="n place", kind="board_rank"),
        head_column("Method", kind="board_method", head_attributes={"data-key": "method"}),
    ]
    for name in shown:
        columns += _metric_columns(run, name, metrics.index(name), leading)
    rows = [_board_row(run, row, shown) for row in board]
    tail = f": {truth}" if suffix else ""
    return Table(
        name=f"leaderboard{suffix}",
        caption=f"Methods by mean score{tail}",
        columns=columns,
        rows=rows,
        notes=flag_notes(rows),
        label=f"Table of the leaderboard{tail}",
        id=f"board{suffix}",
        css="board details" if leading == 1 else "board",
        attributes={"data-sortable": "sort"},
    )


def _board_column(label: str, key: str, digits: int, **changes: Any) -> Column:
    usual: dict[str, Any] = {"kind": "board_value", "is_exact": True}
    usual |= {"head_attributes": {"data-key": key}, "attributes": {"data-k": key}}
    return number_column(label, digits, **(usual | changes))


def _metric_columns(run: RunResults, name: str, index: int, leading: int) -> list[Column]:
    """Return the columns of a metric; ``leading`` is the number of metrics that are shown next to each other."""
    metric = run.metrics[name]
    groups = (metric_group(metric, str(index), run.cautions.get(name, "")),)
    best_first = {"data-first": "down"} if metric.higher_is_better else {}
    median = f"{run.metrics[run.raw[name]].label}, median" if name in run.raw else "Median"

    def column(label: str, key: str, digits: int, css: str, first: Mapping[str, str], **changes: Any) -> Column:
        usual: dict[str, Any] = {"groups": groups, "css": css, "head_css": css, "is_hidden": leading > 1}
        usual["is_detail"] = "detail" in css
        usual["head_attributes"] = {"data-key": f"{key}:{name}", "data-m": index, **first}
        usual["attributes"] = {"data-k": key, "data-m": index}
        return _board_column(label, key, digits, **(usual | changes))

    interval = {"unit": ", 95 % interval", "has_interval": True, "kind": "board_interval"}
    raw, down = " raw" if name in run.raw else "", {"data-first": "down"}
    detail, beats = " detail" if leading > 2 else "", {"kind": "board_share", "is_hidden": leading > 2}
    return [
        column("Mean", "mean", 3, "first interval", best_first, **interval, is_hidden=False),
        column("Beats controls", "beats", 0, f"n{detail}", down, **beats),
        column("Place", "first", 0, "n detail", {}, kind="board_rank"),
        column(median, "median", 3, "n detail", best_first, head_css=f"n detail{raw}"),
        column("Scores", "n", 0, "n detail", down),
    ]


def _board_row(run: RunResults, row: Mapping[str, Any], shown: Sequence[str]) -> Row:
    method = run.explainers[row["explainer"]]
    about = {"kind": method_kind(method), "own": method.own, "cells": row["cells"], "of": row["of"]}
    cells: list[Any] = [
        _place_cell(row["place"], row["last_place"], row["ahead"]),
        TableCell(method.label, detail=about),
    ]
    for name in shown:
        against = row[f"against:{name}"]
        cells += [
            TableCell(row[f"mean:{name}"], interval=(row[f"low:{name}"], row[f"high:{name}"])),
            _share_cell(row[f"beats:{name}"], against),
            _place_cell(row[f"first:{name}"], row[f"last:{name}"], row[f"ahead:{name}"]),
            row[f"median:{run.raw.get(name, name)}"],
            row[f"n:{name}"],
        ]
    css = "is-control" if row["control"] else " ".join(["is-first"] * (row["place"] == 1) + ["is-own"] * method.own)
    return Row(cells, css=css, attributes={"data-e": row["explainer"]})


def _place_cell(first: int | None, last: int | None, ahead: int | None) -> TableCell:
    """Return a rank interval, such as 1–4, which is sorted by its first rank; flagged if not ahead of the controls."""
    suffix = "" if first is None or first == last else f"–{last}"
    return TableCell(first, suffix=suffix, flag=UNPROVEN if ahead == 0 else "")


def _share_cell(part: int | None, whole: int | None) -> TableCell:
    return TableCell(part if whole else None, suffix=f" / {whole}" if whole else "")


def grid_table(run: RunResults, grid: Grid, index: int) -> Table:
    """Return the scores of every method, with one column per cell or metric."""
    columns = [head_column("Method", kind="method", head_css="left")]
    for i, column in enumerate(grid.columns):
        *outer, label = column.head
        edge = "edge" if i == 0 or column.head[0] != grid.columns[i - 1].head[0] else ""
        columns.append(
            number_column(
                label,
                3,
                **{"unit": " ↓" if column.lower else "", "groups": tuple(map(ColumnGroup, outer)), "kind": "grid"},
                **{"missing": "·", "css": edge, "head_css": edge, "has_interval": True},
            )
        )
    rows = [
        Row([method_cell(run, name), *map(_grid_cell, line)], css=method_css(run, name))
        for name, line in grid.rows.items()
    ]
    name, notes = f"scores-{index}", flag_notes(rows)
    return Table(name, grid.title, columns, rows, notes, css="heat")


def _grid_cell(cell: GridCell | None) -> TableCell:
    if cell is None or cell.mean is None:
        return TableCell(None, css="none")
    classes = {"best": cell.best, "loses": cell.mark == "loses", "is-bar": cell.bar}
    return TableCell(
        cell.mean,
        interval=(cell.low, cell.high),
        flag={"loses": LOSES, "unproven": UNPROVEN}.get(cell.mark, ""),
        is_best=cell.best,
        css=" ".join(name for name, applies in classes.items() if applies),
        style=f"--v:{cell.strength}" if cell.tinted else "",
        detail=cell,
    )


def accuracy_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the test accuracy of each cell, next to the paper's if it states one."""
    is_compared = any(row["paper"] is not None for row in rows)
    has_alpha = any(row["alpha"] is not None for row in rows)
    columns = [*place_columns(run), head_column("Model")]
    columns.append(number_column("Mean ± std", 1, is_exact=True, css="n strong"))
    if is_compared:
        difference = number_column("Difference", is_exact=True, format=partial(signed, digits=1))
        columns += [number_column("Paper", 1), difference]
    columns += [Column("", kind="strip", is_page_only=True), number_column("Best", 1)]
    columns += [number_column("Learned"), number_column("Trainings")]
    has_counts = any(row["explained"] for row in rows)
    columns += [number_column("Samples scored")] if has_counts else []
    columns += [number_column("Alpha", format=str)] if has_alpha else []
    lines = []
    for row in rows:
        cells: list[Any] = [*place_labels(run, row["subset"], row["variant"]), model_label(run, row["model"])]
        cells.append(TableCell(row["mean"], suffix=_plus_minus(row["std"])))
        if is_compared:
            difference_cell = TableCell(row["difference"], badge=row["standing"], suffix=_plus_minus(row["margin"]))
            cells += [row["paper"], difference_cell]
        cells += [TableCell(detail=row), row["best"], row["learned"], row["trainings"]]
        cells += [TableCell(row["scored"], suffix=f" of {row['explained']}")] if has_counts else []
        lines.append(Row([*cells, row["alpha"]] if has_alpha else cells))
    caption, attributes = "Test accuracy of each cell in percent", {"data-sortable": "sort.accuracy"}
    return Table("accuracy", caption, columns, lines, label="Accuracy", css="accuracy", attributes=attributes)


def _plus_minus(spread: float | None) -> str:
    return "" if spread is None else f" ± {number(spread, 1)}"


def shares_table(run: RunResults, bars: ShareBars) -> Table:
    """Return the shares of the maps' mass with their intervals."""
    columns = [*place_columns(run), Column("Model"), head_column("Method", kind="method")]
    exact = {"is_exact": True, "has_interval": True}
    columns += [number_column(label.capitalize(), 3, **exact) for label in SHARE_LABELS]
    rows = []
    for found in bars.every:
        if found.means[0] != found.means[0]:
            continue
        cells: list[Any] = [*place_labels(run, *found.cell[:2]), run.models[found.cell[2]].label]
        cells.append(_method_or_reference(run, bars, found))
        pairs = zip(found.means, found.intervals, strict=True)
        rows.append(Row([*cells, *(TableCell(mean, interval=ends) for mean, ends in pairs)]))
    return Table(
        name="shares",
        caption="Shares of each map’s mass with their 95 % intervals",
        columns=columns,
        rows=rows,
        label="Shares with their intervals",
        region_css="tall",
        attributes={"data-sortable": "sort.shares"},
    )


def _method_or_reference(run: RunResults, bars: ShareBars, found: ShareMeans) -> TableCell:
    if found.explainer in run.explainers:
        return method_cell(run, found.explainer)
    return TableCell(bars.reference, detail={"kind": "reference", "own": False})


def reference_table(run: RunResults, bars: ShareBars) -> Table:
    """Return the mean scores of the reference, as if it were a method."""
    columns = [*place_columns(run), head_column("Model"), *(number_column(label, 2) for label in bars.scored)]
    rows = []
    for found in bars.every:
        if found.explainer == bars.every[0].explainer:
            cells: list[Any] = [*place_labels(run, *found.cell[:2]), run.models[found.cell[2]].label]
            rows.append(Row([*cells, *(means.get(found.cell) for means in bars.scored.values())]))
    caption, label = f"Mean scores of {bars.reference}", f"Scores of {bars.reference}"
    attributes = {"data-sortable": "sort.reference"}
    return Table("reference", caption, columns, rows, label=label, attributes=attributes)


def budget_tables(run: RunResults, found: Mapping[str, BudgetScores]) -> Iterator[Table]:
    """Yield, metric by metric, the scores at each budget and the scores of the methods with a fixed cost."""
    for index, (name, scores) in enumerate(found.items(), 1):
        label = run.metrics[name].label
        columns = [head_column("Method", head_css="left")]
        for budget in scores.budgets:
            columns += _budget_columns(f"{budget:,} passes", f"Place at {budget:,}")
        rows = []
        for method, line in scores.methods.items():
            rows.append(Row([method, *(cell for b in scores.budgets for cell in _budget_cells(line.get(b)))]))
        caption = f"{label} at each budget (passes per image): mean over {scores.cells} cells, 95 % interval"
        yield Table(
            name=f"budgets-{index}",
            caption=f"{caption} and the place",
            columns=columns,
            rows=rows,
            label=f"{label} at each budget",
            attributes={"data-sortable": f"sort.budgets-{index}"},
        )
        if scores.fixed:
            yield _fixed_budget_table(scores, label, index)


def _fixed_budget_table(scores: BudgetScores, label: str, index: int) -> Table:
    columns = [head_column("Fixed number of passes", head_css="left"), number_column("Passes")]
    columns += _budget_columns(label, f"Place at {scores.budgets[-1]:,}")
    rows = [
        Row([method, "" if passes is None else passes, *_budget_cells(score)])
        for method, (passes, score) in scores.fixed.items()
    ]
    for name, one in scores.controls.items():
        where = f" ({one.cells} of {scores.cells} cells)" if one.cells < scores.cells else ""
        rows.append(Row([name + where, 0, *_budget_cells(one)], css="is-control"))
    return Table(
        name=f"fixed-{index}",
        caption=f"{label} of the methods with a fixed number of passes, and of the controls",
        columns=columns,
        rows=rows,
        label=f"{label} of methods with a fixed number of passes",
        attributes={"data-sortable": f"sort.fixed-{index}"},
    )


def _budget_columns(score: str, rank: str) -> list[Column]:
    return [number_column(score, 3, is_exact=True, has_interval=True), number_column(rank)]


def _budget_cells(score: BudgetScore | None) -> list[TableCell]:
    if score is None:
        return [TableCell(""), TableCell("")]
    rank = TableCell(score.place, note=f"of {score.of}") if score.place else TableCell("")
    return [TableCell(score.mean, interval=(score.low, score.high)), rank]
