"""Samples whose files cannot be read: they are left out by name, up to a share at which something else is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from xaibench.core.messages import listed
from xaibench.data.base import Dataset
from xaibench.data.disk.file_readers import DataFileError, MissingDataError

_T = TypeVar("_T")
#: Largest share of samples that are left out.
_MOST_DAMAGED = 0.05
#: Number of samples whose reason is given; of the others, the name.
_SHOWN = 5


def read_undamaged(read: Callable[[int], _T], numbers: Iterable[int], damaged: dict[int, str]) -> Iterator[_T]:
    """Read samples one by one.

    Args:
        read: Reads the sample of a number.
        numbers: The numbers of the samples.
        damaged: Gets the reason of each sample that cannot be read, by its number.

    Yields:
        The samples that can be read.
    """
    for number in numbers:
        try:
            yield read(number)
        except (DataFileError, MissingDataError) as error:
            damaged[number] = str(error)


def describe_damaged(damaged: Mapping[str, str], count: int) -> str:
    """Say which images are left out; empty if none is.

    Args:
        damaged: The reason of each image that cannot be read, by its name.
        count: Number of images, with the damaged ones.

    Raises:
        DataFileError: If more than 5 % are damaged.
    """
    if not damaged:
        return ""
    names, reasons = list(damaged), list(damaged.values())
    found = f"{len(damaged)} of {count} images cannot be read. {' '.join(reasons[:_SHOWN])}"
    if len(damaged) > _MOST_DAMAGED * count:
        raise DataFileError(f"{found} More than {_MOST_DAMAGED:.0%} are an error; repair or remove them.")
    others = f" Nor can {listed(names[_SHOWN:])}." if names[_SHOWN:] else ""
    return f"{found}{others} They are left out."


def leave_out_damaged(dataset: Dataset) -> tuple[Dataset, dict[str, list[int]], str]:
    """Read every sample of a data set on disk once, and leave out the few that cannot be read.

    Returns:
        The data set without them, their positions in each split, and a sentence about them (empty if there are none).

    Raises:
        DataFileError: If more than 5 % are damaged.
    """
    positions, reasons, count = {}, dict[str, str](), 0
    for name in ("train", "val", "test"):
        split, damaged = getattr(dataset, name), dict[int, str]()
        for _ in read_undamaged(split.__getitem__, range(len(split)), damaged):
            pass
        reasons |= {split.ids[position]: reason for position, reason in damaged.items()}
        positions[name] = list(damaged)
        count += len(split)
    return leave_out(dataset, positions), positions, describe_damaged(reasons, count)


def leave_out(dataset: Dataset, positions: Mapping[str, Sequence[int]]) -> Dataset:
    """Return a data set on disk without the samples at some positions of its splits, such as ``{"test": [3]}``."""
    splits: dict[str, Any] = {name: getattr(dataset, name).without(each) for name, each in positions.items()}
    return dataclasses.replace(dataset, **splits)
