"""The tables of the page: rows as records, and columns that name the records' keys, most of them in ``tables.toml``."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.benchmarks.facets import DATASET_HEADING, facet_headings
from xaibench.report.page.content import heading, records
from xaibench.report.page.templating import format_duration, memory, number, signed
from xaibench.runfolder.descriptions import PartDescription
from xaibench.runfolder.schema import CELL
from xaibench.scores.budgets import BudgetScore, BudgetScores
from xaibench.scores.claims import Claim
from xaibench.scores.leaderboards import Reproducibility
from xaibench.scores.published_comparison import shown_metrics
from xaibench.scores.render import Column, ColumnGroup, GroupRow, Table, TableCell
from xaibench.scores.results import RunResults, place
from xaibench.scores.run_time import Costs, Spent
from xaibench.scores.shares import SHARE_LABELS, ShareBars
from xaibench.scores.signal_to_noise import ChosenRatio
from xaibench.scores.summary import min_accuracy

#: Footnote marks of the scores that do not beat the controls.
UNPROVEN, LOSES = "†", "▾"
_FLAG_NOTE = (
    "dagger: not significantly better than the controls; double dagger: mean not better than the best control's"
)


def _percent(share: float, digits: int = 0) -> str:
    return f"{number(100 * share, digits)} %"


_NUMBER: dict[str, Any] = {"is_number": True, "css": "n", "head_css": "n", "format": number}
_BARS = _NUMBER | {"kind": "bars", "css": "stack", "format": partial(_percent, digits=1), "is_exact": True}
#: Attributes of the kinds of columns; the digits of a number are those of its kind.
_KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "head": {"is_row_head": True},
    "method": {"kind": "method", "is_row_head": True},
    "strip": {"kind": "strip", "is_page_only": True},
    "bars": _BARS,
    "count": _NUMBER | {"format": "{:,}".format},
    "difference": _NUMBER | {"format": partial(signed, digits=1)},
    "memory": _NUMBER | {"format": memory},
    "percent": _NUMBER | {"format": _percent},
    "plain": _NUMBER | {"format": str},
    "time": _NUMBER | {"format": format_duration, "css": "n strong"},
}
_KINDS |= {str(digits): _NUMBER | {"format": partial(number, digits=digits)} for digits in range(4)}
_KINDS |= {kind: {"kind": kind} for kind in ("code", "parameters", "strong")}


def _column(label: str, key: str, kind: str = "text", changes: Mapping[str, Any] | None = None, **more: Any) -> Column:
    """Return a column of a kind.

    Args:
        label: Heading.
        key: Key of the values in the rows.
        kind: Key of :data:`_KINDS`.
        changes: Attributes that differ from those of the kind; ``digits`` is an argument of its format.
        **more: Further attributes.
    """
    attributes = _KINDS[kind] | dict(changes or {}) | more
    if "digits" in attributes:
        attributes["format"] = partial(attributes["format"], digits=attributes.pop("digits"))
    return Column(label, key, **attributes)


@functools.cache
def _layouts() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))


def _table(
    layout: str, rows: Sequence[Any], *, first: Sequence[Column] = (), last: Sequence[Column] = (), **changes: Any
) -> Table:
    """Return a table of ``tables.toml``.

    Args:
        layout: Its name.
        rows: Its rows.
        first: Columns in front of those of the file.
        last: Columns behind them.
        **changes: Attributes that differ from those of the file.
    """
    attributes: dict[str, Any] = {"name": layout, "row_css": _row_css} | _layouts()[layout]
    columns = []
    for label, key, kind, *rest in attributes.pop("columns"):
        changed = dict(rest[0]) if rest else {}
        if not changed.pop("is_optional", False) or any(_has_value(row[key]) for row in rows):
            columns.append(_column(label, key, kind, changed))
    return Table(**attributes | changes, columns=[*first, *columns, *last], rows=rows)


def _has_value(cell: Any) -> bool:
    return (cell.value if isinstance(cell, TableCell) else cell) is not None


def _place_columns(run: RunResults) -> list[Column]:
    """Return the columns for subset and variant, or for the data set if the run has no variants."""
    headings = facet_headings(run.subsets) if run.has_variants else (DATASET_HEADING,)
    return [Column(name, key) for name, key in zip(headings, ("subset", "variant"), strict=False)]


def _labeled(run: RunResults, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with labels in place of names, and the cell ``method`` and the classes ``css`` of its method."""
    labels: dict[str, Any] = {key: place(row[key]) for key in ("subset", "variant") if key in row}
    for key, parts in (("model", run.models), ("metric", run.metrics)):
        if key in row:
            labels[key] = parts[row[key]].label if row[key] in parts else row[key]
    method = run.explainers.get(row.get("explainer", ""))
    if method is not None:
        detail = _describe_method(method)
        css = f"is-{detail['kind']}" if detail["kind"] else ""
        labels |= {"method": TableCell(method.label, detail=detail), "css": css}
    return {**row, **labels}


