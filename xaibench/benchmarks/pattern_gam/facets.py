"""The subsets and variants of PatternGAM's benchmark."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets

VARIANTS = {"plain-white": "WHITE", "plain-corr": "CORR", "dist-white": "DIST WHITE", "dist-corr": "DIST CORR"}
#: Subsets are the scenarios of XAI-TRIS, whose facets have their labels; variants are the paper's backgrounds. Patterns
#: at fixed positions are where the mean mask is.
FACETS = Facets(
    subset_heading="Scenario",
    variant_heading="Background",
    variants=VARIANTS,
    answers={(subset, variant): frozenset({"prior"}) for subset in ("lin", "mult", "xor") for variant in VARIANTS},
)
