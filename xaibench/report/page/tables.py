"""The tables of the page; each function returns one or several, with the records that they show as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pandas as pd

from xaibench.benchmarks.facets import DATASET_HEADING, facet_headings
from xaibench.report.figures.curves import BudgetScore, BudgetScores
from xaibench.report.page.content import heading, records
from xaibench.report.page.templating import format_duration, memory, number, signed
from xaibench.runfolder.descriptions import PartDescription
from xaibench.runfolder.schema import CELL, CLASSIFICATION
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


def _number(label: str, cell: str | Callable[[Any], Any], digits: int = 0, **changes: Any) -> Column:
    usual: dict[str, Any] = {"format": partial(number, digits=digits), "is_number": True, "css": "n", "head_css": "n"}
    return Column(label, cell, **usual | changes)


def _difference(label: str, cell: str | Callable[[Any], Any], digits: int, **changes: Any) -> Column:
    return _number(label, cell, format=partial(signed, digits=digits), **changes)


def _percent(share: float, digits: int = 0) -> str:
    return f"{number(100 * share, digits)} %"


def _place_columns(run: RunResults) -> list[Column]:
    """Return the columns for subset and variant, or for the data set if the run has no variants."""
    headings = facet_headings(run.subsets) if run.has_variants else (DATASET_HEADING,)

    def label(key: str, row: Mapping[str, Any]) -> str:
        return place(row[key])

    keys = zip(headings, ("subset", "variant"), strict=False)
    return [Column(name, partial(label, key)) for name, key in keys]


def _model_label(run: RunResults, model: str) -> str:
    return run.models[model].label if model in run.models else model


def _method_column(run: RunResults, label: str = "Method", **changes: Any) -> Column:
    """Return the column of the methods' labels; controls and the user's own methods are marked on the page."""

    def cell(row: Mapping[str, Any]) -> TableCell:
        name = row["explainer"]
        if name not in run.explainers:
            return TableCell(row["label"], detail={"kind": "reference", "own": False})
        return TableCell(run.explainers[name].label, detail=_describe_method(run.explainers[name]))

    return Column(label, cell, is_row_head=True, **{"kind": "method"} | changes)


def _describe_method(method: PartDescription) -> dict[str, Any]:
    return {"kind": "control" if method.control else "own" if method.own else "", "own": method.own}


def _method_css(run: RunResults, row: Mapping[str, Any]) -> str:
    kind = _describe_method(run.explainers[row["explainer"]])["kind"]
    return f"is-{kind}" if kind else ""


def _metric_group(metric: PartDescription, key: str = "", caution: str = "") -> tuple[ColumnGroup]:
    arrow = "↑" if metric.higher_is_better else "↓"
    return (ColumnGroup(metric.label, arrow, "‡" if caution else "", caution, key),)


def leaderboard_table(run: RunResults, truth: str, board: Sequence[Mapping[str, Any]], suffix: str) -> Table:
    """Return the leaderboard of one kind of truth; of several metrics, most columns are hidden until one is chosen."""
    metrics, shown = list(run.metrics), run.truths[truth]
    leading = sum(name in run.leading for name in shown)

    def method(row: Mapping[str, Any]) -> TableCell:
        info = run.explainers[row["explainer"]]
        return TableCell(info.label, detail=_describe_method(info) | {"cells": row["cells"], "of": row["of"]})

    def css(row: Mapping[str, Any]) -> str:
        own = ["is-first"] * (row["place"] == 1) + ["is-own"] * run.explainers[row["explainer"]].own
        return "is-control" if row["control"] else " ".join(own)

    columns = [
        _board_column("Place", "place", partial(_rank_cell, "place", "last_place", "ahead"), css="n place"),
        Column("Method", method, is_row_head=True, kind="board_method", head_attributes={"data-key": "method"}),
    ]
    for name in shown:
        columns += _metric_columns(run, name, metrics.index(name), leading)
    return Table(
        f"leaderboard{suffix}",
        f"Methods by mean score{f': {truth}' if suffix else ''}",
        columns,
        board,
        notes=[_FLAG_NOTE] if any(row[key] == 0 for row in board for key in row if key.startswith("ahead")) else [],
        id=f"board{suffix}",
        css="board details" if leading == 1 else "board",
        sort="sort",
        row_css=css,
        row_attributes=lambda row: {"data-e": row["explainer"]},
    )


def _board_column(label: str, key: str, cell: str | Callable[[Any], Any], **changes: Any) -> Column:
    usual: dict[str, Any] = {"kind": "board_rank", "is_exact": True}
    usual |= {"is_range": changes.get("kind", "board_rank") == "board_rank"}
    usual |= {"head_attributes": {"data-key": key}, "attributes": {"data-k": key}}
    return _number(label, cell, **usual | changes)


def _metric_columns(run: RunResults, name: str, index: int, leading: int) -> list[Column]:
    """Return the columns of a metric; ``leading`` is the number of metrics that are shown next to each other."""
    metric = run.metrics[name]
    groups = _metric_group(metric, str(index), run.cautions.get(name, ""))
    down = {"data-first": "down"}
    best_first = down if metric.higher_is_better else {}

    def column(label: str, key: str, cell: Any, css: str, first: Mapping[str, str], **changes: Any) -> Column:
        usual: dict[str, Any] = {"groups": groups, "css": css, "head_css": css, "is_hidden": leading > 1}
        usual |= {"kind": "board_value", "is_detail": "detail" in css}
        usual["head_attributes"] = {"data-key": f"{key}:{name}", "data-m": index, **first}
        usual["attributes"] = {"data-k": key, "data-m": index}
        return _board_column(label, key, cell, **usual | changes)

    def mean(row: Mapping[str, Any]) -> TableCell:
        return TableCell(row[f"mean:{name}"], interval=(row[f"low:{name}"], row[f"high:{name}"]))

    def beats(row: Mapping[str, Any]) -> TableCell:
        whole = row[f"against:{name}"]
        return TableCell(row[f"beats:{name}"] if whole else None, suffix=f" / {whole}" if whole else "")

    raw, three = run.raw.get(name), {"format": partial(number, digits=3)}
    median = f"{run.metrics[raw].label}, median" if raw else "Median"
    interval = {"unit": ", 95 % interval", "has_interval": True, "kind": "board_interval", "is_hidden": False}
    share = {"kind": "board_share", "is_hidden": leading > 2}
    ranks = partial(_rank_cell, f"first:{name}", f"last:{name}", f"ahead:{name}")
    head = {"head_css": "n detail raw" if raw else "n detail"}
    return [
        column("Mean", "mean", mean, "first interval", best_first, **interval, **three),
        column("Beats controls", "beats", beats, "n detail" if leading > 2 else "n", down, **share),
        column("Place", "first", ranks, "n detail", {}, kind="board_rank"),
        column(median, "median", f"median:{raw or name}", "n detail", best_first, **head, **three),
        column("Scores", "n", f"n:{name}", "n detail", down),
    ]


def _rank_cell(first_key: str, last_key: str, ahead_key: str, row: Mapping[str, Any]) -> TableCell:
    """Return a rank interval, such as 1–4, which is sorted by its first rank; flagged if not ahead of the controls."""
    first, last = row[first_key], row[last_key]
    suffix = "" if first is None or first == last else f"–{last}"
    return TableCell(first, suffix=suffix, flag=UNPROVEN if row[ahead_key] == 0 else "")


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
    scores = {(row["explainer"], row[key]): row for row in rows}
    scales: dict[Any, list[float]] = {}
    best: dict[tuple[Any, bool], float] = {}
    for row in rows:
        scales.setdefault(row[key] if key == "metric" else "", []).extend([row["mean"]] * (row["mean"] is not None))
        for rank in [] if row["rank"] is None else [(row[key], False), *([(row[key], True)] if row["control"] else [])]:
            best[rank] = min(row["rank"], best.get(rank, row["rank"]))

    def cell(column: Any, line: Mapping[str, Any]) -> TableCell:
        row = scores.get((line["explainer"], column))
        if row is None or row["mean"] is None:
            return TableCell(None, css="none")
        known = scales[column if key == "metric" else ""]
        span = max(known) - min(known)
        strength = float((row["mean"] - min(known)) / span) if span else 0.0
        strength = round(strength if row["higher_is_better"] else 1 - strength, 2)
        loses, unproven = row["above_controls"] is False, row["beats_controls"] is False
        is_best, is_bar = (row["rank"] is not None and row["rank"] == best.get((column, who)) for who in (False, True))
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

    columns, before = [_method_column(run, head_css="left")], ""
    for column, words in heads.items():
        *outer, label = [word for word in words if word != " ↓"]
        edge, before = "" if words[0] == before else "edge", words[0]
        shown: dict[str, Any] = {"css": edge, "head_css": edge, "groups": tuple(map(ColumnGroup, outer))}
        shown |= {"kind": "grid", "missing": "·", "has_interval": True, "unit": " ↓" if " ↓" in words else ""}
        columns.append(_number(label, partial(cell, column), 3, **shown))
    lines = [{"explainer": name} for name in run.explainers if any((name, column) in scores for column in heads)]
    css = partial(_method_css, run)
    flagged = any(row["above_controls"] is False or row["beats_controls"] is False for row in rows)
    notes = [_FLAG_NOTE] if flagged else []
    return [Table(f"scores-{index}", title, columns, lines, notes, css="heat", sort="", row_css=css)] if lines else []


def accuracy_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the test accuracy of each cell, next to the paper's if it states one."""

    def plus_minus(spread: float | None) -> str:
        return "" if spread is None else f" ± {number(spread, 1)}"

    def mean(row: Mapping[str, Any]) -> TableCell:
        return TableCell(row["mean"], suffix=plus_minus(row["std"]))

    def difference(row: Mapping[str, Any]) -> TableCell:
        return TableCell(row["difference"], badge=row["standing"], suffix=plus_minus(row["margin"]))

    columns = [*_place_columns(run), _head("Model", lambda row: _model_label(run, row["model"]))]
    columns.append(_number("Mean ± std", mean, 1, is_exact=True, css="n strong"))
    if any(row["low"] is not None for row in rows):
        columns.append(_number("95 % interval", lambda row: _range_text(row["low"], row["high"], 1)))
    if any(row["paper"] is not None for row in rows):
        columns += [_number("Paper", "paper", 1), _difference("Difference", difference, 1, is_exact=True)]
    columns.append(Column("", lambda row: TableCell(detail=row), kind="strip", is_page_only=True))
    for name in CLASSIFICATION:
        if any(row[name] is not None for row in rows):
            columns.append(_number(name.capitalize(), name, 1))
    columns += [_number("Best", "best", 1), _number("Learned", "learned"), _number("Trainings", "trainings")]
    if any(row["explained"] for row in rows):
        columns.append(
            _number("Samples scored", lambda row: TableCell(row["scored"], suffix=f" of {row['explained']}"))
        )
    if any(row["alpha"] is not None for row in rows):
        columns.append(_number("Alpha", "alpha", format=str))
    return Table("accuracy", "Test accuracy of each cell in percent", columns, rows, css="accuracy")


