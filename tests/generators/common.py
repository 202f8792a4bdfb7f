"""Tiny annotated sets in their official layouts, whose right answers are known. One module a set, each with

``write(root) -> list[Expected]``: writes the set below ``root`` as its download would lie there, and returns the
samples that it holds with the set's default parameters.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass(frozen=True, eq=False)
class Expected:
    """One sample: what ``meta["id"]``, the class and the mask (at full size; None = empty) must be."""

    id: str
    label: str
    mask: np.ndarray | None


def photograph(rng, height, width):
    """``[h, w, 3]`` uint8: smooth, so that JPEG keeps it, and never twice the same."""
    coarse = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def rectangle(rng, height, width):
    """``[h, w]`` bool: a rectangle of at least a fifth of each side, never the whole image."""
    mask = np.zeros((height, width), dtype=bool)
    top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
    mask[top : top + rng.integers(height // 5, height // 2), left : left + rng.integers(width // 5, width // 2)] = True
    return mask


def by_id(source):
    """The number of each sample of an open data set, by its name."""
    return {source.meta(number)["id"]: number for number in range(len(source))}
