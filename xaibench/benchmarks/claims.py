"""Statements of papers about a benchmark, as functions of the mean scores of a run's cells.

A benchmark with a paper defines its :class:`PaperClaims` in ``claims.py`` of its folder. They are tested on a run by
:mod:`xaibench.report.claims`, with intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.benchmarks.folders import benchmark_modules

Floats: TypeAlias = NDArray[np.float64]
#: Subset, variant and model.
Cell: TypeAlias = tuple[str, str, str]
#: Cell to method to scores ``[D, G, 2]`` by data set seed, pair and form; NaN if undefined.
Pairs: TypeAlias = Mapping[Cell, Mapping[str, Floats]]
#: Cell to method to means ``[1 + R]``: the mean of the run, then those of the resamples.
Means: TypeAlias = Mapping[Cell, Mapping[str, Floats]]


@dataclass(frozen=True)
class Cells:
    """Mean scores by one metric, oriented so that larger is better, from which a statement is evaluated.

    Attributes:
        means: Means by cell and method.
        methods: The run's explainers without controls.
        controls: The controls.
        others: Means by every metric of the run.
    """

    means: Means
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    others: Mapping[str, Means]

    def of_methods(self) -> Iterator[tuple[Cell, dict[str, Floats]]]:
        """Yield each cell with the means of its methods, without controls."""
        for cell, means in self.means.items():
            yield cell, {name: means[name] for name in self.methods if name in means}

    def of_controls(self, cell: Cell) -> list[Floats]:
        """Return the means of the controls in a cell."""
        return [self.means[cell][name] for name in self.controls if name in self.means[cell]]


@dataclass(frozen=True)
class Statement:
    """A paper's statement, and how to evaluate it.

    Attributes:
        statement: The statement.
        source: Paper and section.
        quantity: Definition of the number.
        bound: Bound beyond which the statement holds.
        above: Whether the statement holds above the bound, or below it.
        compare: Yields ``[1 + R]`` per comparison; their mean is the number.
        metrics: Metrics that the statement is about; empty = all.
        datasets: Ending of the names of the data sets that the statement is about, such as ``"-64x64"``; empty = all.
        tried: If the bound is ours, since the paper gives only words: a lower and an upper bound, at which the verdict
            is given as well. Empty if the bound follows from the words, such as a majority or a sign.
    """

    statement: str
    source: str
    quantity: str
    bound: float
    above: bool
    compare: Callable[[Cells], Iterator[Floats]]
    metrics: tuple[str, ...] = ()
    datasets: str = ""
    tried: tuple[float, ...] = ()


@dataclass(frozen=True)
class CorrelationStatement:
    """A paper's statement about the correlation of two metrics over the samples of a cell.

    Attributes:
        statement: The statement.
        source: Paper and table.
        metrics: The two metrics, oriented so that higher is better.
        explainer: The explainer whose scores are correlated.
        bound: Bound beyond which the statement holds.
        above: Whether the statement holds above the bound, or below it.
        tried: Other bounds, if the bound is ours; see :class:`Statement`.
    """

    statement: str
    source: str
    metrics: tuple[str, str]
    explainer: str
    bound: float
    above: bool
    tried: tuple[float, ...] = ()


@dataclass(frozen=True)
class PairStatement:
    """A paper's statement about samples that come in two forms, such as with and without a watermark.

    Attributes:
        statement: The statement.
        source: Paper and section.
        metric: The metric of the scores.
        quantity: Definition of the number.
        bound: Bound beyond which the statement holds.
        above: Whether the statement holds above the bound, or below it.
        compute: Returns the number from the scores; NaN if the run lacks a part of them.
        tried: Other bounds, if the bound is ours; see :class:`Statement`.
    """

    statement: str
    source: str
    metric: str
    quantity: str
    bound: float
    above: bool
    compute: Callable[[Pairs], float]
    tried: tuple[float, ...] = ()


def _keep(cell: Cell, accuracy: float, note: str) -> str:
    """Leave no cell out, regardless of its accuracy."""
    return ""


@dataclass(frozen=True)
class PaperClaims:
    """What the paper of a benchmark states.

    Attributes:
        applies: Whether the statements are about a cell of a run.
        statements: Statements about the mean scores of one run.
        size_statements: Statements about two runs of the benchmark with small and large images.
        correlations: Statements about pairs of metrics.
        pairs: Statements about samples in two forms.
        forms: Endings of the names of the two forms of a sample, in the order of the scores of ``pairs``.
        explainers: The paper's methods and controls. Others of a run are left out, as no statement is about them. Empty
            = all.
        leave_out: Called with a cell, the mean test accuracy of its networks in percent (NaN if unknown) and the note
            of its data set; returns why it supports no statement, or an empty string.
    """

    applies: Callable[[Cell], bool]
    statements: tuple[Statement, ...]
    size_statements: tuple[Statement, ...] = ()
    correlations: tuple[CorrelationStatement, ...] = ()
    pairs: tuple[PairStatement, ...] = ()
    forms: tuple[str, str] = ("", "")
    explainers: frozenset[str] = frozenset()
    leave_out: Callable[[Cell, float, str], str] = _keep

    def is_about(self, explainer: str) -> bool:
        """Return whether the statements are about an explainer."""
        return not self.explainers or explainer in self.explainers


def all_claims() -> tuple[PaperClaims, ...]:
    """Return the claims of every benchmark that defines some, in the order of the benchmarks' names."""
    return tuple(module.CLAIMS for module in benchmark_modules("claims"))


def below(lower: Floats, upper: Floats) -> Floats:
    """Return 1 if ``lower`` is below ``upper``, 0 if it is above, and 0.5 for a tie."""
    return (np.sign(upper - lower) + 1) / 2


def relative_range(some: Sequence[Floats], every: Sequence[Floats]) -> Floats:
    """Return the range of some means divided by the range of all."""
    share: Floats = np.ptp(some, axis=0) / np.maximum(np.ptp(every, axis=0), np.finfo(float).tiny)
    return share
