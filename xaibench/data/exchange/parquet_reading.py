"""From Parquet files to a set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch import Tensor

from xaibench.core.part_info import DatasetInfo
from xaibench.data.dataset import Dataset, Split
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, naming
from xaibench.data.exchange.parquet_columns import PICTURE, from_eight_bit, unnested, unpictured
from xaibench.data.exchange.parquet_format import FILE, SPLITS, columns, frozen, read_info, read_notes, set_files

_ROWS = 1000


def read_parquet(folder: str | os.PathLike[str]) -> Dataset:
    """Read a set that :func:`~xaibench.data.write_parquet` wrote, into memory.

    Args:
        folder: The one that holds ``data/``, or the Parquet files themselves.

    Returns:
        The set as it was written, to the bit; its splits are in memory.

    Raises:
        MissingDataError: If there is no such set, or one of its files is missing.
        DataFileError: If a file is damaged, of another set than its neighbours, or none of ours.
    """
    files = _complete(Path(folder))
    notes = read_notes(files[0])
    info = read_info(files[0], notes)
    for file in files:
        if read_notes(file) != notes:
            raise DataFileError(f"{file} is of another set than {files[0].name} beside it; get the folder anew.")
    splits = {}
    for name, theirs in SPLITS.items():
        split = _read_split([file for file in files if file.name.startswith(f"{theirs}-")], info)
        if len(split) != notes["samples"].get(theirs):
            raise DataFileError(
                f"{files[0].parent} holds {len(split)} samples of {theirs}, expected {notes['samples'].get(theirs)}; "
                "get the folder anew."
            )
        splits[name] = split
    return Dataset(
        splits["train"],
        splits["val"],
        splits["test"],
        info=info,
        parameters=frozen(notes["parameters"]),
        batch_size=int(notes["batch_size"]),
    )


class ParquetSet:
    """A set in a folder: ``ParquetSet("~/mine")``, by name ``"parquet:~/mine"``.

    Args:
        directory: A folder that :func:`~xaibench.data.write_parquet` wrote; ``~`` is resolved.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory).expanduser()

    @cached_property
    def folder(self) -> Path:
        """Where the files lie."""
        return self._directory

    @cached_property
    def info(self) -> DatasetInfo:
        """What the set was made with."""
        file = _complete(self.folder)[0]
        return read_info(file, read_notes(file))

    def __call__(self, *, seed: int = 0) -> Dataset:
        """Read the set into memory.

        Args:
            seed: 0, or the seed that the set was made with: the samples are those in the files.

        Raises:
            ValueError: For another seed.
            MissingDataError: If there is no such set, or one of its files is missing.
            DataFileError: If a file is damaged or none of ours.
        """
        dataset = read_parquet(self.folder)
        own = dataset.parameters.get("seed")
        if seed not in (0, own):
            raise ValueError(f"seed={seed}: {self!r} holds the samples of seed {own} and no others; leave seed out.")
        return dataset

    def __repr__(self) -> str:
        return f"parquet:{self._directory}"


def _complete(folder: Path) -> list[Path]:
    """The files of the set in a folder, none of them missing."""
    files = set_files(folder)
    if not files:
        raise MissingDataError(
            f"{folder} holds no data set: expected data/train-00000-of-00001.parquet and its like, as xaibench writes "
            "them. Images and masks of your own are loaded with folder:DIR."
        )
    there = {file.name for file in files}
    for theirs in SPLITS.values():
        counts = {match[3] for name in there if (match := FILE.fullmatch(name)) and match[1] == theirs}
        if len(counts) > 1:
            raise DataFileError(
                f"{files[0].parent} holds {theirs} twice, in {' and in '.join(sorted(counts))} files; remove one."
            )
        count = int(counts.pop()) if counts else 1
        for number in range(count):
            name = f"{theirs}-{number:05}-of-{count:05}.parquet"
            if name not in there:
                raise MissingDataError(f"{files[0].parent / name} is missing; get the folder anew.")
    return files


def _read_split(files: list[Path], info: DatasetInfo) -> Split:
    channels, height, width = info.image_shape
    parts = [part for file in files for part in _read_file(file, info)]
    if not parts:
        empty = torch.empty((0, height, width), dtype=torch.bool)
        return Split(torch.empty((0, channels, height, width)), empty, torch.empty(0, dtype=torch.int64))
    images, masks, targets = (list(column) for column in zip(*parts, strict=True))
    parts.clear()  # so that joining holds each value twice at most, not three times
    return Split(torch.cat(images), torch.cat(masks), torch.cat(targets))


def _read_file(file: Path, info: DatasetInfo) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The samples of a file, a part at a time."""
    channels, height, width = info.image_shape
    with naming(file), pq.ParquetFile(file, page_checksum_verification=True) as opened:
        names = ["image", "mask", "target"]
        types = {name: opened.schema_arrow.field(name).type for name in names if name in opened.schema_arrow.names}
        if not any(types == {name: columns(layout)[name] for name in names} for layout in ("png", "float32")):
            raise DataFileError(f"{file} has other columns than xaibench writes; get the file anew.")
        for batch in opened.iter_batches(_ROWS, columns=names):
            if types["image"] == PICTURE:
                images = from_eight_bit(unpictured(batch.column("image"), (height, width, channels)))
            else:
                images = torch.tensor(unnested(batch.column("image"), info.image_shape))
            masks = torch.from_numpy(unpictured(batch.column("mask"), (height, width, 1))[..., 0] != 0)
            targets = torch.tensor(unnested(batch.column("target"), ()))
            if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(info.classes):
                found, last = sorted({int(targets.min()), int(targets.max())}), len(info.classes) - 1
                raise DataFileError(f"{file} has targets such as {found}; expected 0 to {last}.")
            yield images, masks, targets
