"""Content of the page and data of its script: header, summary sentences, table rows, names, leaderboards."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.core.messages import listed
from xaibench.core.pictures import palette
from xaibench.core.truth_kinds import NO_TRUTH
from xaibench.report.page.templating import format_duration, number
from xaibench.runfolder.descriptions import PartDescription
from xaibench.runfolder.schema import ACCURACY, CELL
from xaibench.scores.leaderboards import Boards, place_text
from xaibench.scores.rank_tests import ALPHA
from xaibench.scores.results import RunResults, place
from xaibench.scores.summary import (
    accuracy_margins,
    explained_networks,
    left_out_networks,
    min_accuracy,
    unlearned_networks,
)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, with None for missing values."""
    columns = {str(name): _plain_values(column) for name, column in frame.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain_values(column: pd.Series[Any]) -> list[Any]:
    values = [value.item() if isinstance(value, np.generic) else value for value in column.tolist()]
    missing = column.isna().tolist()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)] if any(missing) else values


def citations(run: RunResults) -> list[str]:
    """Return the distinct citations of the suite and its parts."""
    parts = [*run.explainers.values(), *run.metrics.values(), *run.models.values()]
    return [text for text in dict.fromkeys([run.citation, *(part.citation for part in parts)]) if text]


def counts(run: RunResults, summary: pd.DataFrame) -> dict[str, int]:
    """Return the numbers of the introduction: cells, methods, trainings, published networks, scores."""
    networks = 0 if run.settings.get("training", {}).get("method") == "none" else len(run.trainings)
    published = int(run.trainings["published"].sum()) if "published" in run.trainings else 0
    return {
        "cells": int(summary.groupby(list(CELL), observed=True).ngroups) if len(summary) else len(run.accuracy),
        "methods": sum(not part.control for part in run.explainers.values()),
        "controls": sum(part.control for part in run.explainers.values()),
        "trainings": networks - published,
        "published": published,
        "scores": len(run.scores),
        "correct": int(run.scores["scored"].sum()),
        "failures": len(run.failures),
    }


def facts(run: RunResults) -> dict[str, str]:
    """Return the entries of the page's header that are recorded in the environment."""
    known = run.environment
    machine, seconds, workers = known.get("machine", {}), known.get("seconds"), known.get("workers") or 1
    cpus = f"{machine.get('cpus')} CPUs" if machine.get("cpus") else ""
    engine = [known.get("engine"), f"{workers} workers" if workers > 1 else "", known.get("device")]
    facts = {
        "Suite": run.suite,
        "Date": _format_date(known.get("finished")),
        "Time of the last run": format_duration(seconds) if isinstance(seconds, int | float) else None,
        "xaibench": known.get("xaibench"),
        "Commit": str(known.get("commit") or "")[:12],
        "Machine": _join_parts([machine.get("processor"), cpus, *machine.get("gpus", []), machine.get("system")]),
        "Engine": _join_parts(engine),
    }
    return {term: str(value) for term, value in facts.items() if value not in (None, "")}


def _join_parts(parts: Iterable[Any]) -> str:
    return " · ".join(str(word) for word in parts if word)


def _format_date(text: Any) -> str:
    try:
        return datetime.fromisoformat(str(text)).strftime("%d %B %Y, %H:%M %Z").strip()
    except ValueError:
        return str(text or "")


def heading(truth: str) -> str:
    """Return the heading of a kind of truth, such as ``"Human"``; ``"The map alone"`` for metrics without one."""
    return "The map alone" if truth == NO_TRUTH else truth.capitalize()


def scored_rule(run: RunResults) -> str:
    """Return which samples of a network count: ``"correct"``, ``"correct-by-all"`` or ``"all"``, as in the suite."""
    return str(run.settings.get("explaining", {}).get("scored", "correct"))


def scored_text(run: RunResults) -> str:
    """Return a sentence with the share of the explained samples that count; empty if all count, or if not known."""
    known = run.accuracy[run.accuracy["explained"].fillna(0) > 0]
    if known.empty or scored_rule(run) == "all":
        return ""
    shares, who = 100 * known["scored"] / known["explained"], CLASSIFIERS[scored_rule(run)]
    least, most = (f"{share:.0f}" for share in (shares.min(), shares.max()))
    some = ", except for the networks that are left out" if len(left_out_networks(run)) else ""
    return (
        f"Scored: {known['scored'].sum():,} of {known['explained'].sum():,} explained samples, those that {who}{some} "
        f"({least if least == most else f'{least} to {most}'} % per cell)."
    )


