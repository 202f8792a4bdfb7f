"""The subsets of the certified sets, which have no variants."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets

#: Names of the certified sets (:data:`xaibench.benchmarks.certified.functions.FUNCTIONS`).
SUBSETS = ("additive", "and", "or", "xor", "saturation", "cancellation", "absence", "shattered")

#: A network uses the same pixels of every image, so that the mean mask is the answer.
FACETS = Facets("Subset", "Variant", answers={(name, "-"): frozenset({"prior"}) for name in SUBSETS})