def ratios_table(run: RunResults, rows: Sequence[ChosenRatio]) -> Table:
    """Return the lowest signal-to-noise ratios at which networks reach the accuracy of the paper's rule."""

    def ratio(label: str, read: Callable[[ChosenRatio], float | None], css: str = "n") -> Column:
        return _number(label, read, format="{:g}".format, missing="none", css=css)

    heads = facet_headings(run.subsets)
    columns = [_head(heads[0], lambda row: place(row.subset)), _head(heads[1], lambda row: place(row.variant))]
    columns += [
        ratio(f"{info.label} from", partial(lambda name, row: row.lowest.get(name), name))
        for name, info in run.models.items()
    ]
    columns += [ratio("Chosen here", lambda row: row.ours, "n strong"), ratio("Paper", lambda row: row.paper)]
    caption = f"Lowest signal-to-noise ratio with a mean test accuracy of {min_accuracy(run):g} %"
    return Table("ratios", caption, columns, rows)


def _head(label: str, cell: str | Callable[[Any], Any], **changes: Any) -> Column:
    """Return a column whose cells are the headings of their rows."""
    return Column(label, cell, is_row_head=True, **changes)


def share_tables(run: RunResults, bars: ShareBars) -> Iterator[Table]:
    """Yield the shares of the maps' mass with their intervals, and the mean scores of the reference, if it has any."""
    rows: list[dict[str, Any]] = [
        dict(zip(CELL, each.cell, strict=True)) | {"explainer": each.explainer, "label": bars.reference, "shares": each}
        for each in bars.every
    ]

    def share(index: int, row: Mapping[str, Any]) -> TableCell:
        return TableCell(row["shares"].means[index], interval=row["shares"].intervals[index])

    model = Column("Model", lambda row: run.models[row["model"]].label)
    exact = {"is_exact": True, "has_interval": True}
    labels = enumerate(SHARE_LABELS)
    shares = [_number(label.capitalize(), partial(share, index), 3, **exact) for index, label in labels]
    columns = [*_place_columns(run), model, _method_column(run), *shares]
    known = [row for row in rows if row["shares"].means[0] == row["shares"].means[0]]
    yield Table("shares", "Shares of each map’s mass with their 95 % intervals", columns, known, region_css="tall")
    if bars.scored:
        first = [row for row in rows if row["explainer"] == rows[0]["explainer"]]

        def mean(means: Mapping[Any, float], row: Mapping[str, Any]) -> float | None:
            return means.get(tuple(row[key] for key in CELL))

        means = [_number(label, partial(mean, means), 2) for label, means in bars.scored.items()]
        columns = [*_place_columns(run), _head("Model", model.cell), *means]
        yield Table("reference", f"Mean scores of {bars.reference}", columns, first)