def _describe_method(method: PartDescription) -> dict[str, Any]:
    return {"kind": "control" if method.control else "own" if method.own else "", "own": method.own}


def _row_css(row: Mapping[str, Any]) -> str:
    return str(row.get("css", ""))


def _metric_group(metric: PartDescription, key: str = "", caution: str = "") -> ColumnGroup:
    arrow = "↑" if metric.higher_is_better else "↓"
    return ColumnGroup(metric.label, arrow, "‡" if caution else "", caution, key)


def page_tables(run: RunResults, content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of the page in order, without those that would have no row.

    Args:
        run: The run.
        content: Variables of the page.
    """
    boards, paper, agreement = content["boards"], content["published"], content["agreement"]
    for truth, rows in boards.items():
        yield leaderboard_table(run, truth, rows, f"-{truth}" if len(boards) > 1 else "")
    yield from content["grids"]
    if content["shares"]:
        yield from _share_tables(run, content["shares"])
    made = [
        _reproducibility_table(run, content["reproducibility"] if content["firsts"] else []),
        _claims_table(run, content["claims"]),
        _published_accuracy_table(paper["accuracies"]),
        _published_scores_table(run, paper["scores"]),
        _ratios_table(run, content["ratios"]),
        _accuracy_table(run, content["accuracy"]),
        _trainings_table(run, content["trainings"] if content["accuracy"] else []),
        *_budget_tables(run, content["budgets"]),
        _agreement_table(run, agreement["explainers"], agreement["table"]),
        _parameters_table(run, content["parameters"]),
        _table("undefined", [_labeled(run, row) for row in content["undefined"]]),
        *(_time_tables(content["costs"]) if content["costs"] else ()),
        _failures_table(content["failures"]),
    ]
    yield from (table for table in made if table.rows)


def leaderboard_table(run: RunResults, truth: str, board: Sequence[Mapping[str, Any]], suffix: str) -> Table:
    """Return the leaderboard of one kind of truth; of several metrics, most columns are hidden until one is chosen."""
    metrics, shown = list(run.metrics), run.truths[truth]
    leading = sum(name in run.leading for name in shown)
    rows = []
    for row in board:
        info = run.explainers[row["explainer"]]
        detail = _describe_method(info) | {"cells": row["cells"], "of": row["of"]}
        css = ["is-control"] if row["control"] else ["is-first"] * (row["place"] == 1) + ["is-own"] * info.own
        cells: dict[str, Any] = {"method": TableCell(info.label, detail=detail), "css": " ".join(css)}
        cells["rank"] = _rank_cell(row["place"], row["last_place"], row["ahead"])
        for name in shown:
            mean, low, high, beats, against, first, last, ahead = (
                row[f"{key}:{name}"] for key in ("mean", "low", "high", "beats", "against", "first", "last", "ahead")
            )
            cells[f"mean:{name}"] = TableCell(mean, interval=(low, high))
            cells[f"beats:{name}"] = TableCell(beats, suffix=f" / {against}") if against else None
            cells[f"rank:{name}"] = _rank_cell(first, last, ahead)
        rows.append({**row, **cells})
    columns = [
        _board_column("Place", "rank", "place", css="n place"),
        _column("Method", "method", "head", {"kind": "board_method", "head_attributes": {"data-key": "method"}}),
    ]
    for name in shown:
        columns += _metric_columns(run, name, metrics.index(name), leading)
    return Table(
        f"leaderboard{suffix}",
        f"Methods by mean score{f': {truth}' if suffix else ''}",
        columns,
        rows,
        notes=[_FLAG_NOTE] if any(row[key] == 0 for row in board for key in row if key.startswith("ahead")) else [],
        id=f"board{suffix}",
        css="board details" if leading == 1 else "board",
        sort="sort",
        row_css=_row_css,
        row_attributes=lambda row: {"data-e": row["explainer"]},
    )


def _rank_cell(first: int | None, last: int | None, ahead: int | None) -> TableCell:
    """Return a rank interval, such as 1–4, which is sorted by its first rank; flagged if not ahead of the controls."""
    suffix = "" if first is None or first == last else f"–{last}"
    return TableCell(first, suffix=suffix, flag=UNPROVEN if ahead == 0 else "")


def _board_column(label: str, cell: str, key: str, **changes: Any) -> Column:
    usual: dict[str, Any] = {"kind": "board_rank", "is_exact": True}
    usual |= {"is_range": changes.get("kind", "board_rank") == "board_rank"}
    usual |= {"head_attributes": {"data-key": key}, "attributes": {"data-k": key}}
    return _column(label, cell, "0", usual | changes)


def _metric_columns(run: RunResults, name: str, index: int, leading: int) -> list[Column]:
    """Return the columns of a metric; ``leading`` is the number of metrics that are shown next to each other."""
    metric, raw = run.metrics[name], run.raw.get(name)
    groups = (_metric_group(metric, str(index), run.cautions.get(name, "")),)
    median = f"{run.metrics[raw].label}, median" if raw else "Median"
    interval = {"unit": ", 95 % interval", "has_interval": True, "is_hidden": False}
    share, three = {"is_hidden": leading > 2}, {"format": partial(number, digits=3)}
    raw_css = {"head_css": "n detail raw" if raw else "n detail"}
    best = metric.higher_is_better
    columns = []
    for label, cell, key, css, down, kind, changes in (
        ("Mean", f"mean:{name}", "mean", "first interval", best, "interval", interval | three),
        ("Beats controls", f"beats:{name}", "beats", "n detail" if leading > 2 else "n", True, "share", share),
        ("Place", f"rank:{name}", "first", "n detail", False, "rank", {}),
        (median, f"median:{raw or name}", "median", "n detail", best, "value", raw_css | three),
        ("Scores", f"n:{name}", "n", "n detail", True, "value", {}),
    ):
        usual = {"groups": groups, "css": css, "head_css": css, "is_hidden": leading > 1, "is_detail": "detail" in css}
        usual |= {"kind": f"board_{kind}", "attributes": {"data-k": key, "data-m": index}}
        usual["head_attributes"] = {
            "data-key": f"{key}:{name}",
            "data-m": index,
            **({"data-first": "down"} if down else {}),
        }
        columns.append(_board_column(label, cell, key, **usual | changes))
    return columns


def grid_tables(run: RunResults, summary: pd.DataFrame) -> list[Table]:
    """Return the scores of every method: one table per cell if there are more metrics than cells, else one per metric.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.infer`.
    """
    rows = [row | {"cell": tuple(str(row[key]) for key in CELL)} for row in records(summary)]
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    tables: list[Table] = []
    if len(run.leading) > len(cells):
        for cell in cells:
            lines = [row for row in rows if row["cell"] == cell]
            scored = {row["metric"]: [] if row["higher_is_better"] else [" ↓"] for row in lines}
            metrics = [name for names in run.truths.values() for name in names if name in scored]
            truths = {name: [heading(run.metrics[name].truth)] if len(run.truths) > 1 else [] for name in metrics}
            heads = {name: (*truths[name], run.metrics[name].label, *scored[name]) for name in metrics}
            tables += _grid_table(run, run.words_of(cell), "metric", heads, lines, len(tables) + 1)
    else:
        for metric, info in run.metrics.items():
            lines = [row for row in rows if row["metric"] == metric]
            words = {cell: [place(cell[0]), *([place(cell[1])] if run.has_variants else [])] for cell in cells}
            heads = {row["cell"]: (*words[row["cell"]], run.models[row["cell"][2]].label) for row in lines}
            tables += _grid_table(run, info.label, "cell", heads, lines, len(tables) + 1)
    return tables


def _grid_table(
    run: RunResults,
    title: str,
    key: str,
    heads: Mapping[Any, tuple[str, ...]],
    rows: Sequence[Mapping[str, Any]],
    index: int,
) -> list[Table]:
    """Return the table with a column for each value of ``key``; none without a method.

    Args:
        run: The run.
        title: Caption.
        key: ``"metric"``, each on a scale of its own, or ``"cell"``, which share a scale.
        heads: Headings of the columns, outermost first; a last one ``" ↓"`` if lower scores are better.
        rows: Records of the summary.
        index: Number of the table.
    """
    scales: dict[Any, list[float]] = {}
    best: dict[tuple[Any, bool], float] = {}
    for row in rows:
        scales.setdefault(row[key] if key == "metric" else "", []).extend([row["mean"]] * (row["mean"] is not None))
        for rank in [] if row["rank"] is None else [(row[key], False), *([(row[key], True)] if row["control"] else [])]:
            best[rank] = min(row["rank"], best.get(rank, row["rank"]))
    lines: dict[str, dict[str, Any]] = {name: {} for name in run.explainers}
    for row in rows:
        known, ranks = scales[row[key] if key == "metric" else ""], [best.get((row[key], who)) for who in (False, True)]
        lines[row["explainer"]][str(row[key])] = _grid_cell(row, known, ranks)
    columns, before = [_column("Method", "method", "method", head_css="left")], ""
    for column, words in heads.items():
        *outer, label = [word for word in words if word != " ↓"]
        edge, before = "" if words[0] == before else "edge", words[0]
        shown: dict[str, Any] = {"css": edge, "head_css": edge, "groups": tuple(map(ColumnGroup, outer))}
        shown |= {"kind": "grid", "missing": "·", "has_interval": True, "unit": " ↓" if " ↓" in words else ""}
        columns.append(_column(label, str(column), "3", shown))
    none = {str(column): TableCell(None, css="none") for column in heads}
    shown_rows = [none | cells | _labeled(run, {"explainer": name}) for name, cells in lines.items() if cells]
    flagged = any(row["above_controls"] is False or row["beats_controls"] is False for row in rows)
    notes = [_FLAG_NOTE] if flagged else []
    table = Table(f"scores-{index}", title, columns, shown_rows, notes, css="heat", sort="", row_css=_row_css)
    return [table] if shown_rows else []


def _grid_cell(row: Mapping[str, Any], known: Sequence[float], best: Sequence[float | None]) -> TableCell:
    """Return the cell of a mean, colored by its place in the scale of the ``known`` means, and marked if it is best."""
    if row["mean"] is None:
        return TableCell(None, css="none")
    span = max(known) - min(known)
    strength = float((row["mean"] - min(known)) / span) if span else 0.0
    strength = round(strength if row["higher_is_better"] else 1 - strength, 2)
    loses, unproven = row["above_controls"] is False, row["beats_controls"] is False
    is_best, is_bar = (row["rank"] is not None and row["rank"] == rank for rank in best)
    classes = {"best": is_best, "loses": loses, "is-bar": bool(row["control"]) and is_bar}
    return TableCell(
        row["mean"],
        interval=(row["low"], row["high"]),
        flag=LOSES if loses else UNPROVEN if unproven else "",
        is_best=is_best,
        css=" ".join(name for name, applies in classes.items() if applies),
        style=f"--v:{strength}" if row["above_controls"] else "",
        detail=row,
    )


def _accuracy_table(run: RunResults, accuracy: Sequence[Mapping[str, Any]]) -> Table:
    """Return the test accuracy of each cell, next to the paper's if it states one."""

    def plus_minus(spread: float | None) -> str:
        return "" if spread is None else f" ± {number(spread, 1)}"

    explained = any(row["explained"] for row in accuracy)
    rows = [
        _labeled(run, row)
        | {
            "mean": TableCell(row["mean"], suffix=plus_minus(row["std"])),
            "interval": _range_text(row["low"], row["high"], 1),
            "difference": TableCell(row["difference"], badge=row["standing"], suffix=plus_minus(row["margin"])),
            "strip": TableCell(detail=row),
            "scored": TableCell(row["scored"], suffix=f" of {row['explained']}") if explained else None,
        }
        for row in accuracy
    ]
    return _table("accuracy", rows, first=_place_columns(run))


def _ratios_table(run: RunResults, chosen: Sequence[ChosenRatio]) -> Table:
    """Return the lowest signal-to-noise ratios at which networks reach the accuracy of the paper's rule."""
    rows = [
        {"subset": place(one.subset), "variant": place(one.variant), "ours": one.ours, "paper": one.paper}
        | {f"from:{name}": one.lowest.get(name) for name in run.models}
        for one in chosen
    ]
    ratio: dict[str, Any] = {"format": "{:g}".format, "missing": "none"}
    places = zip(facet_headings(run.subsets), ("subset", "variant"), strict=False)
    columns = [_column(label, key, "head") for label, key in places]
    columns += [_column(f"{info.label} from", f"from:{name}", "0", ratio) for name, info in run.models.items()]
    columns += [_column("Chosen here", "ours", "0", ratio, css="n strong"), _column("Paper", "paper", "0", ratio)]
    caption = f"Lowest signal-to-noise ratio with a mean test accuracy of {min_accuracy(run):g} %"
    return Table("ratios", caption, columns, rows)


def _share_tables(run: RunResults, bars: ShareBars) -> Iterator[Table]:
    """Yield the shares of the maps' mass with their intervals, and the mean scores of the reference, if it has any."""
    reference = TableCell(bars.reference, detail={"kind": "reference", "own": False})
    rows = [
        {"method": reference}
        | _labeled(run, dict(zip(CELL, one.cell, strict=True)) | {"explainer": one.explainer})
        | {label: TableCell(one.means[i], interval=one.intervals[i]) for i, label in enumerate(SHARE_LABELS)}
        | {label: means.get(one.cell) for label, means in bars.scored.items()}
        for one in bars.every
    ]
    shares = [_column(label.capitalize(), label, "3", is_exact=True, has_interval=True) for label in SHARE_LABELS]
    known = [row for row, one in zip(rows, bars.every, strict=True) if one.means[0] == one.means[0]]
    yield _table("shares", known, first=_place_columns(run), last=shares)
    if bars.scored:
        own = [row for row in rows if row["explainer"] == rows[0]["explainer"]]
        scores = [_column(label, label, "2") for label in bars.scored]
        caption = f"Mean scores of {bars.reference}"
        yield _table("reference", own, first=_place_columns(run), last=scores, caption=caption)


def _budget_tables(run: RunResults, budgets: Mapping[str, BudgetScores]) -> Iterator[Table]:
    """Yield, metric by metric, the scores at each budget and the scores of the methods with a fixed cost."""

    def cells(key: Any, one: BudgetScore | None) -> dict[str, Any]:
        mean = TableCell(one.mean, interval=(one.low, one.high)) if one else ""
        return {
            f"mean:{key}": mean,
            f"rank:{key}": TableCell(one.rank, note=f"of {one.of}") if one and one.rank else "",
        }

    def columns(score: str, rank: str, key: Any) -> list[Column]:
        shown = {"is_exact": True, "has_interval": True}
        return [_column(score, f"mean:{key}", "3", shown), _column(rank, f"rank:{key}", "0")]

    for index, (name, scores) in enumerate(budgets.items(), 1):
        label, last = run.metrics[name].label, f"Rank at {scores.budgets[-1]:,}"
        shown, rows = [_column("Method", "method", "head", head_css="left")], []
        for budget in scores.budgets:
            shown += columns(f"{budget:,} passes", f"Rank at {budget:,}", budget)
        for method, line in scores.methods.items():
            rows.append({"method": method})
            for budget in scores.budgets:
                rows[-1] |= cells(budget, line.get(budget))
        caption = (
            f"{label} at each budget (passes per image): mean over {scores.cells} cells, 95 % interval and the rank"
        )
        yield Table(f"budgets-{index}", caption, shown, rows)
        fixed = [
            {"method": method, "passes": "" if passes is None else passes, **cells("score", score)}
            for method, (passes, score) in scores.fixed.items()
        ]
        for method, one in scores.controls.items() if fixed else ():
            where = f" ({one.cells} of {scores.cells} cells)" if one.cells < scores.cells else ""
            fixed.append({"method": method + where, "passes": 0, "css": "is-control", **cells("score", one)})
        caption = f"{label} of the methods with a fixed number of passes, and of the controls"
        shown = [_column("Fixed number of passes", "method", "head", head_css="left")]
        shown.append(_column("Passes", "passes", "0"))
        shown += columns(label, last, "score")
        yield Table(f"fixed-{index}", caption, shown, fixed, row_css=_row_css)


def _reproducibility_table(run: RunResults, found: Sequence[Reproducibility]) -> Table:
    """Return the variance components of the scores and the agreement of the trainings' rankings."""
    rows = [
        {"cell": run.words_of(one.cell), "metric": run.metrics[one.metric].label, "trainings": one.trainings}
        | {"tau": one.tau[0], "range": _range_text(*one.tau[1:])}
        | dict(zip(("data", "training", "sample", "residual"), one.shares, strict=True))
        for one in found
    ]
    return _table("reproducibility", rows)


def _range_text(low: float | None, high: float | None, digits: int = 2) -> str | None:
    return None if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def _claims_table(run: RunResults, claims: Sequence[Claim]) -> Table:
    """Return the paper's findings tested on this run."""
    rows = [
        {
            **{"finding": one.statement, "verdict": one.verdict_text, "value": one.value, "bound": one.bound_text},
            "metric": run.metrics[one.metric].label if one.metric else "Test accuracy",
            "interval": _range_text(one.low, one.high),
            "definition": f"{one.quantity}; {one.cells} comparison{'s' * (one.cells != 1)} ({one.source})",
        }
        for one in claims
    ]
    return _table("claims", rows)


def _compared_cells(cells: Sequence[Mapping[str, Any] | None], missing: Any) -> dict[str, Any]:
    """Return the numbers of cells that are compared with the paper's, with the key ``NAME:INDEX``."""
    names = ("ours", "theirs", "difference", "n")
    return {f"{name}:{i}": one.get(name) if one else missing for i, one in enumerate(cells) for name in names}


def _compared_columns(
    index: int, digits: str, group: ColumnGroup, ours: Mapping[str, Any], *, with_count: bool = False
) -> list[Column]:
    """Return our number, the paper's and the difference of the cell with an index."""
    columns = [_column("Ours", f"ours:{index}", digits, ours)]
    columns += [_column("n", f"n:{index}", "0", css="n faint")] if with_count else []
    columns.append(_column("Paper", f"theirs:{index}", "1" if with_count else digits))
    columns.append(_column("Diff.", f"difference:{index}", "difference", digits=int(digits)))
    return [dataclasses.replace(column, groups=(group,)) for column in columns]


def _published_accuracy_table(accuracies: Sequence[Mapping[str, Any]]) -> Table:
    """Return the scores of our classifiers next to the paper's Table 2."""
    rows = [{**row, "network": _network_cell(row), **_compared_cells(row["cells"], "")} for row in accuracies]
    labels = enumerate(("Accuracy", "Precision", "Recall", "F1"))
    columns = [_compared_columns(i, "1", ColumnGroup(label), {"css": "n strong"}) for i, label in labels]
    return _table("published-accuracy", rows, last=[*chain(*columns)])


def _network_cell(row: Mapping[str, Any], before: str = "") -> TableCell:
    return TableCell(f"{before}{row['model']}", note="" if row["same_network"] else "another network than the paper’s")


#: Layout of our number next to the paper's.
_OURS = {"has_interval": True, "css": "n first", "head_css": "n first"}


def _our_cells(cells: Sequence[Mapping[str, Any] | None], intervals: Sequence[Any]) -> dict[str, TableCell]:
    pairs = enumerate(zip(cells, intervals, strict=True))
    faint = TableCell(css="faint")
    return {
        f"ours:{i}": TableCell(one["ours"], interval=ends, css="strong") if one else faint for i, (one, ends) in pairs
    }


def _published_scores_table(run: RunResults, scores: Sequence[Mapping[str, Any]]) -> Table:
    """Return our mean scores next to the paper's Table 3."""
    rows = [
        _labeled(run, {"explainer": row["explainer"]})
        | {"place": row["place"], "group": _network_cell(row, f"{row['set']} · ")}
        | _compared_cells(row["cells"], TableCell(css="faint"))
        | _our_cells(row["cells"], [one and (one["low"], one["high"]) for one in row["cells"]])
        for row in scores
    ]
    metrics = enumerate(shown_metrics(run))
    columns = [_compared_columns(i, "3", _metric_group(metric), _OURS) for i, metric in metrics]
    return _table("published-scores", _grouped(rows, "place"), last=[*chain(*columns)])


def _grouped(rows: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Return the rows, sorted by a key, with their ``group`` as a heading in front of each group."""
    lines: list[Any] = []
    for _, group in groupby(sorted(rows, key=lambda row: row[key]), key=lambda row: row[key]):
        listed = list(group)
        lines += [GroupRow(listed[0]["group"]), *listed]
    return lines


def _agreement_table(run: RunResults, explainers: Sequence[str], found: Sequence[Mapping[str, Any]]) -> Table:
    """Return our correlations of metrics next to the paper's Table 4."""
    rows = [
        {"pair": row["pair"], "group": row["cell"], "key": str(row["cell"]).lower()}
        | _compared_cells(row["cells"], "")
        | _our_cells(row["cells"], [one and one["interval"] for one in row["cells"]])
        for row in found
    ]
    labels = enumerate(run.explainers[name].label for name in explainers)
    columns = [_compared_columns(i, "2", ColumnGroup(label), _OURS, with_count=True) for i, label in labels]
    return _table("agreement", _grouped(rows, "key"), last=[*chain(*columns)])


def _trainings_table(run: RunResults, trainings: Sequence[Mapping[str, Any]]) -> Table:
    """Return every training."""

    def text(digits: int, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return number(value, digits) if isinstance(value, float) else str(value)

    columns = []
    for index, key in enumerate(trainings[0] if trainings else ()):
        as_text = {"format": partial(text, 4 if key == "val_loss" else 1)}
        kind, changes = ("text", {}) if index < 3 else ("plain", as_text)
        columns.append(_column(key.replace("_", " ").capitalize(), key, kind, changes))
    return _table("trainings", [_labeled(run, row) for row in trainings], last=columns)


def _parameters_table(run: RunResults, parameters: Mapping[str, Sequence[tuple[str, str, bool]]]) -> Table:
    """Return the parameters of each method."""
    rows = [
        _labeled(run, {"explainer": name})
        | {"parameters": TableCell(", ".join(f"{key} = {value}" for key, value, _ in values) or "none", detail=values)}
        for name, values in parameters.items()
    ]
    return _table("methods", rows)


def _failures_table(failures: Sequence[Mapping[str, Any]]) -> Table:
    """Return the failed jobs."""
    names = list(failures[0]) if failures else []
    columns = [_column(key.capitalize(), key, missing="", css="error" if key == names[-1] else "") for key in names]
    return _table("failures", failures, last=columns)


#: The stages whose time is listed by method, model and metric.
_STAGES = {"method": ("explain", "score"), "model": ("train", "explain", "score"), "metric": ("score",)}


def _time_tables(costs: Costs) -> Iterator[Table]:
    """Yield the time by stage; by method, model and metric; and the longest jobs."""

    def cells(row: Spent, stages: Sequence[str], most: float) -> dict[str, Any]:
        widths = {stage: row.parts[stage] / most if most else 0.0 for stage in stages}
        return {"label": row.label, "share": TableCell(round(row.share, 5), detail=widths), "seconds": row.seconds}

    most = max((spent.share for spent in costs.stages.values()), default=0.0)
    stages = [
        cells(spent, [stage], most)
        | {"jobs": spent.jobs, "reused": costs.reused.get(stage), "waiting": spent.waiting, "peak_mb": spent.peak_mb}
        for stage, spent in costs.stages.items()
    ]
    yield _table("time-stages", stages)
    by_part = {"method": costs.explainers, "model": costs.models, "metric": costs.metrics}
    for index, (key, spent) in enumerate(((key, spent) for key, spent in by_part.items() if spent), 1):
        rows = [
            cells(row, _STAGES[key], spent[0].share)
            | {"seconds": round(row.seconds, 3), "css": "is-control" if row.control else ""}
            for row in spent
        ]
        name = f"time-{index}"
        table = _table("time-part", rows, name=name, id=name, caption=f"Time by {key}")
        yield dataclasses.replace(
            table, columns=[dataclasses.replace(table.columns[0], label=key.capitalize()), *table.columns[1:]]
        )
    yield _table("time-longest", [row | {"waiting": round(row["waiting"], 3)} for row in costs.longest])
