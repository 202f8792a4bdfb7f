"""Maps of the same samples by every method: one picture a method, so that a page asks for one file and not for many."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.report.draw.sample_figures import palette
from xaibench.report.page.sample_browser import levels
from xaibench.runfolder.sample_file import SampleCell

#: Samples of a cell that are shown.
SHOWN = 4
#: Longest side in pixels of a map on the site; larger ones are made smaller.
SIDE = 64
Colours = NDArray[np.uint8]


@dataclass(frozen=True)
class Shown:
    """Which samples of a suite the site shows.

    Attributes:
        cells: Scenario, background and model of each row of a picture.
        names: ``{cell: numbers of its samples}``, what each column of a row is of.
        labels: ``{cell: what its samples are}``.
        side: Of a tile, in pixels.
    """

    cells: tuple[tuple[str, str, str], ...]
    names: Mapping[tuple[str, str, str], tuple[tuple[int, int, int], ...]]
    labels: Mapping[tuple[str, str, str], tuple[str, ...]]
    side: int

    @property
    def columns(self) -> int:
        """Tiles in a row of a method's picture."""
        return max((len(numbers) for numbers in self.names.values()), default=0)


def shown_samples(cells: Iterable[SampleCell]) -> Shown:
    """The first samples of each cell.

    Args:
        cells: Of one result; the others are looked up in it.
    """
    some = {cell.cell: cell for cell in cells if len(cell.samples)}
    names = {place: _names(cell)[:SHOWN] for place, cell in some.items()}
    labels = {place: cell.labels[:SHOWN] for place, cell in some.items()}
    side = min(max((max(cell.images.shape[1:3]) for cell in some.values()), default=1), SIDE)
    return Shown(tuple(some), names, labels, side)


def _names(cell: SampleCell) -> tuple[tuple[int, int, int], ...]:
    return tuple((cell.data_seed, cell.seed, sample) for sample in cell.samples)


def sample_sprite(shown: Shown, cells: Iterable[SampleCell]) -> bytes:
    """The samples themselves as WebP: in each row the images, then the ground truths.

    Args:
        shown: Which.
        cells: Of the result that they were taken from.
    """
    some = {cell.cell: cell for cell in cells}
    sheet = _sheet(shown, 2 * shown.columns)
    for row, place in enumerate(shown.cells):
        for column in range(len(shown.names[place])):
            _put(shown, sheet, row, column, some[place].images[column])
            truth = np.repeat(255 * some[place].masks[column][..., None], 3, axis=2)
            _put(shown, sheet, row, shown.columns + column, truth)
    return _webp(sheet)


def map_sprite(shown: Shown, cells: Iterable[SampleCell]) -> bytes | None:
    """A method's maps of them as WebP; None where it has none of any.

    Args:
        shown: Which.
        cells: Of the method's result.
    """
    some = {cell.cell: cell for cell in cells if cell.maps.shape[1]}
    sheet, found = _sheet(shown, shown.columns), False
    for row, place in enumerate(shown.cells):
        if place not in some:
            continue
        where = {name: number for number, name in enumerate(_names(some[place]))}
        for column, name in enumerate(shown.names[place]):
            if name in where:
                _put(shown, sheet, row, column, palette()[levels(some[place].maps[where[name], 0])])
                found = True
    return _webp(sheet) if found else None


def _sheet(shown: Shown, columns: int) -> Colours:
    return np.full((len(shown.cells) * shown.side, max(columns, 1) * shown.side, 3), 128, dtype=np.uint8)


def _put(shown: Shown, sheet: Colours, row: int, column: int, tile: Colours) -> None:
    side = shown.side
    if tile.shape[:2] != (side, side):
        large = max(tile.shape[:2]) > side
        tile = np.asarray(Image.fromarray(tile).resize((side, side), Image.Resampling.BOX if large else 0))
    sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = tile


def _webp(sheet: Colours) -> bytes:
    content = io.BytesIO()
    Image.fromarray(sheet).save(content, "WEBP", lossless=True, quality=50, method=2)
    return content.getvalue()