def budget_tables(run: RunResults, budgets: Mapping[str, BudgetScores]) -> Iterator[Table]:
    """Yield, metric by metric, the scores at each budget and the scores of the methods with a fixed cost."""

    def columns(score: str, rank: str, key: Any) -> list[Column]:
        def mean(row: Mapping[Any, BudgetScore | None]) -> TableCell:
            one = row.get(key)
            return TableCell(one.mean, interval=(one.low, one.high)) if one else TableCell("")

        def ranks(row: Mapping[Any, BudgetScore | None]) -> TableCell:
            one = row.get(key)
            return TableCell(one.rank, note=f"of {one.of}") if one and one.rank else TableCell("")

        return [_number(score, mean, 3, is_exact=True, has_interval=True), _number(rank, ranks)]

    for index, (name, scores) in enumerate(budgets.items(), 1):
        label, last = run.metrics[name].label, f"Rank at {scores.budgets[-1]:,}"
        shown = [_head("Method", "method", head_css="left")]
        for budget in scores.budgets:
            shown += columns(f"{budget:,} passes", f"Rank at {budget:,}", budget)
        rows = [{"method": method, **line} for method, line in scores.methods.items()]
        caption = (
            f"{label} at each budget (passes per image): mean over {scores.cells} cells, 95 % interval and the rank"
        )
        yield Table(f"budgets-{index}", caption, shown, rows)
        if scores.fixed:
            shown = [_head("Fixed number of passes", "method", head_css="left"), _number("Passes", "passes")]
            fixed = [
                {"method": method, "passes": "" if passes is None else passes, "score": score}
                for method, (passes, score) in scores.fixed.items()
            ]
            for method, one in scores.controls.items():
                where = f" ({one.cells} of {scores.cells} cells)" if one.cells < scores.cells else ""
                fixed.append({"method": method + where, "passes": 0, "score": one, "css": "is-control"})
            caption = f"{label} of the methods with a fixed number of passes, and of the controls"
            shown += columns(label, last, "score")
            yield Table(f"fixed-{index}", caption, shown, fixed, row_css=lambda row: row.get("css", ""))