def _name_networks(run: RunResults, trainings: pd.DataFrame) -> list[str]:
    """Return the cell, the data set and the test accuracy of each training, and its seed if there are several."""
    several, names = run.trainings["seed"].nunique() > 1, []
    for row in records(trainings):
        which = f", training {row['seed']}" if several else ""
        cell = run.words_of((row["subset"], row["variant"], row["model"]))
        names.append(f"{cell}, data set {row['data_seed']}{which} ({row['test_accuracy']:.1f} %)")
    return names


def unlearned_text(run: RunResults) -> str:
    """Return a sentence that names the scored networks that have not learned their task; empty if there are none.

    It is about masks of the data or of people. What a network uses, and how its output changes, can be asked of any.
    """
    names = _name_networks(run, unlearned_networks(run))
    if not names or not {"data", "human", ""} & run.truths.keys():
        return ""
    count = len(explained_networks(run))
    which = "network has" if count == 1 else "networks have"
    return (
        f"{len(names)} of {count} {which} not learned the task (test accuracy below {min_accuracy(run):g} %), so their "
        f"scores against the masks say nothing about explainers: {listed(names, 4)}."
    )


def left_out_text(run: RunResults) -> str:
    """Return a sentence that names the networks that are left out of their cells; empty if there are none."""
    names = _name_networks(run, left_out_networks(run))
    if not names:
        return ""
    which = "network is" if len(names) == 1 else "networks are"
    return (
        f"{len(names)} {which} left out of the scores, with a test accuracy below {min_accuracy(run):g} % that other "
        f"networks of the same cell reach: {'; '.join(names)}."
    )


#: The networks that classify the samples that count, by the rule of the suite.
CLASSIFIERS = {
    "correct": "the explained network classifies correctly",
    "correct-by-all": "every explained network of the data set classifies correctly",
    "all": "were explained",
}


def accuracy_rows(run: RunResults) -> list[dict[str, Any]]:
    """Return the accuracy of each cell with its trainings and the comparison with the paper's accuracy."""
    rows, by_chance = records(run.accuracy[list(ACCURACY.columns)]), accuracy_margins(run)
    for row in rows:
        tests = run.trainings
        for key in run.accuracy_keys:
            tests = tests[tests[key] == row[key]]
        row["tests"] = [float(value) for value in tests["test_accuracy"].dropna()]
        difference, margin = row["difference"], by_chance[tuple(row[key] for key in run.accuracy_keys)]
        known = difference is not None and not math.isnan(margin)
        row["margin"], row["standing"] = margin if known else None, ""
        if known and abs(difference) > margin:
            row["standing"] = "below" if difference < 0 else "above"
    return rows


def alternative(run: RunResults, name: str) -> str:
    """Return the text alternative of a figure."""
    if name == "forest":
        return "Forest plot: mean of each method with its 95 % interval; the numbers are in the table below."
    if name.startswith("ratio"):
        what = "A sample of each data set at four" if name == "ratio-samples" else "Test accuracy of each network over"
        return f"{what} signal-to-noise ratios."
    kind, _, rest = name.partition("-")
    label = run.metrics[rest].label if rest in run.metrics else rest
    if kind == "maps":
        return f"Saliency maps ({rest})"
    if kind == "ranks":
        return f"Means by {label}, with bars that join methods that do not differ significantly."
    if kind == "agreement":
        return f"Correlations between the metrics for {run.explainers[rest].label}; the numbers are in the figure."
    if kind == "budgets":
        return f"{label} against the number of passes, one panel per method; the numbers are in the table."
    if kind == "curves":
        return "One curve per method, with the area under it in its title."
    return f"Box plots of {label} by subset, model, explainer and variant; the numbers are in summary.csv."


