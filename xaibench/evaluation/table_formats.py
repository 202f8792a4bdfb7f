"""The table of an evaluation for papers and repositories: LaTeX and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from xaibench.core.markup import escape_latex

if TYPE_CHECKING:
    from xaibench.evaluation.table import Evaluation


#: Mark in the table for methods that are not better than every control.
MARK = "†"


class Cell(NamedTuple):
    """A mean with its interval.

    Attributes:
        mean: The mean; nan without a defined score.
        low: Lower end of the interval; nan if there is none.
        high: Upper end of the interval.
        is_best: Whether the method belongs to the best ones.
        mark: Footnote mark.
    """

    mean: float
    low: float
    high: float
    is_best: bool
    mark: str


def to_latex(
    evaluation: Evaluation,
    metrics: Sequence[str],
    digits: int,
    caption: str | None,
    label: str | None,
) -> str:
    """Return the table in LaTeX (:meth:`xaibench.evaluation.Evaluation.to_latex`)."""

    def cell(one: Cell) -> str:
        if math.isnan(one.mean):
            return f"--{escape_latex(one.mark)}"
        text = f"{one.mean:.{digits}f}".replace("-", "$-$")
        text = f"\\textbf{{{text}}}" if one.is_best else text
        if math.isnan(one.low):
            return text + escape_latex(one.mark)
        ends = f"{one.low:.{digits}f}, {one.high:.{digits}f}".replace("-", "$-$")
        return f"{text}{escape_latex(one.mark)} {{\\scriptsize [{ends}]}}"

    head = ["Method", *(escape_latex(metric_heading(evaluation, metric)) for metric in metrics)]
    methods, controls = _groups(evaluation)
    lines = ["% \\usepackage{booktabs}", *(f"% {note}" for note in _notes(evaluation))]
    inside = [f"\\begin{{tabular}}{{l{'l' * len(metrics)}}}", "\\toprule", " & ".join(head) + r" \\", "\\midrule"]
    rows = _rows(evaluation, metrics)
    for number, group in enumerate(part for part in (methods, controls) if part):
        inside += ["\\midrule"] if number else []
        inside += [" & ".join([escape_latex(name), *map(cell, rows[name])]) + r" \\" for name in group]
    inside += ["\\bottomrule", "\\end{tabular}"]
    if caption is not None or label is not None:
        outside = ["\\begin{table}", "\\centering"]
        outside += [f"\\caption{{{caption}}}"] if caption is not None else []
        outside += [f"\\label{{{label}}}"] if label is not None else []
        inside = [*outside, *inside, "\\end{table}"]
    return "\n".join([*lines, *inside]) + "\n"


def to_markdown(evaluation: Evaluation, metrics: Sequence[str], digits: int) -> str:
    """Return the table in Markdown (:meth:`xaibench.evaluation.Evaluation.to_markdown`)."""

    def cell(one: Cell) -> str:
        if math.isnan(one.mean):
            return f"–{one.mark}"
        text = f"{one.mean:.{digits}f}"
        text = f"**{text}**" if one.is_best else text
        return f"{text}{one.mark}" + ("" if math.isnan(one.low) else f" [{one.low:.{digits}f}, {one.high:.{digits}f}]")

    escape: Callable[[str], str] = lambda text: text.replace("|", "\\|")  # noqa: E731
    methods, controls = _groups(evaluation)
    rows = _rows(evaluation, metrics)
    lines = [["method", *(metric_heading(evaluation, metric) for metric in metrics)], ["---", *["---"] * len(metrics)]]
    lines += [[name, *map(cell, rows[name])] for name in (*methods, *controls)]
    table = "\n".join(f"| {' | '.join(map(escape, line))} |" for line in lines)
    return "\n\n".join([table, *_notes(evaluation)]) + "\n"


def _notes(evaluation: Evaluation) -> list[str]:
    best = "Bold: the best mean, and means that do not differ significantly from it (paired t-test, 5 %, Holm)."
    return [*evaluation.notes(), best]


def metric_heading(evaluation: Evaluation, metric: str) -> str:
    """Return the label of a metric with an arrow for its direction."""
    info = evaluation.metrics[metric]
    return f"{info.label} {'↑' if info.higher_is_better else '↓'}"


def _groups(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """Return the methods, and the controls."""
    methods = [name for name in evaluation.methods if name not in evaluation.controls]
    return methods, [name for name in evaluation.methods if name in evaluation.controls]


def _rows(evaluation: Evaluation, metrics: Sequence[str]) -> dict[str, list[Cell]]:
    best = {metric: evaluation.best_methods(metric) for metric in metrics}
    found: dict[str, dict[str, Cell]] = {name: {} for name in evaluation.methods}
    row: Any
    for row in evaluation.summary().itertuples():
        if row.metric in best:
            mark = MARK if row.beats_controls == False else ""  # noqa: E712  # it may be a bool of NumPy, or None
            found[row.method][row.metric] = Cell(row.mean, row.low, row.high, row.method in best[row.metric], mark)
    return {name: [cells[metric] for metric in metrics] for name, cells in found.items()}
