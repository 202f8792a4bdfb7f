"""One table of masks that people drew: read once, row by row, and kept as bits."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.atomic_files import whole_file
from xaibench.data.disk.cache_folders import cache_folder, stamp
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, naming
from xaibench.data.disk.kept_arrays import read_kept

_LOGGER = logging.getLogger("xaibench")

#: Bumped when tables are read otherwise, so that no cache of the old way is taken.
_REVISION = 2
_LARGEST_FIELD = 2**31 - 1
#: Characters of a name, and of what is said of a broken row.
_LONGEST = 250


def parse_mask(text: str) -> NDArray[np.bool_]:
    """A mask ``[h, w]`` from JSON: a list of lists of 0 and 1, or of 0 and 255.

    Raises:
        ValueError: If it is not JSON, has rows of several lengths, or other values.

    Example:
        >>> parse_mask("[[0, 1, 1], [0, 0, 0]]").astype(int).tolist()
        [[0, 1, 1], [0, 0, 0]]
    """
    mask = _digits(text)
    if mask is None:
        try:
            values = np.array(json.loads(text), dtype=np.float64)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"attention is no list of lists of numbers, all of one length ({error})") from error
        if values.ndim != 2 or not values.size or not any(np.isin(values, (0, one)).all() for one in (1, 255)):
            raise ValueError(f"attention of shape {list(values.shape)}: expected a list of lists of 0 and 1")
        mask = values.astype(np.bool_)
    return mask


def _digits(text: str) -> NDArray[np.bool_] | None:
    """The mask if the text is written as such masks are, read six times as fast as JSON; None if it is not."""
    text = text.replace(" ", "")
    if not (text.isascii() and text.startswith("[[") and text.endswith("]]")):
        return None
    rows = text[2:-2].split("],[")
    length = len(rows[0])
    if length % 2 == 0 or any(len(row) != length for row in rows):
        return None
    pairs = np.frombuffer((",".join(rows) + ",").encode(), dtype=np.uint8).reshape(len(rows), -1, 2)
    values = pairs[..., 0] - ord("0")
    return values.astype(np.bool_) if (pairs[..., 1] == ord(",")).all() and (values <= 1).all() else None


@dataclass(frozen=True)
class MaskTable:
    """A table as the cache holds it.

    Attributes:
        names: ``img_idx`` of each mask.
        lines: Its line in the table.
        places: Where its bits are: file, first byte, height and width.
        broken: The rows that cannot be understood, and why.
        rejected: How many rows have an ``img_check`` other than ``good``.
    """

    names: list[str]
    lines: list[int]
    places: list[tuple[Path, int, tuple[int, int]]]
    broken: list[str]
    rejected: int


def read_table(table: Path) -> MaskTable:
    """A table from the cache, put there first if need be. The index is written last: where it is, all is.

    Raises:
        MissingDataError: If there is no such table.
        DataFileError: If it lacks a column or cannot be read. A single row that is broken is told, not raised.
        OSError: If the cache cannot be written.
    """
    bits, index = _kept(table)
    found = read_kept(index, lambda arrays: _table(arrays, bits))
    if found is None:
        _LOGGER.info("Reading the masks of %s; they are kept in %s.", table, bits.parent)
        try:
            _pack(table, bits, index)
        except MissingDataError:
            raise
        except OSError as error:
            raise OSError(
                f"The masks of {table} cannot be kept in {bits.parent} ({error}); make room, or set XAIBENCH_CACHE to "
                "another folder."
            ) from error
        found = read_kept(index, lambda arrays: _table(arrays, bits))
        if found is None:
            raise DataFileError(f"{index} changed while it was being read; is something else writing to the cache?")
    return found


def is_kept(table: Path) -> bool:
    """Whether a table is in the cache.

    Raises:
        MissingDataError: If there is no such table.
    """
    return all(file.exists() for file in _kept(table))


def _kept(table: Path) -> tuple[Path, Path]:
    """The files of the bits and of their index, named so that they change when the table does."""
    name = f"{table.stem}-{stamp([table])}-{_REVISION}"
    place = cache_folder("human-masks", table.parent)
    return place / f"{name}.bits", place / f"{name}.npz"


def _pack(table: Path, bits: Path, index: Path) -> None:
    names: list[str] = []
    lines: list[int] = []
    shapes: list[tuple[int, ...]] = []
    broken: list[str] = []
    rejected = 0
    with whole_file(bits) as stream:
        for line, row in _rows(table):
            try:
                if isinstance(row, str):
                    raise ValueError(row)
                if row.get("img_check", "good").strip().casefold() != "good":
                    rejected += 1
                    continue
                name, mask = _name(row["img_idx"]), parse_mask(row["attention"])
            except ValueError as error:
                broken.append(f"line {line} ({str(error)[:_LONGEST]})")
                continue
            stream.write(np.packbits(mask).tobytes())
            names.append(name)
            lines.append(line)
            shapes.append(mask.shape)
    with whole_file(index) as stream:
        np.savez(
            stream,
            names=np.array(names, dtype=np.str_),
            lines=np.array(lines, dtype=np.int64),
            shapes=np.array(shapes, dtype=np.int64).reshape(-1, 2),
            broken=np.array(broken, dtype=np.str_),
            rejected=np.array(rejected),
        )


def _name(img_idx: str) -> str:
    name = img_idx.strip().replace("\\", "/")
    if not name.rpartition("/")[2] or len(name) > _LONGEST:
        raise ValueError(f"img_idx is {name[:_LONGEST]!r}, expected a file name")
    return name


def _table(arrays: Mapping[str, NDArray[Any]], bits: Path) -> MaskTable:
    shapes = [(int(height), int(width)) for height, width in arrays["shapes"]]
    starts = np.cumsum([0, *(_packed_size(*shape) for shape in shapes)]).tolist()
    if bits.stat().st_size != starts[-1]:
        raise ValueError("its bits have another size than they should")
    places = [(bits, start, shape) for start, shape in zip(starts[:-1], shapes, strict=True)]
    names, lines, broken = (arrays[key].tolist() for key in ("names", "lines", "broken"))
    return MaskTable(names, lines, places, broken, int(arrays["rejected"]))


def read_bits(file: Path, start: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """``[h, w]``: one mask from where :class:`MaskTable` says it is.

    Raises:
        MissingDataError: If the cache was emptied since the set was opened.
        DataFileError: If the file cannot be read.
    """
    height, width = shape
    with naming(file), open(file, "rb") as stream:
        stream.seek(start)
        bits = np.frombuffer(stream.read(_packed_size(height, width)), dtype=np.uint8)
        return np.unpackbits(bits, count=height * width).reshape(height, width).astype(np.bool_)


def _packed_size(height: int, width: int) -> int:
    return -(-height * width // 8)


def _rows(table: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line number and columns of each row, or what is wrong with it.

    The ``csv`` module alone would lose all that follows an unbalanced quote. So it is given one line at a time, and a
    row goes on over the next line only while quotes are open and the next line is not a whole row itself.
    """
    with naming(table), open(table, encoding="utf-8-sig", errors="replace", newline="") as stream, _large_fields():
        header = [name.strip().casefold() for name in _split(stream.readline()) or []]
        for column in ("img_idx", "attention"):
            if column not in header:
                raise DataFileError(
                    f"{table} has no column {column!r}; expected img_idx, attention and perhaps img_check, got "
                    f"{', '.join(header) or 'nothing'}."
                )
        open_row, start = "", 0
        for number, line in enumerate(stream, start=2):
            if open_row:
                if line.count('"') % 2 == 0 and _is_whole(_split(line), header):
                    yield start, "its quotes are not closed"
                    open_row = ""
                else:
                    line = open_row + line
            start = start if open_row else number
            open_row = line if line.count('"') % 2 else ""
            if open_row or not line.strip():
                continue
            columns = _split(line)
            if columns is None or len(columns) != len(header):
                yield start, f"{len(columns or [])} columns, expected {len(header)}"
            else:
                yield start, dict(zip(header, columns, strict=True))
        if open_row:
            yield start, "its quotes are not closed"


def _split(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line], strict=False), None)
    except csv.Error:
        return None


def _is_whole(columns: list[str] | None, header: list[str]) -> bool:
    if columns is None or len(columns) != len(header):
        return False
    return columns[header.index("attention")].lstrip().startswith("[[")


@contextmanager
def _large_fields() -> Iterator[None]:
    """Fields of any size; the limit is the whole process's, so it is put back."""
    before = csv.field_size_limit(_LARGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)
