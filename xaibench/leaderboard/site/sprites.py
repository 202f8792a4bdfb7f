"""Sprites of maps: one image file per method with its maps of the same samples."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.leaderboard.site.files import Site
from xaibench.report.figures.samples import palette
from xaibench.report.page.sample_browser import levels
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.tables import RunFolderError

#: Largest number of samples per cell.
MAX_SAMPLES = 4
#: Largest side of a tile in pixels; larger maps are scaled down.
MAX_SIDE = 64
RGBImage: TypeAlias = NDArray[np.uint8]
#: Subset, variant and model.
CellKey: TypeAlias = tuple[str, str, str]
#: Data set seed, training seed, and index in the test split.
SampleKey: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class ShownSamples:
    """Samples of a suite that the site shows.

    Attributes:
        samples: Cell (a row of the sprite) to its samples (columns).
        tiles: Image and ground-truth mask of each sample, ``[H, W, 3]``.
        side: Side of a tile in pixels.
    """

    samples: Mapping[CellKey, tuple[SampleKey, ...]]
    tiles: Mapping[tuple[CellKey, SampleKey], tuple[RGBImage, RGBImage]]
    side: int

    @property
    def columns(self) -> int:
        """Return the number of tiles per row of a method's sprite."""
        return max((len(those) for those in self.samples.values()), default=0)


@dataclass(frozen=True)
class SpriteFiles:
    """Sprites of a suite.

    Attributes:
        shown: The shown samples; None if no result has any.
        samples: Address of the sprite of the samples.
        maps: Method to the address of its sprite.
        rows: Method to the rows of its sprite that have maps.
    """

    shown: ShownSamples | None
    samples: str
    maps: Mapping[str, str]
    rows: Mapping[str, tuple[int, ...]]


def write_pictures(site: Site, slug: str, results: Mapping[str, Path], order: Sequence[CellKey]) -> SpriteFiles:
    """Write the sprite of the samples of a suite, and one of each method's maps.

    Args:
        site: The site.
        slug: The suite's name in addresses.
        results: Method to the folder of its result; methods whose samples cannot be read have no sprite.
        order: Order of the cells.
    """
    shown = select_samples((_read_samples_or_none(folder) for folder in results.values()), order)
    if shown is None:
        return SpriteFiles(None, "", {}, {})
    samples = f"data/{slug}/samples.webp"
    site.write(samples, sample_sprite(shown))
    maps, rows = {}, {}
    for name, folder in results.items():
        picture, has = map_sprite(shown, _read_samples_or_none(folder))
        if has:
            maps[name], rows[name] = f"data/{slug}/maps-{site.methods[name]}.webp", has
            site.write(maps[name], picture)
    return SpriteFiles(shown, samples, maps, rows)


def _read_samples_or_none(folder: Path) -> list[SampleCell]:
    try:
        return read_samples(folder)
    except RunFolderError:
        return []  # the scores are shown without maps


def select_samples(results: Iterable[Iterable[SampleCell]], order: Sequence[CellKey]) -> ShownSamples | None:
    """Select, per cell, the samples for which most methods have a map; ties go to the first in the test split.

    Every run stores the first samples of a cell, and samples on which its own methods fail, which other runs may not
    have. Samples that fewer than half of the methods have are not shown.

    Args:
        results: The cells of each result.
        order: Order of the cells.

    Returns:
        The samples; None if there are none.
    """
    counts: dict[CellKey, Counter[SampleKey]] = {}
    methods = Counter[CellKey]()
    tiles: dict[tuple[CellKey, SampleKey], tuple[RGBImage, RGBImage]] = {}
    for cells in results:
        for cell in (one for one in cells if one.maps.shape[1]):
            counts.setdefault(cell.cell, Counter()).update(_sample_keys(cell))
            methods[cell.cell] += 1
            for number, name in enumerate(_sample_keys(cell)):
                if (cell.cell, name) not in tiles:
                    truth = np.repeat(255 * cell.masks[number][..., None], 3, axis=2)
                    tiles[cell.cell, name] = cell.images[number], truth
    places = sorted(counts, key=lambda place: order.index(place) if place in order else len(order))
    samples = {place: _select_common(counts[place], methods[place]) for place in places if counts[place]}
    tiles = {key: tiles[key] for key in ((place, name) for place, names in samples.items() for name in names)}
    side = min(max((max(image.shape[:2]) for image, _ in tiles.values()), default=1), MAX_SIDE)
    return ShownSamples(samples, tiles, side) if samples else None


def _select_common(counts: Counter[SampleKey], methods: int) -> tuple[SampleKey, ...]:
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    common = [name for name in ranked[:MAX_SAMPLES] if 2 * counts[name] >= methods]
    return tuple(sorted(common or ranked[:1]))


def sample_sprite(shown: ShownSamples) -> bytes:
    """Return the samples as WebP: per row the images, then the ground-truth masks."""
    sheet = _new_sheet(shown, 2 * shown.columns)
    for row, (place, names) in enumerate(shown.samples.items()):
        for column, name in enumerate(names):
            image, truth = shown.tiles[place, name]
            _paste_tile(shown, sheet, row, column, image)
            _paste_tile(shown, sheet, row, shown.columns + column, truth)
    return _encode_webp(sheet)


def map_sprite(shown: ShownSamples, cells: Iterable[SampleCell]) -> tuple[bytes, tuple[int, ...]]:
    """Return a method's maps as WebP, and the rows that have any.

    Args:
        shown: The shown samples.
        cells: The cells of the method's result.
    """
    some = {cell.cell: cell for cell in cells if cell.maps.shape[1]}
    sheet, found = _new_sheet(shown, shown.columns), set[int]()
    for row, (place, names) in enumerate(shown.samples.items()):
        where = {name: number for number, name in enumerate(_sample_keys(some[place]))} if place in some else {}
        for column, name in enumerate(names):
            if name in where:
                _paste_tile(shown, sheet, row, column, palette()[levels(some[place].maps[where[name], 0])])
                found.add(row)
    return _encode_webp(sheet), tuple(sorted(found))


def _sample_keys(cell: SampleCell) -> tuple[SampleKey, ...]:
    return tuple((cell.data_seed, cell.seed, sample) for sample in cell.samples)


def _new_sheet(shown: ShownSamples, columns: int) -> RGBImage:
    return np.full((len(shown.samples) * shown.side, max(columns, 1) * shown.side, 3), 128, dtype=np.uint8)


def _paste_tile(shown: ShownSamples, sheet: RGBImage, row: int, column: int, tile: RGBImage) -> None:
    side = shown.side
    if tile.shape[:2] != (side, side):
        large = max(tile.shape[:2]) > side
        tile = np.asarray(Image.fromarray(tile).resize((side, side), Image.Resampling.BOX if large else 0))
    sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = tile


def _encode_webp(sheet: RGBImage) -> bytes:
    content = io.BytesIO()
    Image.fromarray(sheet).save(content, "WEBP", lossless=True, quality=50, method=2)
    return content.getvalue()