def reproducibility_table(run: RunResults, rows: Sequence[Reproducibility]) -> Table:
    """Return the variance components of the scores and the agreement of the trainings' rankings."""
    columns = [
        _head("Cell", lambda row: run.words_of(row.cell)),
        Column("Metric", lambda row: run.metrics[row.metric].label),
    ]

    def share(index: int, row: Reproducibility) -> str:
        return _percent(row.shares[index])

    for index, label in enumerate(("Data sets", "Trainings", "Samples", "Residual")):
        columns.append(_number(label, partial(share, index)))
    columns += [
        _number("Tau", lambda row: row.tau[0], 2, css="n strong"),
        _number("Range of tau", lambda row: _range_text(*row.tau[1:])),
        _number("Trainings compared", lambda row: row.trainings),
    ]
    return Table("reproducibility", "Sources of variance, and agreement of the rankings", columns, rows)


def _range_text(low: float | None, high: float | None, digits: int = 2) -> str | None:
    return None if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def claims_table(run: RunResults, claims: Sequence[Claim]) -> Table:
    """Return the paper's findings tested on this run."""

    def definition(claim: Claim) -> str:
        unit = "comparison" if claim.cells == 1 else "comparisons"
        return f"{claim.quantity}; {claim.cells} {unit} ({claim.source})"

    columns = [
        _head("Finding", lambda claim: claim.statement, css="wrap"),
        Column("Metric", lambda claim: run.metrics[claim.metric].label if claim.metric else "Test accuracy"),
        Column("Verdict", lambda claim: claim.verdict_text, kind="strong"),
        _number("Value", lambda claim: claim.value, 2, css="n strong"),
        _number("Interval", lambda claim: _range_text(claim.low, claim.high)),
        Column("Holds if", lambda claim: claim.bound_text),
        Column("Definition of the value", definition, css="wrap"),
    ]
    return Table("claims", "Findings of the paper in this run", columns, claims)


