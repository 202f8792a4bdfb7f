"""The subsets and variants of XAI-TRIS."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets

#: Subsets are the scenarios and variants the backgrounds, with the papers' names.
FACETS = Facets(
    subset_heading="Scenario",
    variant_heading="Background",
    subsets={"lin": "LIN", "mult": "MULT", "rigid": "RIGID", "xor": "XOR"},
    variants={"white": "WHITE", "corr": "CORR", "imagenet": "IMAGENET"},
    moving=frozenset({"rigid"}),
)
