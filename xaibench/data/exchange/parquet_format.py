"""What the writer and the reader agree on: the names of the files, their columns, and what stands in their footers."""

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
from xaibench.core.part_info import DatasetInfo
from xaibench.data.dataset import Dataset
from xaibench.data.disk.file_readers import DataFileError, naming
from xaibench.data.exchange.parquet_columns import PICTURE, array_type

#: Our names of the splits, and those that ``datasets`` gives them.
SPLITS = {"train": "train", "val": "validation", "test": "test"}
#: Names of the files: split, number, how many.
FILE = re.compile(r"(train|validation|test)-(\d{5})-of-(\d{5})\.parquet")

#: How images are kept.
Layout: TypeAlias = Literal["png", "float32"]

_FORMAT = 1
_KEYS = {"format", "info", "parameters", "batch_size", "samples"}


def columns(layout: Layout) -> dict[str, pa.DataType]:
    """The columns and their types."""
    if layout == "png":
        return {"image": PICTURE, "mask": PICTURE, "target": pa.int64()}
    return {"image": array_type(pa.float32(), 3), "mask": PICTURE, "target": pa.int64(), "preview": PICTURE}


def set_files(folder: Path) -> list[Path]:
    """The files of a set in ``folder/data`` (or in the folder itself), by name."""
    for place in (folder / "data", folder):
        if files := [file for file in place.glob("*.parquet") if FILE.fullmatch(file.name)]:
            return sorted(files)
    return []


def notes_of(dataset: Dataset) -> str:
    """What the footers say of a set.

    Raises:
        TypeError: If a parameter of the set is no plain value.
    """
    notes = {
        "format": _FORMAT,
        "version": __version__,
        "info": dataclasses.asdict(dataset.info),
        "parameters": dict(dataset.parameters),
        "batch_size": dataset.batch_size,
        "samples": {theirs: len(getattr(dataset, name)) for name, theirs in SPLITS.items()},
    }
    try:
        return json.dumps(notes, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(
            f"{dataset.info.name}: its parameters cannot be written ({error}); expected numbers, texts, None, lists "
            "and dicts of such."
        ) from error


def read_notes(file: Path) -> dict[str, Any]:
    """What the footer of a file says.

    Raises:
        DataFileError: If it is damaged, or none of ours.
    """
    with naming(file):
        raw = (pq.read_schema(file).metadata or {}).get(b"xaibench")
        notes = None if raw is None else json.loads(raw)
    if not isinstance(notes, dict) or not notes.keys() >= _KEYS:
        raise DataFileError(f"{file} was not written by xaibench: its footer does not say which set it is of.")
    if notes["format"] != _FORMAT:
        raise DataFileError(
            f"{file} is in the format {notes['format']!r} of xaibench {notes.get('version')}; this is xaibench "
            f"{__version__}, which reads the format {_FORMAT}. Install a newer version."
        )
    return notes


def read_info(file: Path, notes: Mapping[str, Any]) -> DatasetInfo:
    """What is fixed about the set; what a newer version may have added is left out.

    Raises:
        DataFileError: If it is not said.
    """
    known = {field.name for field in dataclasses.fields(DatasetInfo)}
    try:
        info = DatasetInfo(**{key: frozen(value) for key, value in notes["info"].items() if key in known})
        _, _, _ = sides = info.image_shape
        if not all(isinstance(side, int) and side > 0 for side in sides):
            raise ValueError(f"image_shape={sides}: expected (C, H, W)")
    except (AttributeError, TypeError, ValueError) as error:
        raise DataFileError(f"{file} does not say which set it is of ({error}).") from error
    return info


def frozen(value: Any) -> Any:
    """Lists as tuples: JSON knows no tuples, and the parameters of our sets hold no lists."""
    if isinstance(value, list):
        return tuple(frozen(one) for one in value)
    return {key: frozen(one) for key, one in value.items()} if isinstance(value, dict) else value