def parameters(run: RunResults) -> dict[str, list[tuple[str, str, bool]]]:
    """Return name, value and whether the suite states it, for each parameter of each method.

    Empty if the run folder has no parameters.
    """
    stated = run.settings.get("explainers", {})
    described = {}
    for name, part in run.explainers.items():
        own = stated.get(name, {})
        # The batch size does not change the maps.
        shown = {key: value for key, value in part.parameters.items() if key != "batch_size"}
        texts = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in shown.items()
        }
        described[name] = [(key, "none" if shown[key] is None else text, key in own) for key, text in texts.items()]
    return described if any(described.values()) else {}


def subject(run: RunResults, boards: Mapping[str, Boards]) -> str:
    """Return the method in focus: the user's own, otherwise the first of a leaderboard; empty without either."""
    rows = [row for board in boards.values() for row in board.rows()]
    ranked = [row["explainer"] for row in rows]
    placed = [row["explainer"] for row in rows if row["place"] is not None]
    return next(iter([*(name for name in ranked if run.explainers[name].own), *placed]), "")


def page_values(run: RunResults, boards: Mapping[str, Boards]) -> dict[str, Any]:
    """Return the data of the page's script: names and labels, leaderboards, colors of maps."""
    return {
        "subsets": [{"name": name, "label": place(name)} for name in run.subsets],
        "variants": [{"name": name, "label": place(name)} for name in run.variants],
        "models": [{"name": part.name, "label": part.label} for part in run.models.values()],
        "explainers": [
            {"name": part.name, "label": part.label, "control": part.control, "own": part.own}
            for part in run.explainers.values()
        ],
        "metrics": [
            {"name": part.name, "label": part.label, "higher": part.higher_is_better}
            | ({"raw": list(run.metrics).index(run.raw[part.name])} if part.name in run.raw else {})
            for part in run.metrics.values()
        ],
        "cells": [
            [order.index(name) for order, name in zip((run.subsets, run.variants, list(run.models)), cell, strict=True)]
            for cell in run.scored_cells
        ],
        "truths": {truth: board_values(board) for truth, board in boards.items()},
        "leader": subject(run, boards),
        "palette": base64.b64encode(palette().tobytes()).decode("ascii"),
    }


def board_values(boards: Boards) -> dict[str, Any]:
    """Return the leaderboards of a kind of truth as JSON-ready values for the page's script.

    ``own`` are the indices of its metrics in the run's order, ``ranking`` the position in it of the metric that orders
    the methods. ``boards`` maps a selection (``"1..0"``: second subset, any variant, first model) to the number of its
    ``cells`` and ``metrics``: for each, one row of :data:`_OF_METRIC` per explainer. Rows are in the order of
    ``ranked``; None for an explainer without a ranked score.
    """
    some = boards.standings
    chosen: dict[str, Any] = {}
    for choice, cells in boards.cells.items():
        columns = boards.columns(choice)
        chosen[".".join("" if i is None else str(i) for i in choice)] = {
            "cells": len(cells),
            "metrics": [_board_lines(columns, metric) for metric in some.metrics],
        }
    own = [list(some.run.metrics).index(metric) for metric in some.metrics]
    return {"own": own, "ranking": some.ranking or 0, "ranked": list(some.explainers), "boards": chosen}


#: Numbers of an explainer by a metric, for the page's script.
_OF_METRIC = (
    *("order", "first", "last", "cells", "of", "mean", "low", "high", "n"),
    *("median", "beats", "against", "ahead"),
)


def _board_lines(columns: Mapping[str, NDArray[Any]], metric: str) -> list[list[float | None] | None]:
    lines = zip(*(columns[f"{name}:{metric}"].tolist() for name in _OF_METRIC), strict=True)
    return [
        [round_for_page(value) for value in line] if cells else None
        for line, cells in zip(lines, columns[f"cells:{metric}"], strict=True)
    ]


def round_for_page(value: float) -> float | None:
    """Round to the six significant digits that the page shows; None for NaN."""
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


#: Largest number of comparisons (pair, cell, metric) on the page. If there are more, only the subject's are shown.
MAX_COMPARISONS = 20_000
#: Stands for all cells together.
ALL_CELLS = -1
#: Columns of a comparison that the page shows.
PAIR_COLUMNS = ["difference", "low", "high", "p_holm"]


