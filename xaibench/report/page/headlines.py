"""Sentences at the top of the page: the best methods by each metric, as far as that is significant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from xaibench.core.messages import listed
from xaibench.report.page.content import board_rows, heading, records
from xaibench.report.page.templating import number
from xaibench.scores.leaderboards import Boards, place_text
from xaibench.scores.rank_tests import ALPHA
from xaibench.scores.results import RunResults

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
        names = [run.explainers[row["explainer"]].label for row in board_rows(board) if row["ahead"] == 0]
        if names:
            start = f"{heading(truth)}: no place" if len(boards) > 1 else "No place"
            sentences.append(f"{start}, because not significantly better than the controls: {', '.join(names)}.")
    return sentences


def own_comparisons(run: RunResults, boards: Mapping[str, Boards], overall: pd.DataFrame) -> list[str]:
    """State in one sentence per own method and kind of truth which methods it is significantly better or worse than.

    Args:
        run: The run.
        boards: Its leaderboards; the metric that orders the methods is the one of the sentence.
        overall: Tests over all cells, from :func:`xaibench.scores.leaderboards.overall_comparisons`.
    """
    sentences = []
    for board in boards.values():
        if (index := board.standings.ranking) is None:
            continue
        metric = run.metrics[board.standings.metrics[index]]
        tests = overall[overall["metric"] == metric.name]
        for name in (name for name, part in run.explainers.items() if part.own):
            others: dict[str, list[str]] = {
                "significantly better than": [],
                "significantly worse than": [],
                "not significantly different from": [],
            }
            for row in records(tests[(tests["first"] == name) | (tests["second"] == name)]):
                is_first = row["first"] == name
                ahead = (row["difference"] > 0) == (is_first == metric.higher_is_better)
                better, worse, same = others.values()
                where = same if not row["p_holm"] < ALPHA else better if ahead else worse
                where.append(row["second" if is_first else "first"])
            labels = {
                words: [part.label for one, part in run.explainers.items() if one in names]
                for words, names in others.items()
            }
            verdicts = [f"{words} {listed(names, 6)}" for words, names in labels.items() if names]
            if verdicts:
                label = run.explainers[name].label
                sentences.append(
                    f"By {metric.label} over all cells that both have, {label} (yours) is {'; '.join(verdicts)}."
                )
    return sentences


def _metric_sentence(run: RunResults, board: Boards, metric: str) -> str:
    """Return the best method by a metric, the methods that share its place, and how many do not beat the controls."""
    rows = [row for row in board_rows(board, metric) if not row["control"]]
    label, placed = run.metrics[metric].label, [row for row in rows if row[f"first:{metric}"] is not None]
    unproven = sum(row[f"ahead:{metric}"] == 0 for row in rows)
    if not placed:
        return f"By {label}, no method is significantly better than the controls." if unproven else ""
    best, name = placed[0], run.explainers[placed[0]["explainer"]].label
    # A method with a better mean may be without a place, because its scores vary too much or it lacks a cell.
    lead = "has the best mean" if best is rows[0] else "is the best ranked method"
    lead = "is the only ranked method" if len(placed) == 1 else lead
    if best[f"last:{metric}"] > sum(row[f"first:{metric}"] == 1 for row in placed):  # as others are not worse
        lead += f" (places {place_text(best[f'first:{metric}'], best[f'last:{metric}'])})"
    mean, low, high = (best[f"{one}:{metric}"] for one in ("mean", "low", "high"))
    interval = "" if low is None else f" [{number(low)}, {number(high)}]"
    sentence = f"By {label}, {name} {lead}, {number(mean)}{interval}{_beyond(run, board, metric, placed)}"
    if unproven:
        verb = "is" if unproven == 1 else "are"
        sentence += f"; {unproven} of {len(rows)} methods {verb} not significantly better than the controls"
    return f"{sentence}."


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
    ranked = [row["explainer"] for row in board_rows(board, metric) if not row["control"]]
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
