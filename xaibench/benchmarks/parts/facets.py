"""The data sets of creatures, whose parts are at another position in each image."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets

#: The last is the label of a cell of the suite.
_MOVING = ("parts/creatures-96x96", "parts/creatures-224x224", "parts/creatures-96x96, 6,000 images")

FACETS = Facets("Subset", "Variant", moving=frozenset(_MOVING))
