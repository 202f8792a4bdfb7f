"""Draw a picture per metric.

Every number in a picture is the return value of the library for the example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import map_pictures as of_maps
import model_pictures as of_models
from drawing import Drawing, signed
from example import Example, Metric, contrast, example, number, pixels

import xaibench as xb
from xaibench.metrics import METRICS

FOLDER = Path(__file__).parents[1] / "images" / "metrics"

#: Functions by name: a metric's ``info.picture`` "cut map: of either" is drawn by ``cut_map_of_either``.
DRAWINGS: dict[str, Callable[[Example, Metric], str]] = vars(of_maps) | vars(of_models)
#: Parameters of the metric that a picture states.
SHOWN_WITH: dict[str, dict[str, float]] = {
    "attacked pixels": {"epsilon": of_models.EPSILON},
    "erased subsets": {"fraction": of_models.SUBSET / 64},
}


def plain_picture(e: Example, metric: Metric) -> str:
    """Draw the inputs and the score of a metric whose record names no drawing."""
    info = metric.info
    drawing = Drawing(f"{info.label}: what it is given, and the score")
    if info.kind in ("model", "explainer"):
        drawing.grid(pixels(e.image), contrast, "image", f"p = {number(e.probability(e.image))}")
    if info.kind != "explainer":
        about = "outline: ground truth" if info.kind == "ground-truth" else "what it is asked about"
        drawing.grid(e.map, signed, "map", about, e.mask if info.kind == "ground-truth" else None)
    given = {
        "map": (e.map,),
        "ground-truth": (e.map, e.mask),
        "model": e.asked,
        "explainer": (xb.explainers.build("input_x_gradient"), e.model, e.image, e.target),
    }
    return drawing.result([info.label], number(metric(*given[info.kind])))


def drawn(name: str, shown: Example) -> str:
    """Return the picture of a metric as SVG."""
    metric = METRICS.resolve(name)
    draw = DRAWINGS[re.sub(r"\W+", "_", metric.info.picture)] if metric.info.picture else plain_picture
    return draw(shown, metric)


def pictures() -> dict[str, str]:
    """Return the SVG of each metric."""
    shown = example()
    return {name: drawn(name, shown) for name in METRICS}
