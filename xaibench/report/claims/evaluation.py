"""Tests of a paper's statements: a number of a run with an interval and a verdict.

A statement is a function of the mean scores of the run's cells. It is evaluated on the means themselves and on their
resamples (over data sets, trainings and samples). The middle 95 % of the resampled values are the interval. A statement
is left out if the run has none of its cells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xaibench.benchmarks.claims import Cell, Cells, Means, PaperClaims, Statement
from xaibench.report.numbers.inference import Floats, Matrices, resampled_means
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL

ClaimVerdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Claim:
    """A paper's statement, tested on a run.

    Attributes:
        statement: The statement.
        source: Paper and section.
        metric: Name of the metric.
        quantity: Definition of ``value``.
        cells: Number of comparisons that ``value`` is the mean of.
        value: Value in the run.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Bound beyond which the statement holds.
        above: Whether the statement holds above the bound, or below it.
        tried: Other bounds, if the bound is ours and not the paper's.
    """

    statement: str
    source: str
    metric: str
    quantity: str
    cells: int
    value: float
    low: float
    high: float
    bound: float
    above: bool
    tried: tuple[float, ...] = ()

    @property
    def paper(self) -> str:
        """Authors and year of the source."""
        return self.source[: _end_of_year(self.source)]

    @property
    def place(self) -> str:
        """Section or figure of the paper."""
        return self.source[_end_of_year(self.source) :].removeprefix(", ")

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict at the bound."""
        return self.verdict_at(self.bound)

    def verdict_at(self, bound: float) -> ClaimVerdict:
        """Return ``"holds"`` if the whole interval is on the stated side, ``"undecided"`` if the bound is inside it."""
        if self.low <= bound <= self.high:
            return "undecided"
        return "holds" if (self.value > bound) == self.above else "does not hold"

    @property
    def verdict_text(self) -> str:
        """The verdict, and if the bound is ours, the verdicts at the other bounds.

        Example:
            >>> Claim("", "", "", "", 3, 0.85, 0.82, 0.88, 0.8, True, (0.7, 0.9)).verdict_text
            'holds at 0.8 (also at 0.7), does not hold at 0.9'
        """
        if not self.tried:
            return self.verdict
        same = [f"{bound:g}" for bound in self.tried if self.verdict_at(bound) == self.verdict]
        other = [f", {self.verdict_at(bound)} at {bound:g}" for bound in self.tried if f"{bound:g}" not in same]
        also = f" (also at {' and '.join(same)})" if same else ""
        return f"{self.verdict} at {self.bound:g}{also}{''.join(other)}"

    @property
    def bound_text(self) -> str:
        """The bound with its side, marked if it is ours: ``"> 0.8 (ours)"``."""
        return f"{'>' if self.above else '<'} {self.bound:g}{' (ours)' if self.tried else ''}"


def _end_of_year(source: str) -> int:
    """Return the index after the year, the first four digits of a source."""
    found = re.search(r"\b\d{4}\b", source)
    return found.end() if found else len(source)


def check_statements(
    run: RunResults, matrices: Sequence[Matrices], paper: PaperClaims, resamples: int, seed: int
) -> list[Claim]:
    """Test the statements for which the run has the cells, metric by metric.

    Args:
        run: The run.
        matrices: The scores of its cells.
        paper: The paper of the statements.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Returns:
        A claim per statement and metric of the run that it is about; none for skills.
    """
    resampled = resampled_means(matrices, resamples, seed)
    names = cell_datasets(run)
    methods, controls = (
        tuple(name for name, part in run.explainers.items() if part.control is which and paper.is_about(name))
        for which in (False, True)
    )
    # The statements are about scores; skills would repeat them.
    scores = {name: part for name, part in run.metrics.items() if not part.skill_of}
    means = {name: cell_means(matrices, resampled, name, part.higher_is_better) for name, part in scores.items()}
    found = []
    for metric, mine in means.items():
        for each in paper.statements:
            if metric in (each.metrics or (metric,)):
                here = {cell: row for cell, row in mine.items() if names[cell].endswith(each.datasets)}
                claim = evaluate_statement(each, metric, Cells(here, methods, controls, means))
                found += [] if claim is None else [claim]
    return found


def cell_datasets(run: RunResults) -> dict[Cell, str]:
    """Return the name of the data set of each cell that has scores."""
    rows = run.scores[[*CELL, "dataset"]].drop_duplicates(list(CELL))
    return {(str(s), str(v), str(m)): str(name) for s, v, m, name in rows.itertuples(index=False)}


def supported_cells(run: RunResults, matrices: Iterable[Matrices], paper: PaperClaims) -> list[Matrices]:
    """Return the cells that the paper's statements are about, except cells that are left out."""
    excluded = left_out(run, paper)
    return [each for each in matrices if paper.applies(each.cell) and each.cell not in excluded]


def left_out(run: RunResults, paper: PaperClaims) -> dict[Cell, str]:
    """Return why cells of a run that the paper's statements are about support none of them.

    Args:
        run: The run.
        paper: The paper of the statements.

    Returns:
        A reason for each cell that is left out.
    """
    if not any(paper.applies(cell) for cell in run.scored_cells):
        return {}
    accuracies = run.accuracy.drop_duplicates(list(CELL)).set_index(list(CELL))["mean"].to_dict()
    notes = run.environment.get("notes", {})
    found = {}
    for cell, name in cell_datasets(run).items():
        if paper.applies(cell):
            found[cell] = paper.leave_out(cell, float(accuracies.get(cell, math.nan)), notes.get(name, ""))
    return {cell: reason for cell, reason in found.items() if reason}


def evaluate_statement(stated: Statement, metric: str, cells: Cells) -> Claim | None:
    """Evaluate a statement on the cells; None if there is nothing to compare."""
    compared = list(stated.compare(cells))
    if not compared:
        return None
    values = np.mean(compared, axis=0)
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return Claim(
        statement=stated.statement,
        source=stated.source,
        metric=metric,
        quantity=stated.quantity,
        cells=len(compared),
        value=float(values[0]),
        low=float(low),
        high=float(high),
        bound=stated.bound,
        above=stated.above,
        tried=stated.tried,
    )


def cell_means(matrices: Sequence[Matrices], resampled: Mapping[Cell, Floats], metric: str, up: bool) -> Means:
    """Return the means ``[1 + R]`` by cell and method, larger = better; methods without a score are left out."""
    found = {}
    for cell in matrices:
        if metric in cell.metrics:
            mine = (1.0 if up else -1.0) * resampled[cell.cell][:, cell.metrics.index(metric)]
            found[cell.cell] = {name: mine[:, m] for m, name in enumerate(cell.methods) if not np.isnan(mine[0, m])}
    return found
