"""Parquet files with a column of images that xaibench did not write, such as files of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xaibench.core.messages import listed
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.exchange.picture_source import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    MASK_COLUMNS,
    PictureSource,
    choose_column,
    encode_labels,
)

#: Beginnings of file and folder names, and the split that they mean.
_SPLITS = {"train": "train", "val": "val", "dev": "val", "test": "test"}


def list_parquet(path: Path) -> list[Path]:
    """Return the sorted Parquet files of a folder, in ``data`` or at any depth; a Parquet file itself; or nothing."""
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    for place in (path / "data", path):
        if files := sorted(place.glob("*.parquet")):
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
    """Open Parquet files as one table.

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
        ValueError: If a given column does not exist.
    """
    tables = []
    for file in files:
        with wrap_file_errors(file):
            tables.append(pq.read_table(file, memory_map=True))
    folder = str(files[0].parent if len(files) > 1 else files[0])
    try:
        table = pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise DataFileError(f"{folder}: the files have different columns ({error}).") from error
    if not len(table):
        raise MissingDataError(f"{folder} has no rows.")
    there = table.column_names
    images = choose_column(folder, image, IMAGE_COLUMNS, there, "image")
    if images is None:
        raise DataFileError(f"{folder} has no column of images among {listed(there)}; name it as image=.")
    masks = choose_column(folder, mask, MASK_COLUMNS, there, "mask")
    labels = choose_column(folder, label, LABEL_COLUMNS, there, "label")
    codes, classes = encode_labels(
        None if labels is None else table[labels].to_pylist(),
        None if labels is None else _class_names(table.schema, labels),
        len(table),
        f"{folder}, {labels}",
    )
    pictures = table.select([images] if masks is None else [images, masks])
    has_mask = np.zeros(len(table), bool) if masks is None else np.asarray(table[masks].is_valid())

    def row(number: int) -> Mapping[str, Any]:
        values: Mapping[str, Any] = pictures.slice(number, 1).to_pylist()[0]
        return values

    return PictureSource(
        folder,
        row,
        codes,
        classes,
        image=images,
        mask=masks,
        has_mask=has_mask,
        official=_official([_split_of(file) for file in files], [len(one) for one in tables]),
    )


def _official(splits: Sequence[str | None], counts: Sequence[int]) -> dict[str, np.ndarray[Any, Any]] | None:
    """Return the rows of each split, if the names of all files have one, and there are a training and another one."""
    names = np.repeat(np.array([name or "" for name in splits]), counts)
    if None in splits or "train" not in splits or len(set(splits)) < 2:
        return None
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}


def _split_of(file: Path) -> str | None:
    for name in (file.name, file.parent.name):
        for start, split in _SPLITS.items():
            if name.casefold().startswith(start):
                return split
    return None


def _class_names(schema: pa.Schema, column: str) -> Sequence[str] | None:
    """Return the class names that the ``datasets`` library has written into the schema."""
    try:
        notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names: Sequence[str] = notes["info"]["features"][column]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return names
