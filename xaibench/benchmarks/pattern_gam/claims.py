"""Statements of the printed table of PatternGAM about the four methods for networks (:mod:`.published_table`).

The paper draws no conclusions about them in words, so each statement is one that holds in all, or nearly all, cells of
its table. Tests are on means of signed maps of one class, which is how the published notebook reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from xaibench.benchmarks.claims import Cell, Cells, Floats, PaperClaims, Statement, below
from xaibench.benchmarks.pattern_gam.facets import VARIANTS
from xaibench.benchmarks.pattern_gam.published_table import METHODS

#: Names in the suite.
GLOBAL = {method: f"{method}-signed" for method in METHODS}
_Compare = Callable[[Cells], Iterator[Floats]]
_ALL = ("lin", "mult", "xor")


def _applies(cell: Cell) -> bool:
    subset, variant, model = cell
    return subset in _ALL and variant in VARIANTS and model == "mlp"


def _above(better: str, worse: str) -> _Compare:
    def compare(cells: Cells) -> Iterator[Floats]:
        for _, means in cells.of_methods():
            if {GLOBAL[better], GLOBAL[worse]} <= means.keys():
                yield below(means[GLOBAL[worse]], means[GLOBAL[better]])

    return compare


def _first(method: str, subsets: Collection[str]) -> _Compare:
    def compare(cells: Cells) -> Iterator[Floats]:
        for (subset, _, _), means in cells.of_methods():
            others = [means[GLOBAL[name]] for name in METHODS if name != method and GLOBAL[name] in means]
            if subset in subsets and others and GLOBAL[method] in means:
                yield below(np.max(others, axis=0), means[GLOBAL[method]])

    return compare


def _lowered(before: str, after: str, methods: Collection[str], subsets: Collection[str]) -> _Compare:
    """Compare each method's mean with and without a property of the background, such as correlation."""

    def compare(cells: Cells) -> Iterator[Floats]:
        for (subset, variant, model), means in cells.of_methods():
            other = cells.means.get((subset, variant.replace(before, after), model), {})
            if subset in subsets and before in variant:
                both = [GLOBAL[name] for name in methods if GLOBAL[name] in means and GLOBAL[name] in other]
                yield from (below(other[name], means[name]) for name in both)

    return compare


def _white_lowered_by_distractors(cells: Cells) -> Iterator[Floats]:
    white = {cell: means for cell, means in cells.means.items() if cell[1].endswith("white")}
    three = [name for name in METHODS if name != "pattern_net"]
    yield from _lowered("plain", "dist", three, ("lin", "xor"))(Cells(white, cells.methods, cells.controls, {}))


_SOURCE = "Clark et al. 2025, table of the appendix"
_BOTH = ("mass_accuracy", "fni_emd")
STATEMENTS = (
    Statement(
        "Integrated Gradients is above SHAP in every cell",
        _SOURCE,
        "share of the cells; every = over 0.95",
        0.95,
        True,
        _above("integrated_gradients", "deep_shap"),
        _BOTH,
        tried=(0.8, 0.99),
    ),
    Statement(
        "PatternAttribution is above PatternNet in every cell",
        _SOURCE,
        "share of the cells; every = over 0.95",
        0.95,
        True,
        _above("pattern_attribution", "pattern_net"),
        _BOTH,
        tried=(0.8, 0.99),
    ),
    Statement(
        "On LIN and MULT Integrated Gradients is the best of the four",
        _SOURCE,
        "share of the cells of LIN and MULT in which it is first; all = over 0.95",
        0.95,
        True,
        _first("integrated_gradients", ("lin", "mult")),
        _BOTH,
        tried=(0.8, 0.99),
    ),
    Statement(
        "On XOR PatternAttribution is the best of the four",
        _SOURCE,
        "share of the cells of XOR in which it is first; all = over 0.95",
        0.95,
        True,
        _first("pattern_attribution", ("xor",)),
        ("mass_accuracy",),
        tried=(0.8, 0.99),
    ),
    Statement(
        "Correlated noise lowers the scores in nearly all cells",
        _SOURCE,
        "share of scenario, method, and with or without distractors; nearly all = over 0.8",
        0.8,
        True,
        _lowered("white", "corr", METHODS, _ALL),
        _BOTH,
        tried=(0.7, 0.9),
    ),
    Statement(
        "On LIN and XOR with white noise, distractors lower the scores of all but PatternNet",
        _SOURCE,
        "share of scenario and method; all = over 0.95",
        0.95,
        True,
        _white_lowered_by_distractors,
        _BOTH,
        tried=(0.8, 0.99),
    ),
)
CLAIMS = PaperClaims(_applies, STATEMENTS, explainers=frozenset(GLOBAL.values()))
