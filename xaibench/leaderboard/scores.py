"""``scores.parquet`` of a result, written in few bytes and read before it has been checked, and pictures of its maps.

There is one sheet of maps per result, in the metadata of the file (PNG), with one row per cell of the suite and one
column per sample. The first samples of each cell are shown, which are the same for all methods. Sheets of maps have
8-bit gray levels, from the smallest to the largest magnitude of each map.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.pictures import Levels, fit, levels
from xaibench.leaderboard.repository import ResultError, describe_error, read_bytes
from xaibench.runfolder.sample_file import SampleCell
from xaibench.runfolder.schema import SCORES, missing_values

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq


#: Largest size of the file in bytes, number of row groups, and bytes after decompression: per row, and of all texts.
_MAX_BYTES, _MAX_GROUPS, _BYTES_PER_ROW, _MAX_TEXT_BYTES = 100 << 20, 1000, 100, 1 << 20
#: Largest number of characters of a text.
_MAX_TEXT = 1000
#: Stored scores are multiples of this. Rounding changes a score by at most 3e-8, far less than the tolerance of a
#: verification, and halves the size of the file.
STEP = 2.0**-24
#: Key of the picture in the metadata of the file.
_PICTURE = "maps.png"
#: Level of compression: small before fast, because a file is written once and kept in a repository.
_LEVEL = 19


def round_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scores to multiples of :data:`STEP`, as they are stored.

    Example:
        >>> round_scores(np.array([0.1, 1.0, np.nan])) - [0.1, 1.0, 0.0]
        array([2.38418579e-08, 0.00000000e+00,            nan])
    """
    return np.asarray(np.rint(values / STEP) * STEP, dtype=np.float64)


def write_scores(scores: pa.Table, folder: Path, picture: bytes) -> None:
    """Write ``scores.parquet`` of a result, rounded to multiples of :data:`STEP`.

    Args:
        scores: The scores of one method, with the columns of :data:`xaibench.runfolder.schema.SCORES`.
        folder: Folder of the result.
        picture: A PNG file with the first maps; empty for none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array(round_scores(scores["value"].to_numpy()))
    scores = scores.set_column(scores.column_names.index("value"), "value", values)
    scores = scores.replace_schema_metadata()
    with pq.ParquetWriter(
        folder / SCORES.name,
        scores.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in scores.column_names if name != "value"],
        column_encoding={"value": "BYTE_STREAM_SPLIT"},
        write_page_checksum=True,
        store_schema=False,  # 1,400 bytes that say nothing more than the columns
    ) as file:
        file.write_table(scores)
        if picture:
            file.add_key_value_metadata({_PICTURE: picture})


def read_scores(folder: Path, most: int, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read ``scores.parquet`` of a result, which may come from a stranger.

    Args:
        folder: Folder of the result.
        most: Largest accepted number of rows. A file of a few kilobytes can claim any number.
        columns: The columns to read; None = all.

    Returns:
        The scores; text as categories. Results of older versions have ``scored`` under the name ``correct``; what the
        networks answered is missing.

    Raises:
        ResultError: If the file is missing or damaged, has too many rows, other columns, or missing values.
    """
    import pyarrow as pa

    file = folder / SCORES.name
    with _open(file) as parquet:
        rows, groups = parquet.metadata.num_rows, parquet.metadata.num_row_groups
        size = sum(parquet.metadata.row_group(number).total_byte_size for number in range(min(groups, _MAX_GROUPS)))
        if rows > most or groups > _MAX_GROUPS or size > _BYTES_PER_ROW * rows + _MAX_TEXT_BYTES:
            raise ResultError(
                f"{file} has {rows:,} rows of {size:,} bytes in {groups:,} row groups; expected at most {most:,} rows "
                f"of {_BYTES_PER_ROW} bytes in {_MAX_GROUPS} groups."
            )
        kinds = {field.name: field.type for field in parquet.schema_arrow}
        text = dict.fromkeys(SCORES.text, pa.dictionary(pa.int32(), pa.string()))
        stored = SCORES.stored_columns(list(kinds))
        expected = {stored.get(field.name): field.type for field in SCORES.arrow_schema()} | text
        if kinds != {name: kind for name, kind in expected.items() if name is not None}:
            raise ResultError(f"{file} has other columns than {', '.join(SCORES.columns)}, or other types.")
        wanted = list(SCORES.columns if columns is None else columns)
        present = [name for name in wanted if name in stored]
        table = parquet.read([stored[name] for name in present]).unify_dictionaries().rename_columns(present)
        if missing := [name for name in table.column_names if table[name].null_count]:
            raise ResultError(f"{file} has missing values in {', '.join(missing)}.")
        frame: pd.DataFrame = table.to_pandas()
    for name in wanted:
        if name not in frame:
            frame[name] = missing_values(frame.index, SCORES.columns[name])
    texts = [each for name in text if name in frame for each in frame[name].cat.categories]
    if odd := [each for each in texts if len(each) > _MAX_TEXT or not each.isprintable()]:
        raise ResultError(
            f"{file} has the text {ascii(odd[0])[:80]}; expected at most {_MAX_TEXT} printable characters."
        )
    return frame


def read_picture(folder: Path) -> bytes:
    """Return the picture of a result, which is not checked; empty if there is none.

    Args:
        folder: Folder of the result.

    Raises:
        ResultError: If the file of the scores is missing or damaged.
    """
    with _open(folder / SCORES.name) as parquet:
        content: bytes = (parquet.metadata.metadata or {}).get(_PICTURE.encode(), b"")
    return content


@contextlib.contextmanager
def _open(file: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            raise ResultError(f"{file} is missing, or larger than {_MAX_BYTES >> 20} MiB.")
        with pq.ParquetFile(file, read_dictionary=list(SCORES.text), page_checksum_verification=True) as parquet:
            yield parquet
    except ResultError:
        raise
    except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
        raise ResultError(f"{file} cannot be read ({describe_error(error)}).") from error


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
