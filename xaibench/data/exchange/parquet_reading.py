"""Reading data sets from Parquet files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import pyarrow.parquet as pq
import torch
from torch import Tensor

from xaibench.component.info import DatasetInfo
from xaibench.core.checks import check_names
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.exchange.hub_parquet import list_parquet, open_files
from xaibench.data.exchange.parquet_columns import PICTURE, decode_pictures, from_eight_bit, unnest
from xaibench.data.exchange.parquet_format import (
    FILE_PATTERN,
    HUB_SPLITS,
    columns,
    is_own,
    list_set_files,
    lists_to_tuples,
    read_info,
    read_metadata,
)
from xaibench.data.exchange.picture_source import TableOptions, make_dataset

_ROWS = 1000


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
    files = _complete(Path(folder))
    notes = read_metadata(files[0])
    info = read_info(files[0], notes)
    for file in files:
        if read_metadata(file) != notes:
            raise DataFileError(f"{file} belongs to another data set than {files[0].name}; get the folder again.")
    splits = {}
    for name, theirs in HUB_SPLITS.items():
        split = _read_split([file for file in files if file.name.startswith(f"{theirs}-")], info)
        if len(split) != notes["samples"].get(theirs):
            raise DataFileError(
                f"{files[0].parent} has {len(split)} samples of {theirs}, expected {notes['samples'].get(theirs)}; "
                "get the folder again."
            )
        splits[name] = split
    return Dataset(
        splits["train"],
        splits["val"],
        splits["test"],
        info=info,
        parameters=lists_to_tuples(notes["parameters"]),
        batch_size=int(notes["batch_size"]),
    )


def read_split(file: Path) -> Dataset:
    """Read one file of :func:`~xaibench.data.write_parquet` as a data set whose test split has all of its samples.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is damaged, or was not written by xaibench.
    """
    info = read_info(file, read_metadata(file))
    return Dataset(_read_split([], info), _read_split([], info), _read_split([file], info), info)


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
        file = _complete(self.folder)[0]
        return read_info(file, read_metadata(file))

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
        own = dataset.parameters.get("seed")
        if seed not in (0, own):
            raise ValueError(f"seed={seed}: {self!r} only has the samples of seed {own}; leave seed out.")
        return dataset

    def __repr__(self) -> str:
        return f"parquet:{self._directory}"

    def _foreign_files(self) -> list[Path]:
        """Return the Parquet files of the folder if xaibench did not write them."""
        files = list_parquet(self.folder)
        return [] if not files or is_own(files[0]) else files


def _complete(folder: Path) -> list[Path]:
    """Return the files of the data set in a folder, after checking that none is missing."""
    files = list_set_files(folder)
    if not files:
        raise MissingDataError(
            f"{folder} has no data set written by xaibench: expected files such as data/train-00000-of-00001.parquet. "
            "Load your own images and masks with folder:DIR."
        )
    there = {file.name for file in files}
    for theirs in HUB_SPLITS.values():
        counts = {match[3] for name in there if (match := FILE_PATTERN.fullmatch(name)) and match[1] == theirs}
        if len(counts) > 1:
            raise DataFileError(
                f"{files[0].parent} has {theirs} twice, in {' and in '.join(sorted(counts))} files; remove one."
            )
        count = int(counts.pop()) if counts else 1
        for number in range(count):
            name = f"{theirs}-{number:05}-of-{count:05}.parquet"
            if name not in there:
                raise MissingDataError(f"{files[0].parent / name} is missing; get the folder again.")
    return files


def _read_split(files: list[Path], info: DatasetInfo) -> Split:
    parts = [part for file in files for part in _read_file(file, info)]
    if not parts:
        empty = torch.empty((0, *info.image_shape[1:]), dtype=torch.bool)
        return Split(torch.empty((0, *info.image_shape)), empty, torch.empty(0, dtype=torch.int64))
    images, masks, targets = (list(column) for column in zip(*parts, strict=True))
    parts.clear()  # so that concatenation holds at most two copies of each value
    return Split(torch.cat(images), torch.cat(masks), torch.cat(targets))


def _read_file(file: Path, info: DatasetInfo) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the samples of a file in batches."""
    channels, *sides = info.image_shape
    width, height = sides[-1], math.prod(sides[:-1])  # of pictures, in which slices are below one another
    with wrap_file_errors(file), pq.ParquetFile(file, page_checksum_verification=True) as opened:
        names = ["image", "mask", "target"]
        types = {name: opened.schema_arrow.field(name).type for name in names if name in opened.schema_arrow.names}
        if not any(
            types == {name: columns(layout, 1 + len(sides))[name] for name in names} for layout in ("png", "float32")
        ):
            raise DataFileError(f"{file} has other columns than xaibench writes; get the file again.")
        for batch in opened.iter_batches(_ROWS, columns=names):
            if types["image"] == PICTURE:
                images = from_eight_bit(decode_pictures(batch.column("image"), (height, width, channels)))
            else:
                images = torch.tensor(unnest(batch.column("image"), info.image_shape))
            masks = torch.from_numpy(decode_pictures(batch.column("mask"), (height, width, 1))[..., 0] != 0)
            masks = masks.reshape(-1, *sides)
            targets = torch.tensor(unnest(batch.column("target"), ()))
            if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(info.classes):
                found, last = sorted({int(targets.min()), int(targets.max())}), len(info.classes) - 1
                raise DataFileError(f"{file} has targets such as {found}; expected 0 to {last}.")
            yield images, masks, targets
