"""The regimes of the watermark sets, and their two encodings of intensity."""

from __future__ import annotations

from xaibench.benchmarks.facets import Facets
from xaibench.benchmarks.watermarks.regimes import REGIMES

#: The watermark is at the same position in every image, so that the mean mask is the answer.
FACETS = Facets(
    subset_heading="Watermark in training",
    variant_heading="Intensities",
    subsets={"confounder": "tells the class", "suppressor": "noise", "none": "never"},
    variants={"bright": "as they are", "inverted": "inverted"},
    answers={(regime, form): frozenset({"prior"}) for regime in REGIMES for form in ("bright", "inverted")},
)
