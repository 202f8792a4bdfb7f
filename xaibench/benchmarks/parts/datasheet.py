"""Texts about the data sets of creatures for their datasheets."""

from __future__ import annotations

from xaibench.benchmarks.parts.creatures import DECIDING, PART_NAMES
from xaibench.component.info import DatasetInfo

_DECIDING = ", ".join(PART_NAMES[number - 1] for number in DECIDING)
_OTHERS = ", ".join(name for number, name in enumerate(PART_NAMES, start=1) if number not in DECIDING)


def describe_images(info: DatasetInfo) -> str:
    """Return what an image shows."""
    return (
        f"Each image shows a creature of {len(PART_NAMES)} parts in front of a background with clutter. The class is "
        f"decided by the variants of {len(DECIDING)} parts ({_DECIDING}); the others ({_OTHERS}), pose, background "
        "and clutter carry no information. In every second training and validation image, a part drawn at random is "
        "missing."
    )


def describe_mixture(info: DatasetInfo) -> str:
    """Return how the images are made and scaled."""
    return "Scenes are painted in whole gray levels, without blending; then gray levels are divided by 255."


def describe_dependence(info: DatasetInfo) -> str:
    """Return what the samples of a data set share."""
    return "The samples are independent."


def describe_masks(info: DatasetInfo) -> str:
    """Return which pixels a mask covers."""
    return "It covers the visible pixels of the parts that decide the class."
