"""Rows of tables with pictures as samples: tables of the ``datasets`` library, and Parquet files of others."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.checks import numbered_classes
from xaibench.core.messages import listed
from xaibench.data.base import Dataset
from xaibench.data.disk.file_readers import (
    IMAGE_FORMATS,
    DataFileError,
    MissingDataError,
    check_size,
    largest_size,
    wrap_file_errors,
)
from xaibench.data.disk.image_files import convert_image
from xaibench.data.disk.image_lists import UNLABELED
from xaibench.data.disk.lazy_split import DiskSplit, Normalize
from xaibench.data.disk.mask_values import read_mask_picture
from xaibench.data.disk.source import Source
from xaibench.data.disk.splits import Splits, split_indices
from xaibench.registry.info import describe_own_data

#: Bytes of a number in memory, by its type in the file; of text and bytes, those of its place.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
#: Bytes of a row in the lists and objects of Python that are made of it.
_ROW = 100
#: Rows that are read at a time, if they are small.
_ROWS = 1000


def check_columns(opened: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Check how much memory some columns of a file can take.

    Args:
        opened: The file.
        columns: Names of the columns.

    Returns:
        Number of rows that can be read at a time.

    Raises:
        ContentSizeError: If they take more than :func:`~xaibench.data.disk.file_readers.check_size` allows.
    """
    # Damaged metadata of a column stops the process when they are looked up, but are an error of a scan, which keeps
    # no value.
    opened.scan_contents(list(columns))
    stated = opened.metadata
    rows, values, size, longest = stated.num_rows, 0, 0, 1
    for group in range(stated.num_row_groups):
        for number in range(stated.num_columns):
            leaf = stated.schema.column(number)
            if leaf.path.split(".")[0] not in columns:
                continue
            chunk = stated.row_group(group).column(number)
            values += chunk.num_values
            size += _WIDTHS.get(chunk.physical_type, leaf.length) * chunk.num_values
            if chunk.physical_type == "BYTE_ARRAY":  # any of its values may be the whole chunk
                size += chunk.total_uncompressed_size * (chunk.num_values if leaf.max_repetition_level else 1)
                longest = max(longest, chunk.total_uncompressed_size)
    check_size(_ROW * rows, f"{rows:,} rows")
    check_size(size, f"{values:,} values in {rows:,} rows")
    return max(1, min(_ROWS, int(largest_size() / longest)))


def read_columns(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """Read some columns of Parquet files with equal columns into memory, as one table.

    Raises:
        MissingDataError: If a file does not exist.
        DataFileError: If one is damaged, or together they have more content than may be read.
    """
    tables, size, rows = [], 0, 0
    for file in files:
        with wrap_file_errors(file), pq.ParquetFile(file) as opened:
            batches = []
            for batch in opened.iter_batches(check_columns(opened, columns), columns=list(columns)):
                batches.append(batch)
                size, rows = size + batch.nbytes + _ROW * len(batch), rows + len(batch)
                check_size(size, f"{rows:,} rows or more")
            schema = pa.schema([opened.schema_arrow.field(name) for name in columns])
            tables.append(pa.Table.from_batches(batches, schema))
    return pa.concat_tables(tables)


#: Usual names of the columns, in order of priority.
_IMAGE_COLUMNS = ("image", "img", "pixel_values", "picture")
_MASK_COLUMNS = ("mask", "segmentation", "annotation", "ground_truth")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "fine_label")


class TableOptions(TypedDict, total=False):
    """Options of a data set that is read from a table."""

    image: str | None
    mask: str | None
    label: str | None
    size: int
    channels: int
    normalize: Normalize
    splits: Splits | None
    include_unannotated: bool