def method_pairs(
    run: RunResults, pairs: pd.DataFrame, overall: pd.DataFrame, subject: str, order: Sequence[str]
) -> dict[str, Any] | None:
    """Return the comparisons of a run, as data of the page's script.

    Args:
        run: The run.
        pairs: From :func:`xaibench.scores.summary.infer`.
        overall: From :func:`xaibench.scores.leaderboards.overall_comparisons`.
        subject: Method that is compared first: the user's own, or the first of the leaderboard.
        order: The methods in the order of the leaderboard.

    Returns:
        ``subject``, the method that is compared first; ``whole``, whether the page has all pairs, rather than the
        subject's only; the significance level, the order of the methods, the cells; and ``pairs``: ``"first second"``
        (indices in the run's order) to concatenated rows ``[cell, metric, difference, low, high, p]``, where the cell
        is :data:`ALL_CELLS` for the difference of the means over all cells. None if the subject was not compared with
        any method.
    """
    mine, mine_overall = (rows[(rows["first"] == subject) | (rows["second"] == subject)] for rows in (pairs, overall))
    if mine.empty:
        return None
    whole = len(pairs) <= MAX_COMPARISONS
    cells = list(dict.fromkeys(pair_cells(pairs)))
    shown = (overall, pairs) if whole else (mine_overall, mine)
    settings = comparison_settings(cells, order)
    return {"subject": subject, "whole": whole, **settings, "pairs": pair_rows(run, cells, *shown)}


def comparison_settings(cells: Sequence[tuple[str, ...]], order: Sequence[str]) -> dict[str, Any]:
    """Return inputs of the page's script: significance level, cells, and order of the methods."""
    return {"level": ALPHA, "order": list(order), "cells": [dict(zip(CELL, cell, strict=True)) for cell in cells]}


def pair_rows(
    run: RunResults, cells: Sequence[tuple[str, ...]], overall: pd.DataFrame, pairs: pd.DataFrame
) -> dict[str, list[float | None]]:
    """Return the rows of :func:`method_pairs` by pair, and those over all cells first.

    Args:
        run: The run.
        cells: The cells, to whose indices the rows refer.
        overall: Comparisons over all cells.
        pairs: Comparisons in each cell.
    """
    methods = {name: place for place, name in enumerate(run.explainers)}
    metrics = {name: place for place, name in enumerate(run.metrics)}
    number = {cell: place for place, cell in enumerate(cells)}
    rows: dict[str, list[float | None]] = {}
    for frame in (overall, pairs):
        if frame.empty:
            continue
        over_cells = CELL[0] not in frame
        where = [ALL_CELLS] * len(frame) if over_cells else [number[cell] for cell in pair_cells(frame)]
        names = (frame[name].tolist() for name in ("first", "second", "metric"))
        values = zip(*(frame[name].astype(float).tolist() for name in PAIR_COLUMNS), strict=True)
        for cell, first, second, metric, numbers in zip(where, *names, values, strict=True):
            row = rows.setdefault(f"{methods[first]} {methods[second]}", [])
            row += [cell, metrics[metric], *map(round_for_page, numbers)]
    return rows


