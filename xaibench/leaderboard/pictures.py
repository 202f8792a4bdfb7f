"""Small pictures of maps: one sheet per result, with one row per cell of the suite and one column per sample.

The first samples of each cell are shown, which are the same for all methods. Sheets of maps have 8-bit gray levels,
from the smallest to the largest magnitude of each map.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from xaibench.core.pictures import Levels, fit, levels
from xaibench.leaderboard.manifest import ResultError, read_bytes
from xaibench.runfolder.sample_file import SampleCell

SAMPLE_SHEET = "samples.png"
#: Largest number of samples per cell, and that of larger images, whose pictures take most of a result's bytes.
MAX_SAMPLES, MAX_LARGE_SAMPLES = 4, 1
#: Longest side in pixels of images that are not large.
_SMALL_SIDE = 16
#: Largest side of a tile in pixels; larger images and maps are scaled down.
MAX_SIDE = 64
#: Largest size of a picture in bytes, and largest side of a sheet in pixels.
MAX_PICTURE_BYTES, _MAX_SHEET_SIDE = 1 << 20, 1 << 13

#: Subset, variant and model.
CellKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class SheetLayout:
    """Which samples the sheets of a suite show.

    Attributes:
        cells: The cell of each row.
        samples: The indices in the test split of the samples of each row.
        side: Side of a tile in pixels.
    """

    cells: tuple[CellKey, ...]
    samples: tuple[tuple[int, ...], ...]
    side: int

    @property
    def columns(self) -> int:
        """Return the number of tiles per row."""
        return max(map(len, self.samples))

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height in pixels of a sheet of maps."""
        return self.columns * self.side, len(self.cells) * self.side


def sheet_layout(cells: Sequence[SampleCell]) -> SheetLayout:
    """Return the layout of the sheets of a suite.

    Args:
        cells: The samples of a run of the suite; at least one.
    """
    side = min(max(max(cell.images.shape[1:3]) for cell in cells), MAX_SIDE)
    most = MAX_SAMPLES if side <= _SMALL_SIDE else MAX_LARGE_SAMPLES
    samples = tuple(tuple(sorted(cell.samples)[:most]) for cell in cells)
    return SheetLayout(tuple(cell.cell for cell in cells), samples, side)


def write_sample_sheet(folder: Path, cells: Sequence[SampleCell], layout: SheetLayout) -> None:
    """Write the images and ground-truth masks of the samples.

    Args:
        folder: Folder of the facts about the suite.
        cells: The samples of a run of the suite.
        layout: As :func:`sheet_layout` returns it.
    """
    width, height = layout.size
    sheet = np.full((height, 2 * width, 3), 128, np.uint8)
    for row, column, cell, position in _tiles(layout, cells):
        _paste(sheet, layout, row, column, cell.images[position])
        mask = np.repeat(255 * cell.masks[position][..., None], 3, axis=2)
        _paste(sheet, layout, row, layout.columns + column, mask)
    Image.fromarray(sheet).save(folder / SAMPLE_SHEET, optimize=True)


def draw_map_sheet(cells: Sequence[SampleCell], explainer: str, layout: SheetLayout) -> bytes:
    """Return a PNG file with the maps of an explainer; empty if there are none.

    Args:
        cells: The samples of a run of the suite.
        explainer: Name of the explainer in the run.
        layout: Layout of the suite's sheets.
    """
    sheet = np.zeros(layout.size[::-1], np.uint8)
    for row, column, cell, position in _tiles(layout, (cell for cell in cells if explainer in cell.explainers)):
        _paste(sheet, layout, row, column, levels(cell.maps[position, cell.explainers.index(explainer)]))
    content = io.BytesIO()
    if sheet.any():
        Image.fromarray(sheet).save(content, "PNG", optimize=True)
    return content.getvalue()


def parse_layout(words: Any, file: Path) -> SheetLayout | None:
    """Parse the fields of a :class:`SheetLayout`; None means no pictures.

    Args:
        words: The parsed JSON value, which may come from a stranger.
        file: Its file, for error messages.

    Raises:
        ResultError: If it is not a layout.
    """
    if words is None:
        return None
    try:
        cells = tuple((str(subset), str(variant), str(model)) for subset, variant, model in words["cells"])
        samples = tuple(tuple(int(each) for each in row[:MAX_SAMPLES]) for row in words["samples"])
        layout = SheetLayout(cells, samples, int(words["side"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ResultError(
            f"{file} cannot be read ({error}); remove it, and `xaibench results add` writes it again."
        ) from error
    if not (cells and len(samples) == len(cells) and layout.columns and 1 <= layout.side <= MAX_SIDE):
        raise ResultError(f"{file} has no such layout; remove it, and `xaibench results add` writes it again.")
    return layout


def decode_sheet(content: bytes, file: str, size: tuple[int, int] | None = None, mode: str = "L") -> Levels:
    """Decode a sheet, which may come from a stranger: only PNG, and only if it has the expected size.

    Args:
        content: Content of the file.
        file: Name of the file in messages.
        size: Expected width and height in pixels; None accepts any up to a limit.
        mode: Expected mode: ``"L"`` for maps, ``"RGB"`` for samples.

    Raises:
        ResultError: If it is another kind of file, larger, or damaged.
    """
    try:
        if len(content) > MAX_PICTURE_BYTES:
            raise ResultError(f"{file} has {len(content):,} bytes; expected at most {MAX_PICTURE_BYTES:,}.")
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if picture.mode != mode or max(picture.size) > _MAX_SHEET_SIDE or picture.size != (size or picture.size):
                raise ResultError(
                    f"{file} is a picture of {picture.size[0]} × {picture.size[1]} pixels in mode {picture.mode}; "
                    f"expected {f'{size[0]} × {size[1]} pixels' if size else 'a small one'} in mode {mode}."
                )
            return np.asarray(picture)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(f"{file} is not a PNG picture ({error}).") from error


def read_sample_sheet(folder: Path, layout: SheetLayout) -> Levels:
    """Read the sheet of the samples, which may come from a stranger.

    Args:
        folder: Folder of the facts about the suite.
        layout: Layout of the suite's sheets.

    Raises:
        ResultError: If it is missing or another kind of file.
    """
    width, height = layout.size
    file = folder / SAMPLE_SHEET
    return decode_sheet(read_bytes(file, MAX_PICTURE_BYTES), str(file), (2 * width, height), "RGB")


def _tiles(layout: SheetLayout, cells: Iterable[SampleCell]) -> Iterable[tuple[int, int, SampleCell, int]]:
    """Yield row, column, cell and position of the sample in the cell, for each tile."""
    known = {cell.cell: cell for cell in cells}
    for row, (name, samples) in enumerate(zip(layout.cells, layout.samples, strict=True)):
        if name in known:
            where = {sample: position for position, sample in enumerate(known[name].samples)}
            for column, sample in enumerate(samples):
                if sample in where:
                    yield row, column, known[name], where[sample]


def _paste(sheet: Levels, layout: SheetLayout, row: int, column: int, tile: Levels) -> None:
    """Paste a tile, scaled to the side of a tile; one that is not square keeps its proportions, in the middle."""
    side, tile = layout.side, fit(tile, layout.side, enlarge=True)
    height, width = tile.shape[:2]
    top, left = row * side + (side - height) // 2, column * side + (side - width) // 2
    sheet[top : top + height, left : left + width] = tile
