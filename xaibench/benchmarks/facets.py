"""Display of the subsets and variants of benchmarks: headings, labels, order, and whether patterns move.

A benchmark with variants defines its :class:`Facets` in ``facets.py`` of its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xaibench.benchmarks.folders import benchmark_modules

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


def all_facets() -> tuple[Facets, ...]:
    """Return the facets of every benchmark that defines some, in the order of the benchmarks' names."""
    return tuple(module.FACETS for module in benchmark_modules("facets"))


def facet_label(name: str) -> str:
    """Return the label of a subset or variant; the name itself if no benchmark defines one.

    Example:
        >>> facet_label("lin"), facet_label("oxford-pet")
        ('LIN', 'oxford-pet')
    """
    found = (labels[name] for each in all_facets() for labels in (each.subsets, each.variants) if name in labels)
    return next(found, name)


def subset_order() -> tuple[str, ...]:
    """Return the names of all known subsets in display order."""
    return tuple(dict.fromkeys(name for each in all_facets() for name in each.subsets))


def variant_order() -> tuple[str, ...]:
    """Return the names of all known variants in display order."""
    return tuple(dict.fromkeys(name for each in all_facets() for name in each.variants))


def is_moving(subset: str) -> bool:
    """Return whether the pattern of a subset is at another position in each image."""
    return any(subset in each.moving for each in all_facets())


def answering_controls(subset: str, variant: str) -> frozenset[str]:
    """Return the controls that are the answer by construction of the data.

    Example:
        >>> sorted(answering_controls("rigid", "white")), sorted(answering_controls("rigid", "corr"))
        (['input', 'laplace'], [])
    """
    return frozenset().union(*(each.answers.get((subset, variant), ()) for each in all_facets()))


def facet_headings(subsets: Iterable[str]) -> tuple[str, str]:
    """Return the headings of subsets and variants in tables, as the benchmark with some of these subsets defines them.

    Example:
        >>> facet_headings(["lin", "xor"])
        ('Scenario', 'Background')
    """
    shown = set(subsets)
    found = (each for each in all_facets() if shown & set(each.subsets))
    facets = next(found, Facets("Subset", "Variant"))
    return facets.subset_heading, facets.variant_heading