def published_accuracy_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the scores of our classifiers next to the paper's Table 2."""
    columns = [_head("Data set", "set"), Column("Model", _network_cell)]
    for index, label in enumerate(("Accuracy", "Precision", "Recall", "F1")):
        groups = (ColumnGroup(label),)
        columns.append(_number("Ours", partial(_compared, index, "ours", ""), 1, groups=groups, css="n strong"))
        columns += _compared_columns(index, 1, 1, groups, "")
    caption = "Classification on the test samples and Table 2 of the paper, in percent"
    return Table("published-accuracy", caption, columns, rows, css="compared")


def _network_cell(row: Mapping[str, Any], before: str = "") -> TableCell:
    return TableCell(f"{before}{row['model']}", note="" if row["same_network"] else "another network than the paper’s")


def published_scores_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our mean scores next to the paper's Table 3."""

    def ours(index: int, row: Mapping[str, Any]) -> TableCell:
        one = row["cells"][index]
        return (
            TableCell(one["ours"], interval=(one["low"], one["high"]), css="strong") if one else TableCell(css="faint")
        )

    columns = [_method_column(run)]
    for index, metric in enumerate(shown_metrics(run)):
        shown = {"groups": _metric_group(metric), "has_interval": True, "css": "n first", "head_css": "n first"}
        columns.append(_number("Ours", partial(ours, index), 3, **shown))
        columns += _compared_columns(index, 3, 3, shown["groups"], TableCell(css="faint"))
    lines = _grouped(rows, "place", lambda row: _network_cell(row, f"{row['set']} · "))
    return Table("published-scores", "Mean scores and Table 3 of the paper", columns, lines, css="compared", sort="")


def _compared_columns(index: int, digits: int, more: int, groups: Any, missing: Any) -> list[Column]:
    """Return the paper's number and the difference of the cell with an index."""
    paper = _number("Paper", partial(_compared, index, "theirs", missing), digits, groups=groups)
    return [paper, _difference("Diff.", partial(_compared, index, "difference", missing), more, groups=groups)]


def _compared(index: int, key: str, missing: Any, row: Mapping[str, Any]) -> Any:
    return row["cells"][index][key] if row["cells"][index] else missing


