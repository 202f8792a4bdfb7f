"""Format of the Parquet files: file names, columns and metadata in the footer."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from xaibench._version import __version__
from xaibench.component.info import DatasetInfo
from xaibench.data.base import Dataset
from xaibench.data.disk.file_readers import DataFileError, wrap_file_errors
from xaibench.data.exchange.parquet_columns import PICTURE, array_type

#: Name of each split to its name in the ``datasets`` library.
HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
#: File names: split, number of the file, number of files.
FILE_PATTERN = re.compile(r"(train|validation|test)-(\d{5})-of-(\d{5})\.parquet")

#: Storage of the images.
Layout: TypeAlias = Literal["png", "float32"]

_FORMAT = 1
_KEYS = {"format", "info", "parameters", "batch_size", "samples"}


def columns(layout: Layout, dimensions: int = 3) -> dict[str, pa.DataType]:
    """Return the columns and their types, for images of that many dimensions with the channels."""
    if layout == "png":
        return {"image": PICTURE, "mask": PICTURE, "target": pa.int64()}
    return {"image": array_type(pa.float32(), dimensions), "mask": PICTURE, "target": pa.int64(), "preview": PICTURE}


def list_set_files(folder: Path) -> list[Path]:
    """Return the sorted files of a data set in ``folder/data``, or in the folder itself."""
    for place in (folder / "data", folder):
        if files := [file for file in place.glob("*.parquet") if FILE_PATTERN.fullmatch(file.name)]:
            return sorted(files)
    return []


def is_own(file: Path) -> bool:
    """Return whether a Parquet file was written by xaibench.

    Raises:
        DataFileError: If the file is damaged.
    """
    with wrap_file_errors(file):
        return b"xaibench" in (pq.read_schema(file).metadata or {})


def make_metadata(dataset: Dataset) -> str:
    """Return the metadata of a data set for the footers, as JSON.

    Raises:
        TypeError: If a parameter of the data set cannot be written as JSON.
    """
    notes = {
        "format": _FORMAT,
        "version": __version__,
        "info": dataclasses.asdict(dataset.info),
        "parameters": dict(dataset.parameters),
        "batch_size": dataset.batch_size,
        "samples": {theirs: len(getattr(dataset, name)) for name, theirs in HUB_SPLITS.items()},
    }
    try:
        return json.dumps(notes, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(
            f"{dataset.info.name}: its parameters cannot be written ({error}); expected numbers, strings, None, and "
            "lists and dicts of them."
        ) from error


def read_metadata(file: Path) -> dict[str, Any]:
    """Return the metadata in the footer of a file.

    Raises:
        DataFileError: If the file is damaged or was not written by xaibench.
    """
    with wrap_file_errors(file):
        raw = (pq.read_schema(file).metadata or {}).get(b"xaibench")
        notes = None if raw is None else json.loads(raw)
    if not isinstance(notes, dict) or not notes.keys() >= _KEYS:
        raise DataFileError(f"{file} was not written by xaibench: its footer has no metadata of a data set.")
    if notes["format"] != _FORMAT:
        raise DataFileError(
            f"{file} has format {notes['format']!r} of xaibench {notes.get('version')}, but xaibench {__version__} "
            f"reads format {_FORMAT}. Install a newer version."
        )
    return notes


def read_info(file: Path, notes: Mapping[str, Any]) -> DatasetInfo:
    """Return the info record of the data set, without fields that a newer version may have added.

    Raises:
        DataFileError: If the record is missing or malformed.
    """
    known = {field.name for field in dataclasses.fields(DatasetInfo)}
    try:
        info = DatasetInfo(**{key: lists_to_tuples(value) for key, value in notes["info"].items() if key in known})
        sides = info.image_shape
        if len(sides) not in (3, 4) or not all(isinstance(side, int) and side > 0 for side in sides):
            raise ValueError(f"image_shape={sides}: expected (C, H, W) or (C, D, H, W)")
    except (AttributeError, TypeError, ValueError) as error:
        raise DataFileError(f"{file} has invalid metadata of its data set ({error}).") from error
    return info


def lists_to_tuples(value: Any) -> Any:
    """Convert lists to tuples: JSON has no tuples, and parameters of data sets have no lists."""
    if isinstance(value, list):
        return tuple(lists_to_tuples(one) for one in value)
    return {key: lists_to_tuples(one) for key, one in value.items()} if isinstance(value, dict) else value
