"""Human annotations in the tables ``attention_label/*.csv`` of Saliency-Bench and of the data sets it includes.

A row is an image. ``img_idx`` is its file name, with or without suffix. ``attention`` is the mask as a JSON list of
lists of 0 and 1 (or 0 and 255) of any size, stretched to the image. If there is a column ``img_check``, only rows with
``good`` are used. A table with ``counterfactual`` in its name marks pixels that must not matter for the class, all
others mark pixels that should; the two kinds are never mixed. A row has 150 kB of text and a table hundreds of
megabytes. Each table is therefore read once and cached as packed bits, 6 kB per mask, from which single masks are read.
"""

from __future__ import annotations

import csv
import json
import logging
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xaibench.core.files import atomic_file
from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import cache_folder, digest_files, read_cached
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, text_encoding, to_nfc, wrap_file_errors
from xaibench.data.disk.image_lists import (
    ImageEntry,
    ListedSource,
    MaskRow,
    class_folders,
    official_folders,
    warn_about,
)
from xaibench.data.disk.source import Source
from xaibench.tensors.workers import worker_context

_LOGGER = logging.getLogger("xaibench")

#: Name of the folder of the tables.
TABLE_FOLDER = "attention_label"


class HumanMasks:
    """The masks of one kind in a folder of tables (implements :class:`~xaibench.data.disk.image_lists.Masks`).

    Args:
        folder: The folder of the tables.
        classes: All classes of the data set. If there is one table per class, named after it (``cat.csv``,
            ``wild_cat-factual.csv``), its rows belong to that class, as does a row that begins with ``cat/``.
        counterfactual: Use the masks of pixels that must not matter.

    Attributes:
        rows: Metadata of each mask.

    Raises:
        MissingDataError: If the folder has no table of this kind.
        DataFileError: If a table lacks a column or cannot be read. A malformed row is logged and left out.
    """

    def __init__(self, folder: Path, classes: Sequence[str], *, counterfactual: bool = False) -> None:
        tables = list_tables(folder, counterfactual=counterfactual)
        if not tables:
            wanted = "with 'counterfactual' in its name" if counterfactual else "(without 'counterfactual' in its name)"
            raise MissingDataError(f"{folder} has no *.csv {wanted}: this data set has no such masks.")
        labels = _find_table_classes(tables, classes)
        self.rows: list[MaskRow] = []
        self._places: list[tuple[Path, int, tuple[int, int]]] = []
        for table, label in zip(tables, labels, strict=True):
            packed = read_table(table)
            warn_about(f"{table}: malformed rows, left out", packed.broken)
            if packed.rejected:
                _LOGGER.info("%s: %d rows whose img_check is not 'good' are left out.", table, packed.rejected)
            for name, line in zip(packed.names, packed.lines, strict=True):
                self.rows.append(_make_row(name, f"{table.name}:{line}", label, classes))
            self._places += packed.places

    def read(self, row: int, image: Path, frame: int | None = None) -> NDArray[np.bool_]:
        """Read a mask ``[h, w]``, True = important. It covers the whole image, but may differ from it in size.

        Raises:
            DataFileError: If the file has several images, since a row names a file.
        """
        if frame is not None:
            raise DataFileError(
                f"{image} has several images, but {self.rows[row].where} has one mask for it; give a mask file instead "
                "of a table, with one mask per image."
            )
        return read_bits(*self._places[row])


def list_tables(folder: Path, *, counterfactual: bool | None = None) -> list[Path]:
    """Return the sorted tables of a folder, of one kind or (None) of both, without hidden files."""
    tables = sorted(file for file in folder.glob("*") if file.suffix.lower() == ".csv" and file.name[0] != ".")
    return [file for file in tables if counterfactual in (None, "counterfactual" in file.name.casefold())]


