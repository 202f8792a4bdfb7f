"""The variants of whitened XAI-TRIS; its subsets are the scenarios."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets

FACETS = Facets(
    subset_heading="Scenario",
    variant_heading="Background",
    variants={
        "corr-sphering": "CORR, sphering",
        "corr-cholesky": "CORR, Cholesky",
        "corr-symmetric": "CORR, symmetric",
        "corr-signal_preserving": "CORR, signal preserving",
        "corr-partial_regression": "CORR, partial regression",
    },
)
