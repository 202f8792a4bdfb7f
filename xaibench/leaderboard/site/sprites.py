"""Sprites of maps: one image file per method with its maps of the same samples."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.pictures import palette
from xaibench.leaderboard.facts import SuiteFacts
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.pictures import SheetLayout, decode_sheet, read_sample_sheet
from xaibench.leaderboard.scores import read_picture
from xaibench.leaderboard.site.files import Site


@dataclass(frozen=True)
class SpriteFiles:
    """Sprites of a suite.

    Attributes:
        layout: Rows and columns of the sprites; None if the suite has no pictures.
        samples: Address of the sprite of the samples.
        maps: Method to the address of its sprite.
        rows: Method to the rows of its sprite that have maps.
    """

    layout: SheetLayout | None
    samples: str
    maps: Mapping[str, str]
    rows: Mapping[str, tuple[int, ...]]


def write_pictures(site: Site, slug: str, facts: SuiteFacts, results: Mapping[str, Path]) -> SpriteFiles:
    """Write the sprite of the samples of a suite, and one of each method's maps.

    Args:
        site: The site.
        slug: The suite's name in addresses.
        facts: Facts about the suite.
        results: Method to the folder of its result; methods whose picture is missing or damaged have no sprite.
    """
    layout = facts.layout
    try:
        sheet = None if layout is None else read_sample_sheet(facts.folder, layout)
    except ResultError:
        sheet = None
    if layout is None or sheet is None:  # the scores are shown without maps
        return SpriteFiles(None, "", {}, {})
    samples = f"data/{slug}/samples.webp"
    site.write(samples, _encode_webp(sheet))
    maps, rows = {}, {}
    for name, folder in results.items():
        try:
            levels = decode_sheet(read_picture(folder), "The picture", layout.size)
        except ResultError:
            continue
        if levels.any():
            maps[name] = f"data/{slug}/maps-{site.methods[name]}.webp"
            rows[name] = tuple(np.flatnonzero(levels.reshape(len(layout.cells), -1).any(axis=1)).tolist())
            site.write(maps[name], _encode_webp(palette()[levels]))
    return SpriteFiles(layout, samples, maps, rows)


def _encode_webp(sheet: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(sheet).save(content, "WEBP", lossless=True, quality=50, method=2)
    return content.getvalue()
