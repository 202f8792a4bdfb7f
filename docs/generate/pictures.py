"""Draw a picture per metric.

Every number in a picture is the return value of the library for the example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import map_pictures as of_maps
import model_pictures as of_models
from drawing import Drawing, signed
from example import Example, Metric, contrast, example, number, pixels

import xaibench as xb
from xaibench.metrics import METRICS

FOLDER = Path(__file__).parents[1] / "images" / "metrics"

#: What draws each kind of picture (a metric's ``info.picture``).
DRAWINGS: dict[str, Callable[[Example, Metric], str]] = {
    "cheapest plan": of_maps.cheapest_plan,
    "cheapest plan, turned": of_maps.cheapest_plan_turned,
    "cheapest plan of the mass outside": of_maps.cheapest_plan_outside,
    "top pixels": of_maps.top_pixels,
    "mass inside": of_maps.mass_inside,
    "cut map: of either": of_maps.cut_map(
        "green", "any color", lambda both, chosen, truth: (both, chosen + truth - both)
    ),
    "cut map: of the marked": of_maps.cut_map("green", "(green + orange)", lambda both, chosen, truth: (both, chosen)),
    "cut map: of the truth": of_maps.cut_map("green", "(green + gray)", lambda both, chosen, truth: (both, truth)),
    "cut map: of both sizes": of_maps.cut_map(
        "2 · green", "(map + ground truth)", lambda both, chosen, truth: (2 * both, chosen + truth)
    ),
    "largest pixel": of_maps.largest_pixel,
    "every threshold: outside and inside": of_maps.outside_and_inside,
    "every threshold: precision": of_maps.precision_at_recalls,
    "score, chance and best": of_maps.against_chance,
    "sorted mass": of_maps.sorted_mass,
    "mass of each pixel": of_maps.mass_of_each_pixel,
    "pixels taken away": functools.partial(of_models.pixels_changed, reveal=False),
    "pixels put in": functools.partial(of_models.pixels_changed, reveal=True),
    "dimmed image: drop": of_models.dimmed_drop,
    "dimmed image: rise": of_models.dimmed_rise,
    "without the top": functools.partial(of_models.top_alone_or_gone, reveal=False),
    "only the top": functools.partial(of_models.top_alone_or_gone, reveal=True),
    "attacked pixels": of_models.attacked_pixels,
    "erased squares": of_models.erased_squares,
    "erased subsets": of_models.erased_subsets,
    "imputed pixels": of_models.imputed_pixels,
    "maps without pixels": of_models.maps_without_pixels,
    "maps under noise": of_models.maps_under_noise,
    "maps of forgetting layers": of_models.maps_of_forgetting_layers,
}

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
    drawing.result([info.label], number(metric(*given[info.kind])))
    return drawing.svg()


def drawn(name: str, shown: Example) -> str:
    """Return the picture of a metric as SVG."""
    metric = METRICS.resolve(name)
    return (DRAWINGS[metric.info.picture] if metric.info.picture else plain_picture)(shown, metric)


def pictures() -> dict[str, str]:
    """Return the SVG of each metric."""
    shown = example()
    return {name: drawn(name, shown) for name in METRICS}
