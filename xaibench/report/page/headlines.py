"""Sentences at the top of the page: the best methods by each metric, as far as that is significant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    if after and (test := _difference(board, metric, best[0]["explainer"], after[0]["explainer"])):
        difference, low, high = test
        sentence += (
            f"; {run.explainers[best[0]['explainer']].label} is better than the next one, "
            f"{run.explainers[after[0]['explainer']].label}, by {difference:.3f} ({low:.3f} to {high:.3f})"
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
        found = tests.over(tests.cells_of(name, other), [(name, other)])
        if other and len(found):
            row = found.iloc[0]
            sign = 1 if (row["first"] == name) == run.metrics[metric].higher_is_better else -1
            ends = sorted(sign * float(row[end]) for end in ("low", "high"))
            better = "better" if sign * row["difference"] > 0 else "worse"
            word = "significantly " if row["p"] < ALPHA else "not significantly "
            yield (
                f"{run.explainers[name].label} (yours) is {word}{better} than {run.explainers[other].label}: "
                f"difference {sign * float(row['difference']):.3f} ({ends[0]:.3f} to {ends[1]:.3f})."
            )


def _difference(board: Boards, metric: str, first: str, second: str) -> tuple[float, float, float] | None:
    """Return by how much the mean of ``first`` over all cells is better, with its 95 % interval.

    None if the interval includes zero: another method than ``first`` may be the one that is significantly better.
    """
    found = board.standings.tests[metric].over(board.standings.cells, [(first, second)])
    if found.empty:
        return None
    row = found.iloc[0]
    higher = board.standings.run.metrics[metric].higher_is_better
    sign = 1 if (row["first"] == first) == higher else -1
    ends = sorted(sign * float(row[name]) for name in ("low", "high"))
    difference = sign * float(row["difference"])
    return (difference, ends[0], ends[1]) if ends[0] > 0 else None
