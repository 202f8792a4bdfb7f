"""Sentences at the top of the page: the best methods by each metric, as far as that is significant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.content import board_rows, heading
from xaibench.report.read.results import RunResults
from xaibench.statistics.multiple_tests import ALPHA

#: Largest number of metrics per kind of truth with a sentence each.
_MAX_SENTENCES = 3
#: Largest number of methods that a sentence names.
_MAX_NAMES = 4
#: Method that the user's own methods are compared with, if the run has it; otherwise the best one of the others.
_REFERENCE = "integrated_gradients"


def verdict(run: RunResults, boards: Mapping[str, Boards]) -> list[str]:
    """State, by kind of truth and metric, which methods are best as far as that is significant."""
    found = []
    for truth, board in boards.items():
        sentences = []
        for metric in board.standings.leading:
            if metric in run.unsettled:
                sentences.append(
                    f"By {run.metrics[metric].label}, no method ranks first: {run.unsettled[metric].summary()}."
                )
            elif len(sentences) < _MAX_SENTENCES and (sentence := _metric_sentence(run, board, metric)):
                sentences.append(" ".join([sentence, *_own_sentences(run, board, metric)]))
        if sentences and len(boards) > 1:
            sentences[0] = f"{heading(truth)}: {sentences[0]}"
        found += sentences
    return found


def unranked(run: RunResults, boards: Mapping[str, Boards]) -> list[str]:
    """Name, by kind of truth, the methods without a place because they are not better than the controls."""
    found = []
    for truth, board in boards.items():
        names = [run.explainers[row["explainer"]].label for row in board_rows(board) if row["ahead"] == 0]
        if names:
            start = f"{heading(truth)}: no place" if len(boards) > 1 else "No place"
            found.append(f"{start}, because not significantly better than the controls: {', '.join(names)}.")
    return found


def _metric_sentence(run: RunResults, board: Boards, metric: str) -> str:
    """Return the best group by a metric, the next method, and the methods that are not better than the controls."""
    rows = [row for row in board_rows(board, metric) if not row["control"]]
    label, placed = run.metrics[metric].label, [row for row in rows if row[f"first:{metric}"] is not None]
    unproven = [row for row in rows if row[f"ahead:{metric}"] == 0]
    if not placed:
        return f"By {label}, no method is significantly better than the controls." if unproven else ""
    best = [row for row in placed if row[f"first:{metric}"] == 1]
    named = ", ".join(
        f"{run.explainers[row['explainer']].label} ({row[f'mean:{metric}']:.3f})" for row in best[:_MAX_NAMES]
    )
    if len(placed) == 1:
        sentence = f"By {label}, {named} is the only ranked method"
    elif len(best) == 1:
        sentence = f"By {label}, {named} is significantly better than every other ranked method"
    elif len(best) == len(placed):
        sentence = f"By {label}, no method is significantly better than all others; the best means: {named}"
    else:
        more = f" and {len(best) - _MAX_NAMES} more" if len(best) > _MAX_NAMES else ""
        sentence = f"By {label}, the first places are shared by {len(best)} methods: {named}{more}"
    after = [row for row in placed if row[f"first:{metric}"] > 1]
    if after:
        names = best[0]["explainer"], after[0]["explainer"]
        test = _difference(board, metric, *names, board.standings.cells)
        # If the interval includes zero, another method than the first may be the one that is significantly better.
        if test and test.low > 0:
            first, second = (run.explainers[name].label for name in names)
            sentence += (
                f"; {first} is better than the next one, {second}, by {test.difference:.3f} "
                f"({test.low:.3f} to {test.high:.3f})"
            )
    if unproven:
        labels = ", ".join(run.explainers[row["explainer"]].label for row in unproven)
        sentence += f". Not better than the controls: {labels}"
    return sentence + "."


def _own_sentences(run: RunResults, board: Boards, metric: str) -> Iterator[str]:
    """Yield how each of the user's own methods compares with the reference, over the cells that have both."""
    ranked = [row["explainer"] for row in board_rows(board, metric) if not row["control"]]
    others = [name for name in ranked if not run.explainers[name].own]
    other = _REFERENCE if _REFERENCE in others else next(iter(others), "")
    tests = board.standings.tests[metric]
    for name in (name for name in ranked if run.explainers[name].own):
        if other and (test := _difference(board, metric, name, other, tests.cells_of(name, other))):
            word = "significantly" if test.p < ALPHA else "not significantly"
            yield (
                f"{run.explainers[name].label} (yours) is {word} {'better' if test.difference > 0 else 'worse'} than "
                f"{run.explainers[other].label}: difference {test.difference:.3f} ({test.low:.3f} to {test.high:.3f})."
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
    found = board.standings.tests[metric].over(cells, [(first, second)])
    if found.empty:
        return None
    row = found.iloc[0]
    sign = 1 if (row["first"] == first) == board.standings.run.metrics[metric].higher_is_better else -1
    low, high = sorted(sign * float(row[end]) for end in ("low", "high"))
    return _Difference(sign * float(row["difference"]), low, high, float(row["p"]))
