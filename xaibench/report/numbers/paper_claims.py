"""What the XAI-TRIS paper found, held against a run: each statement as a number with an interval and a verdict.

A statement is a function of the mean scores of the run's cells. It is worked out on the means themselves and on those
of resamples (over what was drawn: data sets, trainings and samples), whose middle 95 % are the interval. A statement
whose cells the run does not have is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices, resampled_means
from xaibench.report.read.run_results import RunResults

Verdict = Literal["holds", "does not hold", "undecided"]
#: ``(scenario, background, model)`` to the means of each method there, ``[1 + R]``: of the run, and of the resamples.
Means: TypeAlias = Mapping[tuple[str, str, str], Mapping[str, Floats]]

RESAMPLES = 2000
SCENARIOS = ("lin", "mult", "rigid", "xor")
SHAP = ("shapley_sampling", "gradient_shap", "kernel_shap", "deep_shap")


@dataclass(frozen=True)
class Claim:
    """One statement of the paper on one metric of the run.

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
    def verdict(self) -> Verdict:
        """``"holds"`` where the whole interval is on the stated side, ``"undecided"`` where the bound is inside it."""
        if self.low <= self.bound <= self.high:
            return "undecided"
        return "holds" if (self.value > self.bound) == self.above else "does not hold"


@dataclass(frozen=True)
class _Statement:
    """How to work out a statement: from the means and the names of the methods (no controls), ``[n, 1 + R]``."""

    statement: str
    source: str
    quantity: str
    bound: float
    above: bool
    compare: Callable[[Means, tuple[str, ...]], Iterator[Floats]]


def claims(run: RunResults, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Claim]:
    """The statements of the XAI-TRIS paper that the run has the cells for, for each of its metrics.

    Args:
        run: The run.
        resamples: How many, for the intervals.
        seed: Of their draw.

    Returns:
        The claims, metric by metric. Empty for a run of other data sets.
    """
    cells = list(cell_matrices(run))
    resampled = resampled_means(cells, resamples, seed)
    methods = tuple(name for name, part in run.explainers.items() if not part.control)
    found = []
    for name, metric in run.metrics.items():
        sign = 1.0 if metric.higher_is_better else -1.0
        means = {
            cell.cell: _by_method(cell, resampled[cell.cell], name, sign) for cell in cells if name in cell.metrics
        }
        found += [claim for each in _STATEMENTS if (claim := _claim(each, name, means, methods)) is not None]
    return found


def _claim(stated: _Statement, metric: str, means: Means, methods: tuple[str, ...]) -> Claim | None:
    compared = list(stated.compare(means, methods))
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


def _by_method(cell: Matrices, means: Floats, metric: str, sign: float) -> dict[str, Floats]:
    """``[1 + R]`` means of each method of the cell that has a score there, larger = better."""
    mine = sign * means[:, cell.metrics.index(metric)]
    return {name: mine[:, m] for m, name in enumerate(cell.methods) if not np.isnan(mine[0, m])}


def _corr_below_white(means: Means, methods: tuple[str, ...]) -> Iterator[Floats]:
    for (scenario, background, model), white in means.items():
        corr = means.get((scenario, "corr", model), {})
        if background == "white":
            yield from (_below(corr[name], white[name]) for name in methods if name in corr and name in white)


def _laplace_above(scenario: str) -> Callable[[Means, tuple[str, ...]], Iterator[Floats]]:
    def compare(means: Means, methods: tuple[str, ...]) -> Iterator[Floats]:
        for (place, background, _), cell in means.items():
            if (place, background) == (scenario, "corr") and "laplace" in cell:
                yield from (_below(cell[name], cell["laplace"]) for name in methods if name in cell)

    return compare


def _shap_spread(means: Means, methods: tuple[str, ...]) -> Iterator[Floats]:
    for (scenario, _, _), cell in means.items():
        if scenario not in SCENARIOS:
            continue
        every = np.array([cell[name] for name in methods if name in cell])
        shap = np.array([cell[name] for name in SHAP if name in cell])
        if len(shap) > 1 and len(every) > len(shap):
            yield np.ptp(shap, axis=0) / np.maximum(np.ptp(every, axis=0), np.finfo(float).tiny)


def _simpler_is_better(first: str, second: str) -> Callable[[Means, tuple[str, ...]], Iterator[Floats]]:
    def compare(means: Means, methods: tuple[str, ...]) -> Iterator[Floats]:
        for (scenario, background, model), cell in means.items():
            other = means.get((scenario, background, second), {})
            if (scenario, model) == ("lin", first):
                yield from (_below(other[name], cell[name]) for name in methods if name in other and name in cell)

    return compare


def _below(lower: Floats, upper: Floats) -> Floats:
    """1 where below, 0 where above, one half for a tie."""
    return (np.sign(upper - lower) + 1) / 2


_PAPER = "Clark, Wilming, Haufe 2024, section 4"
_STATEMENTS = (
    _Statement(
        "Correlated backgrounds lead to worse explanations than white ones, in most cases",
        _PAPER,
        "share of scenario, model and method with a lower mean on CORR than on WHITE",
        0.5,
        True,
        _corr_below_white,
    ),
    *(
        _Statement(
            f"On {scenario.upper()} with correlated backgrounds the Laplace filter outperforms nearly all methods",
            _PAPER,
            "share of model and method below the Laplace filter; nearly all = over 0.8",
            0.8,
            True,
            _laplace_above(scenario),
        )
        for scenario in ("rigid", "xor")
    ),
    _Statement(
        "The variants of SHAP score alike",
        f"{_PAPER} and Figure 7",
        "spread of the means of the SHAP variants, as a share of that of all methods; mean over the cells",
        0.5,
        False,
        _shap_spread,
    ),
    *(
        _Statement(
            f"On LIN the {first.upper()} is explained better than the {second.upper()}, by most methods",
            f"{_PAPER} and Figure 7",
            f"share of background and method with a higher mean for the {first.upper()}",
            0.5,
            True,
            _simpler_is_better(first, second),
        )
        for first, second in (("llr", "mlp"), ("mlp", "cnn"))
    ),
)
