"""Statements of papers about a benchmark, as data.

A benchmark with a paper lists the paper's statements in ``claims.toml`` of its folder. Each names a check of
:mod:`xaibench.scores.claims`, which computes a number and its interval from the scores of a run.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from xaibench.benchmarks import benchmark_files

#: Subset, variant and model.
Cell: TypeAlias = tuple[str, str, str]
#: Values of ``"subset"``, ``"variant"`` and ``"model"``: one or several; all of an axis that is not named.
Selection: TypeAlias = Mapping[str, str | Sequence[str]]
_AXES = ("subset", "variant", "model")


def is_selected(cell: Cell, selections: Selection | Sequence[Selection]) -> bool:
    """Return whether a cell is in one of the selections.

    Example:
        >>> is_selected(("lin", "white", "mlp"), {"subset": ["lin", "xor"], "variant": "white"})
        True
    """
    every = [selections] if isinstance(selections, Mapping) else selections
    names = dict(zip(_AXES, cell, strict=True))
    chosen = [{axis: [one[axis]] if isinstance(one[axis], str) else one[axis] for axis in one} for one in every]
    return any(all(names[axis] in one[axis] for axis in one) for one in chosen)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A paper's statement, and how it is checked.

    Attributes:
        statement: The statement.
        paper: Authors and year of the paper.
        source: Section or figure of the paper.
        quantity: Definition of the number.
        bound: Bound beyond which the statement holds.
        above: Whether the statement holds above the bound, or below it.
        check: Name of the check in :mod:`xaibench.scores.claims`.
        options: Keyword arguments of the check.
        metrics: Metrics that the statement is about; empty = all.
        datasets: Ending of the names of the data sets that the statement is about, such as ``"-64x64"``; empty = all.
        where: Cells that the statement is about.
        noted: Whether cells with a note (:attr:`PaperClaims.noted`) support it as well; its verdict has the note.
        least: Smallest number of comparisons for a verdict, such as 2 for a statement about most data sets.
        tried: If the bound is ours, since the paper gives only words: a lower and an upper bound, at which the verdict
            is given as well. Empty if the bound follows from the words, such as a majority or a sign.
    """

    statement: str = ""
    paper: str = ""
    source: str = ""
    quantity: str = ""
    bound: float = 0.0
    above: bool = True
    check: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    datasets: str = ""
    where: Selection | Sequence[Selection] = field(default_factory=dict)
    noted: bool = False
    least: int = 1
    tried: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PaperClaims:
    """The statements of a benchmark's paper.

    Attributes:
        applies: The cells that the statements are about.
        statements: Statements about the mean scores of one run.
        correlations: Statements about the correlation of two metrics over the samples of a cell.
        pairs: Statements about samples that come in two forms, such as with and without a watermark.
        accuracies: Statements about test accuracies over signal-to-noise ratios.
        forms: Endings of the names of the two forms of a sample, in the order of the scores of ``pairs``.
        explainers: The paper's methods and controls. Others of a run are left out, as no statement is about them. Empty
            = all.
        least_accuracy: Mean test accuracy in percent that the paper asks for; cells below support no statement.
        noted: Cells that support no statement if their data set has a note, for this reason, unless the statement is
            marked as ``noted``.
    """

    applies: Selection
    statements: tuple[Statement, ...] = ()
    correlations: tuple[Statement, ...] = ()
    pairs: tuple[Statement, ...] = ()
    accuracies: tuple[Statement, ...] = ()
    forms: tuple[str, str] = ("", "")
    explainers: frozenset[str] = frozenset()
    least_accuracy: float = 0.0
    noted: tuple[Selection, str] = ({"subset": ()}, "")

    def is_about(self, explainer: str) -> bool:
        """Return whether the statements are about an explainer."""
        return not self.explainers or explainer in self.explainers

    def leave_out(self, cell: Cell, accuracy: float, note: str) -> str:
        """Return why a cell supports no statement, or an empty string.

        Args:
            cell: The cell.
            accuracy: Mean test accuracy of its networks in percent; NaN if unknown.
            note: Note of its data set.
        """
        if accuracy < self.least_accuracy:
            return f"its networks reach less than the {self.least_accuracy:g} % test accuracy that the paper asks for"
        return self.noted[1] if note and is_selected(cell, self.noted[0]) else ""


@functools.cache
def all_claims() -> Mapping[str, PaperClaims]:
    """Return the claims by the benchmark's folder, for every benchmark that has some.

    Example:
        >>> list(all_claims())
        ['pattern_gam', 'saliency_bench', 'watermarks', 'xai_tris']
    """
    return {file.parent.name: read_claims(file.read_text(encoding="utf-8")) for file in benchmark_files("claims.toml")}


def read_claims(text: str) -> PaperClaims:
    """Read the claims of a benchmark from TOML.

    The keys are the attributes of :class:`PaperClaims`, and ``paper``, that of each statement. Each statement has
    attributes of :class:`Statement`, ``above`` or ``below`` for the bound, and the options of its check.
    """
    table = tomllib.loads(text)
    paper = table.pop("paper")
    kinds = {
        kind: tuple(_read_statement(paper, **each) for each in table.pop(kind, ()))
        for kind in ("statements", "correlations", "pairs", "accuracies")
    }
    return PaperClaims(**table | kinds | {"explainers": frozenset(table.get("explainers", ()))})


def _read_statement(paper: str, **entry: Any) -> Statement:
    names = [name for name in Statement.__dataclass_fields__ if name in entry and name not in ("above", "bound")]
    known = {name: entry.pop(name) for name in names}
    above = "above" in entry
    bound = entry.pop("above" if above else "below")
    known |= {name: tuple(known.get(name, ())) for name in ("metrics", "tried")}
    return Statement(**known, paper=paper, bound=bound, above=above, options=entry)