class PictureSource(Source):
    """Rows of a table as samples of a data set; pictures are decoded on access.

    Args:
        name: Name of the table, for error messages.
        row: ``row(number)`` returns a row as a dict.
        labels: ``[N]`` class index of each row.
        classes: Class names.
        image: Column of the images.
        mask: Column of the masks; None = no row has a mask.
        has_mask: ``[N]`` bool: whether a row has a mask.
        official: Rows of the published splits, if there are any.
    """

    def __init__(
        self,
        name: str,
        row: Callable[[int], Mapping[str, Any]],
        labels: NDArray[np.int64],
        classes: tuple[str, ...],
        *,
        image: str,
        mask: str | None,
        has_mask: NDArray[np.bool_],
        official: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> None:
        self.classes = classes
        self.targets = labels
        self.annotated = has_mask
        self.official = official
        self._name, self._row, self._image, self._mask = name, row, image, mask

    def image(self, index: int, size: int) -> Image.Image:  # noqa: D102  # as in Source
        where = f"{self._name}, row {index}, {self._image}"
        return convert_image(decode_picture(self._row(index)[self._image], where), where)

    def mask(self, index: int) -> NDArray[np.bool_] | None:  # noqa: D102
        if self._mask is None or not self.annotated[index]:
            return None
        where = f"{self._name}, row {index}, {self._mask}"
        return read_mask_picture(decode_picture(self._row(index)[self._mask], where), where, self._name)

    def __str__(self) -> str:
        return self._name

    def meta(self, index: int) -> dict[str, object]:  # noqa: D102
        return {"id": str(index), "file": f"{self._name}#{index}", "annotated": bool(self.annotated[index])}


def decode_picture(value: Any, where: str) -> Image.Image:
    """Return a cell of a table as an image.

    Args:
        value: A Pillow image; ``{"bytes": ..., "path": ...}`` or bytes of an image file; or an array ``[H, W]``,
            ``[H, W, C]`` or ``[C, H, W]`` of 8-bit numbers, booleans or numbers in [0, 1].
        where: Place of the cell, for error messages.

    Raises:
        DataFileError: If it is none of these, or damaged.
    """
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if isinstance(value, bytes):
        with wrap_file_errors(where):
            picture = Image.open(io.BytesIO(value), formats=IMAGE_FORMATS)
            picture.load()
        return picture
    values = np.asarray(value)
    if values.dtype.kind not in "buif" or values.ndim not in (2, 3):
        raise DataFileError(
            f"{where}: got {type(value).__name__}, expected a picture, the bytes of an image file, or an array [H, W] "
            "or [H, W, C]."
        )
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.dtype.kind == "f" and values.ndim == 3:
        if not (values.min(initial=0) >= 0 and values.max(initial=1) <= 1):
            raise DataFileError(
                f"{where}: got colors from {values.min():g} to {values.max():g}, expected numbers in [0, 1]."
            )
        values = np.round(values * 255)
    if values.dtype.kind == "f" and values.ndim == 2:
        return Image.fromarray(values.astype(np.float32))
    if values.dtype.kind == "b":
        values = values * np.uint8(255)
    return Image.fromarray(np.ascontiguousarray(values.astype(np.uint8)))


def make_dataset(
    source: Source,
    name: str,
    *,
    seed: int = 0,
    size: int = 224,
    channels: int = 3,
    normalize: Normalize = None,
    splits: Splits | None = None,
    include_unannotated: bool = False,
) -> Dataset:
    """Return the rows of a table as a data set.

    Args:
        source: The rows.
        name: Name of the data set.
        seed: Seed of the split.
        size: Height and width of the images.
        channels: 3, or 1 for gray images.
        normalize: As for the annotated data sets.
        splits: Three fractions, or ``"official"``. None = the official split if there is one, else 0.6, 0.2, 0.2.
        include_unannotated: Keep rows without a mask, also if others have one.

    Raises:
        ValueError: If a parameter is out of range, or a class has too few rows.
    """
    # Without a single mask, the rows are for metrics that do not need any.
    selected = np.flatnonzero(source.annotated | (include_unannotated or not source.annotated.any()))
    if splits is None:
        splits = (0.6, 0.2, 0.2) if source.official is None else "official"
    train, val, test = (
        DiskSplit(source, indices, size=size, channels=channels, normalize=normalize)
        for indices in split_indices(source, selected, splits, seed)
    )
    info = describe_own_data(name, source.classes, (channels, size, size), "It is a table of your own.")
    return Dataset(train, val, test, info, parameters={"size": size, "splits": splits, "seed": seed})


def open_columns(
    name: str,
    columns: Sequence[str],
    read_labels: Callable[[str], tuple[Sequence[Any], Sequence[str] | None]],
    count: int,
    *,
    image: str | None,
    mask: str | None,
    label: str | None,
) -> tuple[str, str | None, NDArray[np.int64], tuple[str, ...]]:
    """Return the columns of images and masks of a table, the class index of each row, and the class names.

    Args:
        name: Name of the table, for error messages.
        columns: Names of its columns.
        read_labels: Returns the values of a column, and the names of integer labels if they are known.
        count: Number of rows.
        image: Column of the images; None = the usual name that exists.
        mask: Column of the masks; None = the usual name that exists, if any.
        label: Column of the classes; None = the usual name that exists; without any, all rows are ``unlabeled``.

    Raises:
        DataFileError: If there is no column of images, or a row has no valid label.
        ValueError: If a column does not exist.
    """
    images = _choose_column(name, image, _IMAGE_COLUMNS, columns, "image")
    if images is None:
        raise DataFileError(f"{name} has no column of images among {listed(columns)}; name it as image=.")
    masks = _choose_column(name, mask, _MASK_COLUMNS, columns, "mask")
    labels = _choose_column(name, label, _LABEL_COLUMNS, columns, "label")
    if labels is None:
        return images, masks, np.zeros(count, dtype=np.int64), (UNLABELED,)
    return images, masks, *_encode_labels(*read_labels(labels), f"{name}, column {labels}")


def list_parquet(path: Path) -> list[Path]:
    """Return the sorted Parquet files of a folder, in ``data`` or at any depth; a Parquet file itself; or nothing."""
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    for directory in (path / "data", path):
        if files := sorted(directory.glob("*.parquet")):
            return files
    return sorted(path.rglob("*.parquet"))


def choose_test_files(files: Sequence[Path]) -> list[Path]:
    """Return the files of the test split; without one, of the validation split; otherwise all files."""
    for split in ("test", "val"):
        if chosen := [file for file in files if _split_of(file) == split]:
            return chosen
    return list(files)


def open_files(
    files: Sequence[Path], *, image: str | None = None, mask: str | None = None, label: str | None = None
) -> PictureSource:
    """Open Parquet files that xaibench did not write, such as files of the Hugging Face Hub, as one table.

    Args:
        files: The files, with the same columns.
        image: Column of the images; None = the usual name that exists.
        mask: Column of the masks; None = the usual name that exists, if any.
        label: Column of the classes; None = the usual name that exists, if any.

    Returns:
        The rows. Rows without a mask are not annotated.

    Raises:
        MissingDataError: If there are no rows.
        DataFileError: If a file is damaged, differs in its columns, or has no column of images.
        ValueError: If a named column does not exist.
    """
    folder = str(files[0].parent if len(files) > 1 else files[0])
    schemas, lengths = [], []
    for file in files:
        with wrap_file_errors(file):
            schemas.append(pq.read_schema(file))
            lengths.append(pq.read_metadata(file).num_rows)
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise DataFileError(f"{folder}: the files have different columns.")
    count = sum(lengths)
    if not count:
        raise MissingDataError(f"{folder} has no rows.")

    def read_labels(column: str) -> tuple[Sequence[Any], Sequence[str] | None]:
        try:  # the class names that the datasets library has written into the schema
            notes = json.loads((schemas[0].metadata or {}).get(b"huggingface", b"{}"))
            names = notes["info"]["features"][column]["names"]
        except (ValueError, KeyError, TypeError, RecursionError):
            names = None
        return read_columns(files, [column])[column].to_pylist(), names

    images, masks, codes, classes = open_columns(
        folder, schemas[0].names, read_labels, count, image=image, mask=mask, label=label
    )
    pictures = read_columns(files, [images] if masks is None else [images, masks])

    def row(number: int) -> Mapping[str, Any]:
        values: Mapping[str, Any] = pictures.slice(number, 1).to_pylist()[0]
        return values

    splits = [_split_of(file) for file in files]
    names = np.repeat(np.array([split or "" for split in splits]), lengths)
    official = {str(name): np.flatnonzero(names == name) for name in np.unique(names)}
    return PictureSource(
        folder,
        row,
        codes,
        classes,
        image=images,
        mask=masks,
        has_mask=np.zeros(count, bool) if masks is None else np.asarray(pictures[masks].is_valid()),
        official=official if "train" in official and len(official) > 1 and None not in splits else None,
    )


def _split_of(file: Path) -> str | None:
    """Return the split in the name of a file or of its folder."""
    for name in (file.name, file.parent.name):
        for start, split in {"train": "train", "val": "val", "dev": "val", "test": "test"}.items():
            if name.casefold().startswith(start):
                return split
    return None


def _choose_column(
    name: str, wanted: str | None, usual: Sequence[str], columns: Sequence[str], parameter: str
) -> str | None:
    if wanted is None:
        return next((column for column in usual if column in columns), None)
    if wanted not in columns:
        raise ValueError(f"{parameter}={wanted!r}: {name} has the columns {listed(columns)}.")
    return wanted


def _encode_labels(
    values: Sequence[Any], names: Sequence[str] | None, what: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the class index of each row, and the class names: ``names``, or the labels themselves."""
    if any(value is None for value in values):
        raise DataFileError(f"{what} has rows without a label; leave these rows out.")
    if any(isinstance(value, str) for value in values):
        classes, codes = np.unique(np.array([str(value) for value in values]), return_inverse=True)
        return codes.astype(np.int64), tuple(map(str, classes))
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise DataFileError(
            f"{what} has labels of type {labels.dtype}, shape {labels.shape[1:]}; expected one class each."
        )
    labels = labels.astype(np.int64)
    most = int(labels.max(initial=0))
    with wrap_file_errors(what):
        known = tuple(names) if names is not None else numbered_classes(most, "labels")
    if labels.min(initial=0) < 0 or most >= len(known):
        raise DataFileError(f"{what} has labels from {labels.min()} to {most}, but {len(known)} classes.")
    return labels, known
