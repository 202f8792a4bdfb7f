"""A paper's statement as a number of a run, with an interval and a verdict.

A statement is a function of the mean scores of the run's cells. It is worked out on the means themselves and on those
of resamples (over what was drawn: data sets, trainings and samples), whose middle 95 % are the interval. A statement
whose cells the run does not have is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from xaibench.report.numbers.inference import Floats, Matrices, resampled_means
from xaibench.report.read.run_results import RunResults

Verdict = Literal["holds", "does not hold", "undecided"]
#: ``(scenario, background, model)`` to the means of each method there, ``[1 + R]``: of the run, and of the resamples.
Means: TypeAlias = Mapping[tuple[str, str, str], Mapping[str, Floats]]


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, held against the run.

    Attributes:
        statement: What the paper says.
        source: Where.
        metric: Name of the metric.
        quantity: What ``value`` is.
        cells: How many comparisons it is taken over.
        value: In the run.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Where the statement begins to hold.
        above: Whether it holds above the bound, or below.
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

    @property
    def paper(self) -> str:
        """The authors of the source, and the year."""
        return self.source[: _year(self.source)]

    @property
    def place(self) -> str:
        """Where in the paper."""
        return self.source[_year(self.source) :].removeprefix(", ")

    @property
    def verdict(self) -> Verdict:
        """``"holds"`` where the whole interval is on the stated side, ``"undecided"`` where the bound is inside it."""
        if self.low <= self.bound <= self.high:
            return "undecided"
        return "holds" if (self.value > self.bound) == self.above else "does not hold"


def _year(source: str) -> int:
    """Where the year ends, the first four digits of a source."""
    found = re.search(r"\b\d{4}\b", source)
    return found.end() if found else len(source)


@dataclass(frozen=True)
class Cells:
    """What a statement is worked out from: means of one metric, turned so that larger is better.

    Attributes:
        means: By cell and method.
        methods: The run's explainers that are no controls.
        controls: Those that are.
        others: The means of every metric of the run, by its name.
    """

    means: Means
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    others: Mapping[str, Means]

    def of_methods(self) -> Iterator[tuple[tuple[str, str, str], dict[str, Floats]]]:
        """Each cell with its methods alone, without controls."""
        for cell, means in self.means.items():
            yield cell, {name: means[name] for name in self.methods if name in means}

    def of_controls(self, cell: tuple[str, str, str]) -> list[Floats]:
        """The means of the controls in a cell."""
        return [self.means[cell][name] for name in self.controls if name in self.means[cell]]


@dataclass(frozen=True)
class Statement:
    """How to work a statement out.

    Attributes:
        statement: What the paper says.
        source: Where.
        quantity: What the number is.
        bound: Where the statement begins to hold; where the paper gives none, ours, which ``quantity`` says.
        above: Whether it holds above the bound, or below.
        compare: Yields one ``[1 + R]`` for each comparison, whose mean is the number.
        metrics: Those that the statement is about; none = each.
    """

    statement: str
    source: str
    quantity: str
    bound: float
    above: bool
    compare: Callable[[Cells], Iterator[Floats]]
    metrics: tuple[str, ...] = ()


def hold_against(
    run: RunResults, matrices: Sequence[Matrices], statements: Sequence[Statement], resamples: int, seed: int
) -> list[Claim]:
    """The statements that the run has the cells for, metric by metric.

    Args:
        run: The run.
        matrices: The scores of its cells.
        statements: To be held against it.
        resamples: How many, for the intervals.
        seed: Of their draw.

    Returns:
        A claim for each metric of the run that a statement is about; none for skills.
    """
    resampled = resampled_means(matrices, resamples, seed)
    methods, controls = (
        tuple(name for name, part in run.explainers.items() if part.control is which) for which in (False, True)
    )
    # The papers speak of scores; their skills would say it again.
    scores = {name: part for name, part in run.metrics.items() if not part.skill_of}
    means = {name: cell_means(matrices, resampled, name, part.higher_is_better) for name, part in scores.items()}
    found = []
    for metric, mine in means.items():
        cells = Cells(mine, methods, controls, means)
        found += [
            claim
            for each in statements
            if metric in (each.metrics or (metric,)) and (claim := claim_of(each, metric, cells)) is not None
        ]
    return found


def claim_of(stated: Statement, metric: str, cells: Cells) -> Claim | None:
    """The statement as worked out on the cells; none where they have nothing to compare."""
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
    )


def cell_means(
    matrices: Sequence[Matrices], resampled: Mapping[tuple[str, str, str], Floats], metric: str, up: bool
) -> Means:
    """By cell the ``[1 + R]`` means of each method that has a score there, larger = better."""
    found = {}
    for cell in matrices:
        if metric in cell.metrics:
            mine = (1.0 if up else -1.0) * resampled[cell.cell][:, cell.metrics.index(metric)]
            found[cell.cell] = {name: mine[:, m] for m, name in enumerate(cell.methods) if not np.isnan(mine[0, m])}
    return found


def below(lower: Floats, upper: Floats) -> Floats:
    """1 where below, 0 where above, one half for a tie."""
    return (np.sign(upper - lower) + 1) / 2


def spread(some: Sequence[Floats], every: Sequence[Floats]) -> Floats:
    """The range of some means as a share of that of all."""
    share: Floats = np.ptp(some, axis=0) / np.maximum(np.ptp(every, axis=0), np.finfo(float).tiny)
    return share
