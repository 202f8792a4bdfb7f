"""Pixels as pieces of a page that needs nothing from outside."""

from __future__ import annotations

import base64
import io
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats: TypeAlias = NDArray[np.floating[Any]]
Levels: TypeAlias = NDArray[np.uint8]

#: Longest side of a map on the page in pixels; larger ones are reduced (the files beside the page are not).
TILE = 32


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """A picture as a ``data:`` address, of the kind (``"png"``, ``"webp"``, ``"jpeg"``) and options of Pillow."""
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def tile_uri(colours: Levels) -> str:
    """``[H, W, 3]`` as a ``data:`` address: PNG, exact, up to 16 pixels a side; WebP, a third of it, above."""
    if max(colours.shape[:2]) <= 16:
        return data_uri(Image.fromarray(colours), "png", optimize=True)
    return data_uri(Image.fromarray(colours), "webp", quality=75)


def shrink(array: Floats, side: int = TILE) -> Floats:
    """``[H, W]`` reduced by whole-number block means until no side is above ``side``; edges are padded.

    Example:
        >>> shrink(np.arange(16.0).reshape(4, 4), side=2)
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    factor = -(-max(array.shape) // side)
    if factor == 1:
        return array
    array = np.pad(array, [(0, -length % factor) for length in array.shape], mode="edge")
    height, width = (length // factor for length in array.shape)
    blocks = array.reshape(height, factor, width, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))
