"""Samples whose files cannot be read: they are left out by name, up to a share at which something else is wrong."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from xaibench.core.messages import listed
from xaibench.data.base import Dataset
from xaibench.data.disk.file_readers import DataFileError, MissingDataError

_LOGGER = logging.getLogger("xaibench")

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


def describe_damaged(damaged: Mapping[str, str], count: int) -> tuple[str, str]:
    """Say which images are left out.

    Args:
        damaged: The reason of each image that cannot be read, by its name.
        count: Number of images, with the damaged ones.

    Returns:
        A sentence without names, which may be published with results, and one with names and reasons; empty if no image
        is damaged.

    Raises:
        DataFileError: If more than 5 % are damaged.
    """
    if not damaged:
        return "", ""
    names, reasons = list(damaged), list(damaged.values())
    found = f"{len(damaged)} of {count} images cannot be read"
    if len(damaged) > _MOST_DAMAGED * count:
        raise DataFileError(
            f"{found}. {' '.join(reasons[:_SHOWN])} More than {_MOST_DAMAGED:.0%} are an error; repair or remove them."
        )
    others = f" Nor can {listed(names[_SHOWN:])}." if names[_SHOWN:] else ""
    return f"{found} and are left out.", f"{found} and are left out. {' '.join(reasons[:_SHOWN])}{others}"


class Readable(NamedTuple):
    """A data set on disk without the samples that cannot be read.

    Attributes:
        dataset: The data set.
        positions: Positions of the others in each split.
        reasons: Why they cannot be read, by their names.
        note: A sentence on how many they are; empty if there are none.
    """

    dataset: Dataset
    positions: dict[str, list[int]]
    reasons: dict[str, str]
    note: str


def leave_out_damaged(dataset: Dataset) -> Readable:
    """Read every sample of a data set on disk once, and leave out the few that cannot be read, with a line in the log.

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
    note, named = describe_damaged(reasons, count)
    if named:
        _LOGGER.warning("%s: %s", dataset.info.name, named)
    return Readable(leave_out(dataset, positions), positions, reasons, note)


def leave_out(dataset: Dataset, positions: Mapping[str, Sequence[int]]) -> Dataset:
    """Return a data set on disk without the samples at some positions of its splits, such as ``{"test": [3]}``."""
    splits: dict[str, Any] = {name: getattr(dataset, name).without(each) for name, each in positions.items()}
    return dataclasses.replace(dataset, **splits)