def prepare_masks(folder: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> None:
    """Read the tables of a folder that are not cached yet, with ``workers`` processes.

    Raises:
        DataFileError: If a table lacks a column or cannot be read.
        OSError: If the cache is not writable.
        ValueError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise ValueError(f"workers={workers!r}: expected 1 or more.")
    tables = list_tables(folder)
    missing = [table for table in tables if not is_kept(table)]
    report = progress or (lambda done, total: None)
    done = len(tables) - len(missing)
    report(done, len(tables))
    if workers == 1 or len(missing) < 2:
        for number, table in enumerate(missing, done + 1):
            read_table(table)
            report(number, len(tables))
        return
    with ProcessPoolExecutor(min(workers, len(missing)), mp_context=worker_context(__name__)) as pool:
        futures = [pool.submit(read_table, table) for table in missing]
        try:
            for number, future in enumerate(as_completed(futures), done + 1):
                future.result()
                report(number, len(tables))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _make_row(name: str, where: str, label: str | None, classes: Sequence[str]) -> MaskRow:
    folder, _, file = name.rpartition("/")
    parent = folder.rpartition("/")[2]
    named = next((one for one in classes if to_nfc(one) == to_nfc(parent)), label)
    return MaskRow(file, named, where)


def _find_table_classes(tables: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """Return the class of each table if every table is named after exactly one class, otherwise None for all.

    A single table covers the whole data set. So do ``train.csv``, ``val.csv`` and ``test.csv``, although ``train`` may
    be a class. Whole words are compared: ``cattle.csv`` is not a table of the class ``cat``.
    """
    labels = [_find_class(table.stem, classes) for table in tables]
    return [None] * len(tables) if len(tables) < 2 or None in labels else labels


def _find_class(name: str, classes: Sequence[str]) -> str | None:
    words = _split_words(name)
    named = []
    for label in classes:
        wanted = _split_words(label)
        starts = range(len(words) - len(wanted) + 1)
        if wanted and any(words[start : start + len(wanted)] == wanted for start in starts):
            named.append(label)
    longest = max((len(_split_words(label)) for label in named), default=0)
    named = [label for label in named if len(_split_words(label)) == longest]
    return named[0] if len(named) == 1 else None


def _split_words(name: str) -> list[str]:
    return re.findall(r"\w+", to_nfc(name).casefold().replace("_", " "))


#: Part of the cache key; increased when the parsing of tables changes.
_REVISION = 3
_MAX_FIELD = 2**31 - 1
#: Maximum number of characters of a name, and of the message about a malformed row.
_MAX_LENGTH = 250


def parse_mask(text: str) -> NDArray[np.bool_]:
    """Parse a mask ``[h, w]`` from JSON: a list of lists of 0 and 1, or of 0 and 255.

    Raises:
        ValueError: If the text is not JSON, has rows of different lengths, or other values.

    Example:
        >>> parse_mask("[[0, 1, 1], [0, 0, 0]]").astype(int).tolist()
        [[0, 1, 1], [0, 0, 0]]
    """
    mask = _parse_digits(text)
    if mask is None:
        try:
            values = np.array(json.loads(text), dtype=np.float64)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"attention is not a list of equally long lists of numbers ({error})") from error
        if values.ndim != 2 or not values.size or not any(np.isin(values, (0, one)).all() for one in (1, 255)):
            raise ValueError(f"attention has shape {list(values.shape)}, expected a list of lists of 0 and 1")
        mask = values.astype(np.bool_)
    return mask


def _parse_digits(text: str) -> NDArray[np.bool_] | None:
    """Parse the usual form of a mask, six times as fast as JSON; None if the text has another form."""
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
    """A cached table.

    Attributes:
        names: ``img_idx`` of each mask.
        lines: Line number of each mask in the table.
        places: Position of each mask in the cache: file, first byte, and height and width.
        broken: Messages about malformed rows.
        rejected: Number of rows whose ``img_check`` is not ``good``.
    """

    names: list[str]
    lines: list[int]
    places: list[tuple[Path, int, tuple[int, int]]]
    broken: list[str]
    rejected: int


def read_table(table: Path) -> MaskTable:
    """Return a table from the cache; it is read and cached first if needed.

    The index is written last, so a table with an index is complete.

    Raises:
        MissingDataError: If the table does not exist.
        DataFileError: If it lacks a column or cannot be read. Malformed rows are listed in ``broken``.
        OSError: If the cache is not writable.
    """
    bits, index = _cache_files(table)
    found = read_cached(index, lambda arrays: _table_from_cache(arrays, bits))
    if found is None:
        _LOGGER.info("Reading the masks of %s; they are cached in %s.", table, bits.parent)
        try:
            _write_cache(table, bits, index)
        except MissingDataError:
            raise
        except OSError as error:
            raise OSError(
                f"The masks of {table} cannot be cached in {bits.parent} ({error}); free disk space, or set "
                "XAIBENCH_CACHE to another folder."
            ) from error
        found = read_cached(index, lambda arrays: _table_from_cache(arrays, bits))
        if found is None:
            raise DataFileError(f"{index} changed while it was being read; is something else writing to the cache?")
    return found


def is_kept(table: Path) -> bool:
    """Return whether a table is cached.

    Raises:
        MissingDataError: If the table does not exist.
    """
    return all(file.exists() for file in _cache_files(table))


def _cache_files(table: Path) -> tuple[Path, Path]:
    """Return the files of the packed bits and of their index. Their names contain a digest of the table."""
    name = f"{table.stem}-{digest_files([table])}-{_REVISION}"
    directory = cache_folder("human-masks", table.parent)
    return directory / f"{name}.bits", directory / f"{name}.npz"


def _write_cache(table: Path, bits: Path, index: Path) -> None:
    names: list[str] = []
    lines: list[int] = []
    shapes: list[tuple[int, ...]] = []
    broken: list[str] = []
    rejected = 0
    with atomic_file(bits) as stream:
        for line, row in _read_rows(table):
            try:
                if isinstance(row, str):
                    raise ValueError(row)
                if row.get("img_check", "good").strip().casefold() != "good":
                    rejected += 1
                    continue
                name, mask = _parse_name(row["img_idx"]), parse_mask(row["attention"])
            except ValueError as error:
                broken.append(f"line {line} ({str(error)[:_MAX_LENGTH]})")
                continue
            stream.write(np.packbits(mask).tobytes())
            names.append(name)
            lines.append(line)
            shapes.append(mask.shape)
    with atomic_file(index) as stream:
        np.savez(
            stream,
            names=np.array(names, dtype=np.str_),
            lines=np.array(lines, dtype=np.int64),
            shapes=np.array(shapes, dtype=np.int64).reshape(-1, 2),
            broken=np.array(broken, dtype=np.str_),
            rejected=np.array(rejected),
        )


def _parse_name(img_idx: str) -> str:
    name = img_idx.strip().replace("\\", "/")
    if not name.rpartition("/")[2] or len(name) > _MAX_LENGTH:
        raise ValueError(f"img_idx is {name[:_MAX_LENGTH]!r}, expected a file name")
    return name


def _table_from_cache(arrays: Mapping[str, NDArray[Any]], bits: Path) -> MaskTable:
    shapes = [(int(height), int(width)) for height, width in arrays["shapes"]]
    starts = np.cumsum([0, *(_packed_size(*shape) for shape in shapes)]).tolist()
    if bits.stat().st_size != starts[-1]:
        raise ValueError("the file of its bits has the wrong size")
    places = [(bits, start, shape) for start, shape in zip(starts[:-1], shapes, strict=True)]
    names, lines, broken = (arrays[key].tolist() for key in ("names", "lines", "broken"))
    return MaskTable(names, lines, places, broken, int(arrays["rejected"]))


def read_bits(file: Path, start: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Read one mask ``[h, w]`` from its position in the cache (``MaskTable.places``).

    Raises:
        MissingDataError: If the cache was deleted after the data set was opened.
        DataFileError: If the file cannot be read.
    """
    height, width = shape
    with wrap_file_errors(file), open(file, "rb") as stream:
        stream.seek(start)
        bits = np.frombuffer(stream.read(_packed_size(height, width)), dtype=np.uint8)
        return np.unpackbits(bits, count=height * width).reshape(height, width).astype(np.bool_)


def _packed_size(height: int, width: int) -> int:
    return -(-height * width // 8)


def _read_rows(table: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Yield the line number of each row, and its columns or an error message.

    The ``csv`` module alone would lose everything after an unbalanced quote. It is therefore given one line at a time,
    and a row only continues on the next line if its quotes are open and the next line is not a complete row.
    """
    with (
        wrap_file_errors(table),
        open(table, encoding=text_encoding(table), errors="replace", newline="") as stream,
        _large_fields(),
    ):
        header = [name.strip().casefold() for name in _split_line(stream.readline()) or []]
        for column in ("img_idx", "attention"):
            if column not in header:
                raise DataFileError(
                    f"{table} has no column {column!r}: expected img_idx, attention and optionally img_check, got "
                    f"{', '.join(header) or 'nothing'}."
                )
        open_row, start = "", 0
        for number, line in enumerate(stream, start=2):
            if open_row:
                if line.count('"') % 2 == 0 and _is_complete(_split_line(line), header):
                    yield start, "its quotes are not closed"
                    open_row = ""
                else:
                    line = open_row + line
            start = start if open_row else number
            open_row = line if line.count('"') % 2 else ""
            if open_row or not line.strip():
                continue
            columns = _split_line(line)
            if columns is None or len(columns) != len(header):
                yield start, f"{len(columns or [])} columns, expected {len(header)}"
            else:
                yield start, dict(zip(header, columns, strict=True))
        if open_row:
            yield start, "its quotes are not closed"


def _split_line(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line], strict=False), None)
    except csv.Error:
        return None


def _is_complete(columns: list[str] | None, header: list[str]) -> bool:
    if columns is None or len(columns) != len(header):
        return False
    return columns[header.index("attention")].lstrip().startswith("[[")


@contextmanager
def _large_fields() -> Iterator[None]:
    """Allow fields of any size inside the block. The limit applies to the whole process, so it is restored."""
    before = csv.field_size_limit(_MAX_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class MarkedPhotographs(AnnotatedSet):
    """Photographs with human annotations of the pixels that show the class, or must not matter (counterfactual).

    The data set is a folder ``{train,val,test}/<class>/``, or ``image/<class>/`` as in the processed release, with the
    masks in ``attention_label/*.csv``. An image without a mask that was checked as good is not annotated.
    ``splits="official"`` uses the split of the folders.

    If only the public data set is on disk, from which the photographs were taken, its images of these classes are
    listed without annotations; load them with ``include_unannotated=True``. Other annotations of the public data set
    are never used as masks, because they do not mark the pixels that show the class. If its folder has
    ``attention_label/*.csv``, those masks are used.

    Attributes:
        raw_folders: Folders below ``root`` in which the public data set may be.
    """

    marker = TABLE_FOLDER
    contents: ClassVar = {
        "human masks": f"{TABLE_FOLDER}/*.csv",
        "photographs": "image/*/* or train/*/*",
    }
    raw_folders: ClassVar[Sequence[str]]

    @abstractmethod
    def is_raw(self, folder: Path) -> bool:
        """Return whether the folder contains the public data set.

        Args:
            folder: The folder to check.

        Returns:
            True if it does.
        """

    @abstractmethod
    def list_raw(self, folder: Path) -> list[ImageEntry]:
        """List the images of the public data set that belong to the classes.

        Args:
            folder: The folder of the public data set.

        Returns:
            One entry per image.

        Raises:
            DataFileError: If a list cannot be read.
        """

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int, counterfactual: bool = False) -> Source:
        """Return the images and their human annotations.

        Args:
            folder: The folder of the data set or of the public data set.
            classes: The wanted classes.
            seed: Not used.
            counterfactual: Use the masks of pixels that must not matter.
        """
        name, known = self.info.name, self.info.classes
        images = official_folders(name, folder, known) or class_folders(folder, "image", known)
        if not images and self.is_raw(folder):
            images = self.list_raw(folder)
        if not images:
            raise MissingDataError(f"{name}: {folder} has none of its images.\n{self.info.how_to_get}")
        masks = None
        if (folder / TABLE_FOLDER).is_dir():
            masks = HumanMasks(folder / TABLE_FOLDER, known, counterfactual=counterfactual)
        else:
            _LOGGER.warning(
                "%s: there is no %s, so no image is annotated.\n%s", name, folder / TABLE_FOLDER, self.info.how_to_get
            )
        return ListedSource(name, folder, images, masks, classes, notes={"counterfactual": counterfactual})

    def look_in(self, base: Path) -> Path | None:
        """Return the folder of the data set or, if it is missing, of the public data set; None if neither is there."""
        raw = (base / name for name in self.raw_folders)
        return super().look_in(base) or next((folder for folder in raw if self.is_raw(folder)), None)

    def list_contents(self, base: Path) -> list[tuple[str, bool]]:  # noqa: D102  # as in AnnotatedSet
        masks, *photographs = super().list_contents(base)
        folder = self.look_in(base)  # the public data set has its photographs elsewhere
        return [masks] if folder is not None and self.is_raw(folder) else [masks, *photographs]

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks."""
        prepare_masks(folder / TABLE_FOLDER, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an image on disk has a checked mask; None if the masks are not cached."""
        tables = list_tables(folder / TABLE_FOLDER, counterfactual=False)
        if not tables:
            return False
        return super().is_ready(folder) if all(map(is_kept, tables)) else None
