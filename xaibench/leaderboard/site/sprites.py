"""Maps of the same samples by every method: one picture a method, so that a page asks for one file and not for many."""

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

#: Samples of a cell that are shown.
MAX_SAMPLES = 4
#: Longest side in pixels of a map on the site; larger ones are made smaller.
MAX_SIDE = 64
RGBImage: TypeAlias = NDArray[np.uint8]
#: Subset, variant and model.
CellKey: TypeAlias = tuple[str, str, str]
#: Seed of the data, seed of the training, number in the test split.
SampleKey: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class ShownSamples:
    """Which samples of a suite the site shows.

    Attributes:
        samples: ``{cell: its samples}``: each row of a picture, what each column is of.
        tiles: Of each of them the image and the ground truth, ``[H, W, 3]``.
        side: Of a tile, in pixels.
    """

    samples: Mapping[CellKey, tuple[SampleKey, ...]]
    tiles: Mapping[tuple[CellKey, SampleKey], tuple[RGBImage, RGBImage]]
    side: int

    @property
    def columns(self) -> int:
        """Tiles in a row of a method's picture."""
        return max((len(those) for those in self.samples.values()), default=0)


@dataclass(frozen=True)
class SpriteFiles:
    """The pictures of a suite on the site.

    Attributes:
        shown: What they show; None where no result has any.
        samples: The address of the picture of the samples.
        maps: Method to the address of the picture of its maps.
        rows: Method to the rows of its picture that have any.
    """

    shown: ShownSamples | None
    samples: str
    maps: Mapping[str, str]
    rows: Mapping[str, tuple[int, ...]]


def write_pictures(site: Site, slug: str, results: Mapping[str, Path], order: Sequence[CellKey]) -> SpriteFiles:
    """Write the pictures of a suite: of the samples, and of each method's maps of them.

    Args:
        site: The site.
        slug: The suite's part of an address.
        results: Method to the folder of its result; one whose samples cannot be read goes without.
        order: Of the cells.
    """
    shown = select_samples((_samples(folder) for folder in results.values()), order)
    if shown is None:
        return SpriteFiles(None, "", {}, {})
    samples = f"data/{slug}/samples.webp"
    site.write(samples, sample_sprite(shown))
    maps, rows = {}, {}
    for name, folder in results.items():
        picture, has = map_sprite(shown, _samples(folder))
        if has:
            maps[name], rows[name] = f"data/{slug}/maps-{site.methods[name]}.webp", has
            site.write(maps[name], picture)
    return SpriteFiles(shown, samples, maps, rows)


def _samples(folder: Path) -> list[SampleCell]:
    try:
        return read_samples(folder)
    except RunFolderError:
        return []  # the scores stand without their pictures


def select_samples(results: Iterable[Iterable[SampleCell]], order: Sequence[CellKey]) -> ShownSamples | None:
    """Of each cell the samples that most methods have a map of, the first of the test split where as many have.

    Every run keeps some of the first samples of a cell, and beside them those on which its own methods fail, which
    other runs need not have. What fewer than half of the methods have is not shown.

    Args:
        results: The cells of each result.
        order: Of the cells.

    Returns:
        Them; None where there are none.
    """
    counts: dict[CellKey, Counter[SampleKey]] = {}
    methods = Counter[CellKey]()
    tiles: dict[tuple[CellKey, SampleKey], tuple[RGBImage, RGBImage]] = {}
    for cells in results:
        for cell in (one for one in cells if one.maps.shape[1]):
            counts.setdefault(cell.cell, Counter()).update(_names(cell))
            methods[cell.cell] += 1
            for number, name in enumerate(_names(cell)):
                if (cell.cell, name) not in tiles:
                    truth = np.repeat(255 * cell.masks[number][..., None], 3, axis=2)
                    tiles[cell.cell, name] = cell.images[number], truth
    places = sorted(counts, key=lambda place: order.index(place) if place in order else len(order))
    samples = {place: _most_common(counts[place], methods[place]) for place in places if counts[place]}
    tiles = {key: tiles[key] for key in ((place, name) for place, names in samples.items() for name in names)}
    side = min(max((max(image.shape[:2]) for image, _ in tiles.values()), default=1), MAX_SIDE)
    return ShownSamples(samples, tiles, side) if samples else None


def _most_common(counts: Counter[SampleKey], methods: int) -> tuple[SampleKey, ...]:
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    common = [name for name in ranked[:MAX_SAMPLES] if 2 * counts[name] >= methods]
    return tuple(sorted(common or ranked[:1]))


def sample_sprite(shown: ShownSamples) -> bytes:
    """The samples themselves as WebP: in each row the images, then the ground truths."""
    sheet = _sheet(shown, 2 * shown.columns)
    for row, (place, names) in enumerate(shown.samples.items()):
        for column, name in enumerate(names):
            image, truth = shown.tiles[place, name]
            _put(shown, sheet, row, column, image)
            _put(shown, sheet, row, shown.columns + column, truth)
    return _webp(sheet)


def map_sprite(shown: ShownSamples, cells: Iterable[SampleCell]) -> tuple[bytes, tuple[int, ...]]:
    """A method's maps of them as WebP, and the rows that have any.

    Args:
        shown: Which.
        cells: Of the method's result.
    """
    some = {cell.cell: cell for cell in cells if cell.maps.shape[1]}
    sheet, found = _sheet(shown, shown.columns), set[int]()
    for row, (place, names) in enumerate(shown.samples.items()):
        where = {name: number for number, name in enumerate(_names(some[place]))} if place in some else {}
        for column, name in enumerate(names):
            if name in where:
                _put(shown, sheet, row, column, palette()[levels(some[place].maps[where[name], 0])])
                found.add(row)
    return _webp(sheet), tuple(sorted(found))


def _names(cell: SampleCell) -> tuple[SampleKey, ...]:
    return tuple((cell.data_seed, cell.seed, sample) for sample in cell.samples)


def _sheet(shown: ShownSamples, columns: int) -> RGBImage:
    return np.full((len(shown.samples) * shown.side, max(columns, 1) * shown.side, 3), 128, dtype=np.uint8)


def _put(shown: ShownSamples, sheet: RGBImage, row: int, column: int, tile: RGBImage) -> None:
    side = shown.side
    if tile.shape[:2] != (side, side):
        large = max(tile.shape[:2]) > side
        tile = np.asarray(Image.fromarray(tile).resize((side, side), Image.Resampling.BOX if large else 0))
    sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = tile


def _webp(sheet: RGBImage) -> bytes:
    content = io.BytesIO()
    Image.fromarray(sheet).save(content, "WEBP", lossless=True, quality=50, method=2)
    return content.getvalue()
