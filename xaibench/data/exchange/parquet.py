"""Data sets as Parquet files, bit-identical when read back."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from xaibench._version import __version__
from xaibench.core.checks import check_names
from xaibench.core.files import atomic_file
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, check_size, wrap_file_errors
from xaibench.data.exchange.picture_source import TableOptions, check_columns, list_parquet, make_dataset, open_files
from xaibench.registry.info import DatasetInfo

_FORMAT = 2
_KEYS = {"format", "info", "parameters", "batch_size", "samples"}
#: Name of each split to its name in the ``datasets`` library.
_SPLITS = {"train": "train", "val": "validation", "test": "test"}
_GROUP_BYTES = 32_000_000


def write_parquet(dataset: Dataset, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write a data set as Parquet files; :func:`~xaibench.data.read_parquet` returns it bit-identical.

    Args:
        dataset: The data set. Splits on disk are read in batches; metadata other than image, mask and target (file
            names, patients) are not written.
        folder: The folder in which ``data/`` is created. Files are written atomically.

    Returns:
        The files.

    Raises:
        TypeError: If a parameter of the data set cannot be written as JSON.
        OSError: If the folder is not writable.

    Example:
        >>> import tempfile
        >>> from xaibench.data import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = write_parquet(load("xai-tris/xor-corr-8x8", n_samples=100), folder)
        ...     load(f"parquet:{folder}")
        Dataset('xai-tris/xor-corr-8x8', train=80, val=10, test=10, seed=0, alpha=0.15, n_samples=100, \
split=(0.8, 0.1, 0.1))
        >>> [file.name for file in files]
        ['train.parquet', 'validation.parquet', 'test.parquet']
    """
    directory = Path(folder) / "data"
    directory.mkdir(parents=True, exist_ok=True)
    shape = dataset.info.image_shape
    features = {"target": {"names": dataset.classes, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}}), "xaibench": _describe(dataset)}
    schema = pa.schema(list(_columns(shape).items()), metadata=metadata)
    rows = max(1, min(1000, _GROUP_BYTES // (4 * math.prod(shape))))
    files = []
    for name, theirs in _SPLITS.items():
        split: Split = getattr(dataset, name)
        files.append(directory / f"{theirs}.parquet")
        with (
            atomic_file(files[-1]) as stream,
            pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for start in range(0, len(split), rows):
                images, masks, targets = split[start : min(start + rows, len(split))]
                columns = [nest(images.numpy()), nest(masks.numpy()), pa.array(targets.numpy())]
                writer.write_table(pa.table(columns, schema=schema))
    return tuple(files)


def read_parquet(folder: str | os.PathLike[str]) -> Dataset:
    """Read a data set of :func:`~xaibench.data.write_parquet` into memory.

    Args:
        folder: The folder that contains ``data/`` or the Parquet files themselves.

    Returns:
        The data set, bit-identical to the one written, with its splits in memory.

    Raises:
        MissingDataError: If the data set or one of its files is missing.
        DataFileError: If a file is damaged, belongs to another data set, or was not written by xaibench.
    """
    files = _list_files(Path(folder))
    notes = _read_notes(files["train"])
    info = _read_info(files["train"], notes)
    splits: dict[str, Any] = {}
    for name, file in files.items():
        if _read_notes(file) != notes:
            raise DataFileError(f"{file} belongs to another data set than {files['train']}; get the folder again.")
        splits[name] = _read_split(file, info)
        if len(splits[name]) != notes["samples"][name]:
            raise DataFileError(
                f"{file} has {len(splits[name])} samples, expected {notes['samples'][name]}; get the folder again."
            )
    return Dataset(
        **splits, info=info, parameters=_lists_to_tuples(notes["parameters"]), batch_size=int(notes["batch_size"])
    )


def read_file(file: Path) -> Dataset:
    """Read one file of :func:`~xaibench.data.write_parquet` as a data set whose test split has all of its samples.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is damaged, or was not written by xaibench.
    """
    info = _read_info(file, _read_notes(file))
    split = _read_split(file, info)
    empty = Split(*split[:0])
    return Dataset(empty, empty, split, info)


class ParquetSet:
    """A data set in Parquet files: ``ParquetSet("~/mine")``, by name ``"parquet:~/mine"``.

    The folder was written by :func:`~xaibench.data.write_parquet`, or contains any Parquet files with a column of
    images, as the ``datasets`` library and the Hub have them; columns of masks and classes are optional. The splits are
    those in the names of the files (``train-00000-of-00001.parquet``), if there is more than one.

    Args:
        directory: The folder that contains ``data/`` or the files themselves; ``~`` is expanded.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory).expanduser()

    @cached_property
    def folder(self) -> Path:
        """Folder of the files."""
        return self._directory

    @cached_property
    def info(self) -> DatasetInfo:
        """Info record of the data set."""
        if files := self._foreign_files():
            return make_dataset(open_files(files), repr(self)).info
        file = _list_files(self.folder)["train"]
        return _read_info(file, _read_notes(file))

    def __call__(self, *, seed: int = 0, **options: Unpack[TableOptions]) -> Dataset:
        """Read the data set: into memory if xaibench wrote it, otherwise each image on access.

        Args:
            seed: 0, or the seed of the samples in the files. For files of others, the seed of the split.
            **options: For files of others, as for :func:`~xaibench.data.from_datasets`: ``image``, ``mask``, ``label``,
                ``size``, ``channels``, ``normalize``, ``splits`` and ``include_unannotated``.

        Raises:
            ValueError: If the files have the samples of another seed, or an option is out of range.
            TypeError: If an option is unknown, or xaibench wrote the files.
            MissingDataError: If the data set or one of its files is missing.
            DataFileError: If a file is damaged.
        """
        files = self._foreign_files()
        check_names(repr(self), options, {"seed": int, **(TableOptions.__annotations__ if files else {})})
        if files:
            rest: Any = dict(options)
            source = open_files(files, **{name: rest.pop(name, None) for name in ("image", "mask", "label")})
            return make_dataset(source, repr(self), seed=seed, **rest)
        dataset = read_parquet(self.folder)
        stored = dataset.parameters.get("seed")
        if seed not in (0, stored):
            raise ValueError(f"seed={seed}: {self!r} only has the samples of seed {stored}; leave seed out.")
        return dataset

    def __repr__(self) -> str:
        return f"parquet:{self._directory}"

    def _foreign_files(self) -> list[Path]:
        """Return the Parquet files of the folder if xaibench did not write them."""
        files = list_parquet(self.folder)
        return [] if not files or is_own(files[0]) else files


def is_own(file: Path) -> bool:
    """Return whether a Parquet file was written by xaibench.

    Raises:
        DataFileError: If the file is damaged.
    """
    with wrap_file_errors(file):
        return b"xaibench" in (pq.read_schema(file).metadata or {})


def nest(values: NDArray[Any]) -> pa.Array:
    """Return ``[N, A, B, ...]`` as nested lists, the storage of ``datasets.Array2D`` and the like, without copying.

    Example:
        >>> nest(np.arange(6.0).reshape(1, 2, 3)).to_pylist()
        [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    """
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    count = values.size
    for extent in reversed(values.shape[1:]):
        count //= extent
        column = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * extent), column)
    return column


def _unnest(column: pa.Array, shape: Sequence[int]) -> NDArray[Any]:
    """Return nested lists as an array ``[N, *shape]``; ``ValueError`` if they have another shape."""
    count, complete = len(column), not column.null_count
    for extent in shape:
        complete = complete and bool((column.value_lengths().to_numpy(zero_copy_only=False) == extent).all())
        column = column.flatten()
        complete = complete and not column.null_count
    if not complete:
        raise ValueError(f"expected arrays of shape {list(shape)} without missing values")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(count, *shape)


def _columns(shape: Sequence[int]) -> dict[str, pa.DataType]:
    """Return the columns and their types, for images of a shape."""
    image, mask = pa.float32(), pa.bool_()
    for _ in shape:
        image = pa.list_(image)
    for _ in shape[1:]:
        mask = pa.list_(mask)
    return {"image": image, "mask": mask, "target": pa.int64()}


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split, in ``folder/data`` or in the folder itself."""
    directory = folder / "data" if (folder / "data").is_dir() else folder
    files = {name: directory / f"{theirs}.parquet" for name, theirs in _SPLITS.items()}
    if missing := [str(file) for file in files.values() if not file.exists()]:
        raise MissingDataError(
            f"{folder} has no complete data set written by xaibench: {' and '.join(missing)} missing. Load your own "
            "images and masks with folder:DIR."
        )
    return files


def _describe(dataset: Dataset) -> str:
    notes = {
        "format": _FORMAT,
        "version": __version__,
        "info": dataclasses.asdict(dataset.info),
        "parameters": dict(dataset.parameters),
        "batch_size": dataset.batch_size,
        "samples": {name: len(getattr(dataset, name)) for name in _SPLITS},
    }
    try:
        return json.dumps(notes, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(
            f"{dataset.info.name}: its parameters cannot be written ({error}); expected numbers, strings, None, and "
            "lists and dicts of them."
        ) from error


def _read_notes(file: Path) -> dict[str, Any]:
    with wrap_file_errors(file):
        notes = json.loads((pq.read_schema(file).metadata or {}).get(b"xaibench", b"{}"))
    if not isinstance(notes, dict) or notes.get("format") != _FORMAT or not notes.keys() >= _KEYS:
        raise DataFileError(
            f"{file} is not a data set in format {_FORMAT} of xaibench: its footer has other metadata. Write it with "
            "xaibench.data.write_parquet of this version, or load it with a newer version."
        )
    return notes


def _read_info(file: Path, notes: dict[str, Any]) -> DatasetInfo:
    """Return the info record, without fields that a newer version may have added."""
    known = {field.name for field in dataclasses.fields(DatasetInfo)}
    try:
        info = DatasetInfo(**{key: _lists_to_tuples(value) for key, value in notes["info"].items() if key in known})
        sides = info.image_shape
        if len(sides) not in (3, 4) or not all(isinstance(side, int) and side > 0 for side in sides):
            raise ValueError(f"image_shape={sides}: expected (C, H, W) or (C, D, H, W)")
    except (AttributeError, TypeError, ValueError) as error:
        raise DataFileError(f"{file} has invalid metadata of its data set ({error}).") from error
    return info


def _lists_to_tuples(value: Any) -> Any:
    """Convert lists to tuples: JSON has no tuples, and parameters of data sets have no lists."""
    if isinstance(value, list):
        return tuple(map(_lists_to_tuples, value))
    return {key: _lists_to_tuples(one) for key, one in value.items()} if isinstance(value, dict) else value


def _read_split(file: Path, info: DatasetInfo) -> Split:
    shape, columns = info.image_shape, _columns(info.image_shape)
    with wrap_file_errors(file), pq.ParquetFile(file, page_checksum_verification=True) as opened:
        schema, count = opened.schema_arrow, opened.metadata.num_rows
        if any(name not in schema.names or schema.field(name).type != kind for name, kind in columns.items()):
            raise DataFileError(f"{file} has other columns than xaibench writes; get the file again.")
        rows = check_columns(opened, list(columns))
        check_size(4 * count * math.prod(shape), f"{count:,} images {list(shape)}")
        images = torch.empty((count, *shape))
        masks = torch.empty((count, *shape[1:]), dtype=torch.bool)
        targets = torch.empty(count, dtype=torch.int64)
        stop = 0
        for batch in opened.iter_batches(rows, columns=list(columns)):
            start, stop = stop, stop + len(batch)
            images[start:stop] = torch.tensor(_unnest(batch.column("image"), shape))
            masks[start:stop] = torch.tensor(_unnest(batch.column("mask"), shape[1:]))
            targets[start:stop] = torch.tensor(_unnest(batch.column("target"), ()))
    if count and not 0 <= int(targets.min()) <= int(targets.max()) < len(info.classes):
        raise DataFileError(
            f"{file} has targets from {int(targets.min())} to {int(targets.max())}; expected 0 to "
            f"{len(info.classes) - 1}."
        )
    return Split(images, masks, targets)