def pair_cells(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield subset, variant and model of each row."""
    return zip(*(frame[key].astype(str) for key in CELL), strict=True)


#: Largest number of sentences about metrics that the page shows: of one kind of truth, and of each of several.
_MAX_SENTENCES, _MAX_OF_EACH = 2, 1
#: Largest number of methods that share the first place with the best one and are named.
_MAX_NAMES = 2
#: Method that the user's own methods are compared with, if the run has it; otherwise the best one of the others.
_REFERENCE = "integrated_gradients"


def verdict(run: RunResults, boards: Mapping[str, Boards]) -> list[str]:
    """State in one sentence per metric which method is best, as far as that is significant."""
    most = _MAX_SENTENCES if len(boards) == 1 else _MAX_OF_EACH
    every = []
    for truth, board in boards.items():
        sentences: list[str] = []
        for metric in board.standings.leading:
            if len(sentences) < most and (sentence := _metric_sentence(run, board, metric)):
                sentences.append(" ".join([sentence, *_own_sentences(run, board, metric)]))
        if sentences and len(boards) > 1:
            sentences[0] = f"{heading(truth)}: {sentences[0]}"
        every += sentences
    return every


def unranked(run: RunResults, boards: Mapping[str, Boards]) -> list[str]:
    """Name, by kind of truth, the methods without a place because they are not better than the controls."""
    sentences = []
    for truth, board in boards.items():
        rows = board.rows()
        nowhere = [run.explainers[row["explainer"]].label for row in rows if row["ahead"] == 0]
        whole = [row for row in rows if row["ahead"] and row["cells"] == row["of"]]
        below = [run.explainers[row["explainer"]].label for row in whole if row["place"] is None]
        start = f"{heading(truth)}: no place" if len(boards) > 1 else "No place"
        if nowhere:
            sentences.append(f"{start}, because in no cell significantly better than every control: {listed(nowhere)}.")
        if below:
            sentences.append(f"{start}, because significantly worse than a control over its cells: {listed(below)}.")
    return sentences


def own_comparisons(run: RunResults, boards: Mapping[str, Boards], overall: pd.DataFrame) -> list[str]:
    """State which methods each own method is significantly better or worse than, by each leading metric.

    If the metrics of one kind of truth are several, a last sentence states what holds by all of them.

    Args:
        run: The run.
        boards: Its leaderboards.
        overall: Tests over all cells, from :func:`xaibench.scores.leaderboards.overall_comparisons`.
    """
    sentences = []
    for board in boards.values():
        for own in (part for part in run.explainers.values() if part.own):
            leads = {}
            for metric in (run.metrics[name] for name in board.standings.leading):
                if lead := _compare_own(own.name, metric, overall[overall["metric"] == metric.name]):
                    leads[metric.label] = lead
                    named = {
                        words: [part.label for name, part in run.explainers.items() if lead.get(name) == sign]
                        for words, sign in _OUTCOMES.items()
                    }
                    verdicts = [f"{words} {listed(labels, 6)}" for words, labels in named.items() if labels]
                    start = f"By {metric.label} over all cells that both have, {own.label} (yours) is"
                    sentences.append(f"{start} {'; '.join(verdicts)}.")
            if len(leads) > 1:
                signs = {name: {lead.get(name, 0) for lead in leads.values()} for name in run.explainers}
                better = [run.explainers[name].label for name, each in signs.items() if each == {1}]
                both = [run.explainers[name].label for name, each in signs.items() if {1, -1} <= each]
                split = f"; the metrics contradict each other for {listed(both, 6)}: report all of them" if both else ""
                start = f"By all {len(leads)} metrics, {own.label} (yours) is significantly better than"
                sentences.append(f"{start} {listed(better, 6)}{split}.")
    return sentences


#: Verdicts on a difference, and its sign; 0 if it is not significant.
_OUTCOMES = {"significantly better than": 1, "significantly worse than": -1, "not significantly different from": 0}


def _compare_own(name: str, metric: PartDescription, tests: pd.DataFrame) -> dict[str, int]:
    """Return whether a method is significantly better (1) or worse (-1) than each other one, or neither (0)."""
    leads = {}
    for row in records(tests[(tests["first"] == name) | (tests["second"] == name)]):
        is_first = row["first"] == name
        is_better = (row["difference"] > 0) == (is_first == metric.higher_is_better)
        leads[row["second" if is_first else "first"]] = 0 if not row["p_holm"] < ALPHA else 1 if is_better else -1
    return leads


def _metric_sentence(run: RunResults, board: Boards, metric: str) -> str:
    """Return the best method by a metric, the methods that share its place, and how many are above the controls."""
    rows = [row for row in board.rows(metric) if not row["control"]]
    label, placed = run.metrics[metric].label, [row for row in rows if row[f"first:{metric}"] is not None]
    controls = _control_counts(board, metric, rows)
    if not placed:
        return f"By {label}, no method has a place; {controls}." if controls else ""
    best, name = placed[0], run.explainers[placed[0]["explainer"]].label
    # A method with a better mean may be without a place, because its scores vary too much or it lacks a cell.
    lead = "has the best mean" if best is rows[0] else "is the best ranked method"
    lead = "is the only ranked method" if len(placed) == 1 else lead
    if best[f"last:{metric}"] > sum(row[f"first:{metric}"] == 1 for row in placed):  # as others are not worse
        lead += f" (places {place_text(best[f'first:{metric}'], best[f'last:{metric}'])})"
    mean, low, high = (best[f"{one}:{metric}"] for one in ("mean", "low", "high"))
    interval = "" if low is None else f" [{number(low)}, {number(high)}]"
    sentence = f"By {label}, {name} {lead}, {number(mean)}{interval}{_beyond(run, board, metric, placed)}"
    return f"{sentence}; {controls}." if controls else f"{sentence}."


def _control_counts(board: Boards, metric: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many methods are significantly better, and worse, than the controls; empty without controls.

    Methods without a score in some cell are not counted.
    """
    standings = board.standings
    if metric not in standings.tests:
        return ""
    cells = range(len(standings.cells))
    outcomes = standings.compare_with_controls(standings.metrics.index(metric), cells)
    whole = {row["explainer"] for row in rows if row[f"cells:{metric}"] == row[f"of:{metric}"]}
    counted = np.array([name in whole for name in standings.explainers])
    if outcomes is None or not (counted & outcomes.tested).any():
        return ""

    tested, overall, better, worse = (
        int((counted & flags).sum())
        for flags in (outcomes.tested, outcomes.overall, outcomes.overall | outcomes.in_a_cell, outcomes.worse)
    )

    def are(count: int, methods: str = "") -> str:
        return f"{count or 'none'}{methods} {'are' if count > 1 else 'is'} significantly"

    of = f" of {tested} method{'s' if tested > 1 else ''}"
    end = f"{are(worse)} worse than one"
    if len(cells) == 1:
        return f"{are(better, of)} better than every control; {end}"
    return (
        f"over all cells, {are(overall, of)} better than every control, {better - overall} more in at least one cell, "
        f"{tested - better} in none; {end}"
    )


def _beyond(run: RunResults, board: Boards, metric: str, placed: Sequence[Mapping[str, Any]]) -> str:
    """Return how the first of the placed methods compares with the others."""
    sharing = [run.explainers[row["explainer"]].label for row in placed[1:] if row[f"first:{metric}"] == 1]
    if len(placed) == 1:
        return ""
    if sharing:
        who = " and ".join(sharing) if len(sharing) <= _MAX_NAMES else f"{len(sharing)} other methods"
        return f", but is not significantly better than {who}"
    first, second = (row["explainer"] for row in placed[:2])
    test = _difference(board, metric, first, second, board.standings.cells)
    if test is None or test.low <= 0:
        return ", significantly better than every other ranked method"
    ends = f"{number(test.difference)} [{number(test.low)}, {number(test.high)}]"
    return f", significantly better than the next ranked method, {run.explainers[second].label}, by {ends}"


def _own_sentences(run: RunResults, board: Boards, metric: str) -> Iterator[str]:
    """Yield how each of the user's own methods compares with the reference, over the cells that have both."""
    ranked = [row["explainer"] for row in board.rows(metric) if not row["control"]]
    others = [name for name in ranked if not run.explainers[name].own]
    other = _REFERENCE if _REFERENCE in others else next(iter(others), "")
    tests = board.standings.tests[metric]
    for name in (name for name in ranked if run.explainers[name].own):
        if other and (test := _difference(board, metric, name, other, tests.cells_of(name, other))):
            word = "significantly" if test.p < ALPHA else "not significantly"
            ends = f"{number(test.difference)} [{number(test.low)}, {number(test.high)}]"
            yield (
                f"{run.explainers[name].label} (yours) is {word} {'better' if test.difference > 0 else 'worse'} than "
                f"{run.explainers[other].label}: difference {ends}."
            )


class _Difference(NamedTuple):
    """By how much a method is better than another, with the 95 % interval and the p-value."""

    difference: float
    low: float
    high: float
    p: float


def _difference(
    board: Boards, metric: str, first: str, second: str, cells: Sequence[tuple[str, str, str]]
) -> _Difference | None:
    """Test by how much the mean of ``first`` over cells is better; None without a test in each of them."""
    tests = board.standings.tests[metric].over(cells, [(first, second)])
    if tests.empty:
        return None
    row = tests.iloc[0]
    sign = 1 if (row["first"] == first) == board.standings.run.metrics[metric].higher_is_better else -1
    low, high = sorted(sign * float(row[end]) for end in ("low", "high"))
    return _Difference(sign * float(row["difference"]), low, high, float(row["p"]))
