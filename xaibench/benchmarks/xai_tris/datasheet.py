"""Texts about the XAI-TRIS data sets for their datasheets."""

from __future__ import annotations

from xaibench.benchmarks.xai_tris.shapes import SHAPE_NAMES
from xaibench.component.info import DatasetInfo

_SCENARIOS = {
    "lin": "Each image shows one {shape}, {first} or {second}, added to the background, each at a fixed position. The "
    "class is which of the two it is; a linear classifier can distinguish them.",
    "mult": "Each image shows one {shape}, {first} or {second}, each at a fixed position, which multiplies the "
    "background. The class is which of the two it is; a linear classifier cannot distinguish them.",
    "rigid": "Each image shows one {shape}, {first} or {second}, added to the background, rotated by multiples of 90° "
    "and shifted at random. The class is which of the two it is.",
    "xor": "Each image shows both {shape}s, {first} and {second}, each at a fixed position, each added to the "
    "background or subtracted from it. The class is whether their signs agree.",
}
_SHAPES = {2: "tetromino", 3: "tetracube"}
_BACKGROUNDS = {
    "white": "Its background is white noise: every pixel is drawn from a standard normal distribution.",
    "corr": "Its background is white noise smoothed by a Gaussian, so that pixels outside the shape are "
    "informative about the noise inside it (suppressor variables) but not about the class.",
    "imagenet": "Its backgrounds are photographs from a folder chosen by the publisher of this data set.",
}
_MIXTURES = {
    "mult": "`x = (1 − alpha·a)·η` for a pattern a and a background η",
    "": "`x = alpha·A/‖A‖ + (1 − alpha)·E/‖E‖` for all patterns A and all backgrounds E, with Frobenius norms over the "
    "whole set",
}


def describe_images(info: DatasetInfo) -> str:
    """Return what an image shows, and which background it has."""
    axes = len(info.image_shape) - 1
    first, second = SHAPE_NAMES[axes]
    scenario = _SCENARIOS[info.subset].format(shape=_SHAPES[axes], first=first, second=second)
    return f"{scenario} {_BACKGROUNDS[info.variant]}"


def describe_mixture(info: DatasetInfo) -> str:
    """Return the formula by which pattern and background are combined, and how the images are scaled."""
    formula = _MIXTURES.get(info.subset, _MIXTURES[""])
    return f"{formula}; then the whole data set is divided by its largest absolute value."


def describe_dependence(info: DatasetInfo) -> str:
    """Return what the samples of a data set share."""
    return "The samples of a data set share its norms and its largest value, and are otherwise independent."


def describe_masks(info: DatasetInfo) -> str:
    """Return which pixels a mask covers."""
    if info.subset == "rigid":
        return "It is the support of the image's own shape."
    return "It covers the positions of both shapes in every image, because the absence of one is informative as well."
