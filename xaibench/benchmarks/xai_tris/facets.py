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
    # Patterns at fixed positions are where the mean mask is. On uncorrelated noise, a moving pattern is where the image
    # is bright.
    answers={
        **{
            (scenario, background): frozenset({"prior"})
            for scenario in ("lin", "mult", "xor")
            for background in ("white", "corr", "imagenet")
        },
        ("rigid", "white"): frozenset({"input", "laplace"}),
    },
)