def _grouped(rows: Sequence[Mapping[str, Any]], key: str, head: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
    """Return the rows, sorted by a key, with a heading in front of each group."""
    lines: list[Any] = []
    for _, group in groupby(sorted(rows, key=lambda row: row[key]), key=lambda row: row[key]):
        listed = list(group)
        lines += [GroupRow(head(listed[0])), *listed]
    return lines


def agreement_table(run: RunResults, explainers: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return our correlations of metrics next to the paper's Table 4."""
    columns = [_head("Metrics", "pair")]
    for index, name in enumerate(explainers):
        groups = (ColumnGroup(run.explainers[name].label),)

        def ours(row: Mapping[str, Any], index: int = index) -> TableCell:
            one = row["cells"][index]
            return TableCell(one["ours"], interval=one["interval"], css="strong") if one else TableCell(css="faint")

        shown = {"groups": groups, "has_interval": True, "css": "n first", "head_css": "n first"}
        columns.append(_number("Ours", ours, 2, **shown))
        columns += [
            _number("n", partial(_compared, index, "n", ""), groups=groups, css="n faint"),
            *_compared_columns(index, 1, 2, groups, ""),
        ]
    lines = _grouped([{**row, "key": str(row["cell"]).lower()} for row in rows], "key", lambda row: row["cell"])
    caption = "Agreement of metrics and Table 4 of the paper"
    return Table("agreement", caption, columns, lines, css="compared", region_css="tall", sort="")


def trainings_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return every training."""

    def shown(key: str, row: Mapping[str, Any]) -> Any:
        value = row[key]
        return place(value) if key in ("subset", "variant") else _model_label(run, value) if key == "model" else value

    def text(digits: int, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return number(value, digits) if isinstance(value, float) else str(value)

    columns = []
    for index, key in enumerate(rows[0]):
        label, cell = key.replace("_", " ").capitalize(), partial(shown, key)
        as_text = partial(text, 4 if key == "val_loss" else 1)
        columns.append(Column(label, cell) if index < 3 else _number(label, cell, format=as_text))
    return Table("trainings", "Every training", columns, rows, region_css="tall")


def parameters_table(run: RunResults, parameters: Mapping[str, Sequence[tuple[str, str, bool]]]) -> Table:
    """Return the parameters of each method."""

    def cell(row: Mapping[str, Any]) -> TableCell:
        values = parameters[row["explainer"]]
        return TableCell(", ".join(f"{key} = {value}" for key, value, _ in values) or "none", detail=values)

    columns = [_method_column(run), Column("Name", "explainer", kind="code")]
    columns.append(Column("Parameters", cell, kind="parameters", css="wrap"))
    rows, css = [{"explainer": name} for name in parameters], partial(_method_css, run)
    return Table("methods", "Parameters of the methods", columns, rows, css="parameters", sort="", row_css=css)


def undefined_table(run: RunResults, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the number of undefined scores, and of scores of maps scored as chance, by method, metric and reason."""
    count: dict[str, Any] = {"format": "{:,}".format, "is_exact": True}
    columns = [
        _method_column(run),
        Column("Metric", lambda row: run.metrics[row["metric"]].label),
        Column("Reason", "reason"),
        _number("Scores", "undefined", **count),
        _number("Of", "of", **count),
        _number("Share", "share", format=partial(_percent, digits=1), is_exact=True),
    ]
    caption = "Undefined scores and maps scored as chance, by method, metric and reason"
    return Table("undefined", caption, columns, rows)


def failures_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the failed jobs."""
    *_, last = rows[0]
    columns = [Column(key.capitalize(), key, missing="", css="error" if key == last else "") for key in rows[0]]
    return Table("failures", "Failed jobs", columns, rows, css="failures", sort="")


#: The stages whose time is listed by method, model and metric.
_STAGES = {"method": ("explain", "score"), "model": ("train", "explain", "score"), "metric": ("score",)}


def time_tables(costs: Costs) -> Iterator[Table]:
    """Yield the time by stage; by method, model and metric; and the longest jobs."""

    def share(row: Spent, stages: Iterable[str], most: float) -> TableCell:
        widths = {stage: row.parts[stage] / most if most else 0.0 for stage in stages}
        return TableCell(round(row.share, 5), detail=widths)

    bars: dict[str, Any] = {"kind": "bars", "css": "stack", "format": partial(_percent, digits=1), "is_exact": True}
    down: dict[str, Any] = {"head_attributes": {"data-first": "down"}}
    time: dict[str, Any] = {"format": format_duration, "css": "n strong"}
    stages = [{"stage": stage, "spent": spent} for stage, spent in costs.stages.items()]
    most = max((spent.share for spent in costs.stages.values()), default=0.0)
    columns = [
        _head("Stage", lambda row: row["spent"].label),
        _number("Time", lambda row: row["spent"].seconds, **time),
        _number("Share", lambda row: share(row["spent"], [row["stage"]], most), **bars, head_css=""),
        _number("Jobs", lambda row: row["spent"].jobs, format="{:,}".format),
        _number("Reused", lambda row: costs.reused.get(row["stage"]), format="{:,}".format),
        _number("Waiting", lambda row: row["spent"].waiting, format=_percent),
        _number("Largest process", lambda row: row["spent"].peak_mb, format=memory),
    ]
    yield Table("time-stages", "Time by stage", columns, stages, id="time-stages", css="time", sort="")
    by_part = {"method": costs.explainers, "model": costs.models, "metric": costs.metrics}
    for index, (key, rows) in enumerate(((key, rows) for key, rows in by_part.items() if rows), 1):
        columns = [
            _head(key.capitalize(), lambda row: row.label),
            _number("Time", lambda row: round(row.seconds, 3), **time, is_exact=True, **down),
            _number("Share", partial(share, stages=_STAGES[key], most=rows[0].share), **bars, **down),
        ]
        name, css = f"time-{index}", lambda row: "is-control" if row.control else ""
        yield Table(name, f"Time by {key}", columns, rows, id=name, css="time", row_css=css)
    columns = [
        _head("Job", "what"),
        Column("Stage", "stage"),
        _number("Time", "seconds", **time, is_exact=True, **down),
        _number("Waiting", lambda row: round(row["waiting"], 3), format=_percent, is_exact=True, **down),
        _number("Process", "peak_mb", format=memory, is_exact=True, **down),
    ]
    yield Table("time-longest", "The longest jobs", columns, costs.longest, id="time-longest", css="time")
