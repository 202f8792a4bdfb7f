"""Display of the subsets and variants of benchmarks: headings, labels, order, and whether patterns move.

They are here, not in the info records of the data sets, because a report reads a run folder without importing torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Heading of the subsets of data sets without variants.
DATASET_HEADING = "Data set"


@dataclass(frozen=True)
class Facets:
    """The subsets and variants of a benchmark.

    Attributes:
        subset_heading: Heading of the subsets in tables.
        variant_heading: Heading of the variants.
        subsets: Label of each subset by name, in display order.
        variants: Label of each variant by name, in display order.
        moving: Subsets whose pattern is at another position in each image, so that maps are not averaged.
        answers: Controls that are the answer by construction of the data, by subset and variant. They are not ranked
            there, and need not be beaten.
    """

    subset_heading: str
    variant_heading: str
    subsets: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    answers: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)


_PRIOR = frozenset({"prior"})
_FIXED = ("lin", "mult", "xor")
_PAPER = ("Scenario", "Background")

#: Subsets of the certified sets (:data:`xaibench.benchmarks.certified.functions.FUNCTIONS`).
CERTIFIED = ("additive", "and", "or", "xor", "saturation", "cancellation", "absence", "shattered")
PATTERN_GAM_VARIANTS = {
    "plain-white": "WHITE",
    "plain-corr": "CORR",
    "dist-white": "DIST WHITE",
    "dist-corr": "DIST CORR",
}

#: The facets of every benchmark that defines some. Where a pattern or watermark is at the same position in every image,
#: or a network uses the same pixels of every image, the mean mask ("prior") is the answer.
FACETS = (
    Facets("Subset", "Variant", answers={(name, "-"): _PRIOR for name in CERTIFIED}),
    # The last is the label of a cell of the suite.
    Facets(
        "Subset",
        "Variant",
        moving=frozenset({"parts/creatures-96x96", "parts/creatures-224x224", "parts/creatures-96x96, 6,000 images"}),
    ),
    Facets(
        *_PAPER,
        variants=PATTERN_GAM_VARIANTS,
        answers={(subset, variant): _PRIOR for subset in _FIXED for variant in PATTERN_GAM_VARIANTS},
    ),
    Facets(
        "Watermark in training",
        "Intensities",
        subsets={"confounder": "tells the class", "suppressor": "noise", "none": "never"},
        variants={"bright": "as they are", "inverted": "inverted"},
        answers={
            (regime, form): _PRIOR for regime in ("confounder", "suppressor", "none") for form in ("bright", "inverted")
        },
    ),
    Facets(
        *_PAPER,
        variants={
            "corr-sphering": "CORR, sphering",
            "corr-cholesky": "CORR, Cholesky",
            "corr-symmetric": "CORR, symmetric",
            "corr-signal_preserving": "CORR, signal preserving",
            "corr-partial_regression": "CORR, partial regression",
        },
    ),
    # XAI-TRIS. On uncorrelated noise, a moving pattern is where the image is bright.
    Facets(
        *_PAPER,
        subsets={"lin": "LIN", "mult": "MULT", "rigid": "RIGID", "xor": "XOR"},
        variants={"white": "WHITE", "corr": "CORR", "imagenet": "IMAGENET"},
        moving=frozenset({"rigid"}),
        answers={
            **{(scenario, background): _PRIOR for scenario in _FIXED for background in ("white", "corr", "imagenet")},
            ("rigid", "white"): frozenset({"input", "laplace"}),
        },
    ),
)


def facet_label(name: str) -> str:
    """Return the label of a subset or variant; the name itself if no benchmark defines one.

    Example:
        >>> facet_label("lin"), facet_label("oxford-pet")
        ('LIN', 'oxford-pet')
    """
    labels = (labels[name] for each in FACETS for labels in (each.subsets, each.variants) if name in labels)
    return next(labels, name)


def subset_order() -> tuple[str, ...]:
    """Return the names of all known subsets in display order."""
    return tuple(dict.fromkeys(name for each in FACETS for name in each.subsets))


def variant_order() -> tuple[str, ...]:
    """Return the names of all known variants in display order."""
    return tuple(dict.fromkeys(name for each in FACETS for name in each.variants))


def is_moving(subset: str) -> bool:
    """Return whether the pattern of a subset is at another position in each image."""
    return any(subset in each.moving for each in FACETS)


def answering_controls(subset: str, variant: str) -> frozenset[str]:
    """Return the controls that are the answer by construction of the data.

    Example:
        >>> sorted(answering_controls("rigid", "white")), sorted(answering_controls("rigid", "corr"))
        (['input', 'laplace'], [])
    """
    return frozenset().union(*(each.answers.get((subset, variant), ()) for each in FACETS))


def facet_headings(subsets: Iterable[str]) -> tuple[str, str]:
    """Return the headings of subsets and variants in tables, as the benchmark with some of these subsets defines them.

    Example:
        >>> facet_headings(["lin", "xor"])
        ('Scenario', 'Background')
    """
    shown = set(subsets)
    facets = next((each for each in FACETS if shown & set(each.subsets)), FACETS[0])
    return facets.subset_heading, facets.variant_heading
