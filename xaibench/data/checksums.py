"""Checksums of generated data sets, by which a machine shows that it has the published data.

A benchmark keeps the checksums of its data sets in ``checksums.txt`` of its folder, one line per set and seed, with all
other parameters at their defaults.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np

from xaibench.data.base import Dataset


def checksum(dataset: Dataset) -> str:
    """Return the SHA-256 of images, masks and targets of all splits, as hexadecimal digits.

    Args:
        dataset: A data set that is in memory.

    Example:
        >>> import torch
        >>> from xaibench.core.part_info import DatasetInfo
        >>> from xaibench.data import Split
        >>> split = Split(torch.zeros(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool), torch.tensor([0, 1]))
        >>> checksum(Dataset(split, split, split, DatasetInfo("two", ("a", "b"), (1, 4, 4))))[:8]
        '37b41a80'
    """
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.val, dataset.test):
        for tensor, kind in ((split.images, "<f4"), (split.masks, "|b1"), (split.targets, "<i8")):
            values = tensor.numpy().astype(kind, copy=False)
            digest.update(f"{kind} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()


def check_published(part: Callable[..., Dataset], dataset: Dataset) -> str:
    """Compare a data set with its published checksum.

    Args:
        part: The data set as it is registered.
        dataset: What it returned.

    Returns:
        A warning that names the set if the checksums differ; empty if they are equal or none is published.
    """
    published = published_checksum(part, dataset.parameters)
    if published is None or (found := checksum(dataset)) == published:
        return ""
    return (
        f"{dataset.info.name} with seed {dataset.parameters['seed']} differs from the published data set: its SHA-256 "
        f"is {found}, expected {published}. Do not compare its scores with those of others. Please report the machine."
    )


def published_checksum(part: Callable[..., Dataset], parameters: Mapping[str, Any]) -> str | None:
    """Return the published checksum of a data set with these parameters, or None if there is none."""
    find = getattr(part, "published_checksum", None)
    return None if find is None else find(parameters)


@functools.cache
def read_checksums(package: str) -> Mapping[tuple[str, int], str]:
    """Return the checksums by name and seed that are in ``checksums.txt`` of a package."""
    lines = resources.files(package).joinpath("checksums.txt").read_text(encoding="ascii").splitlines()
    return {(name, int(seed)): digest for digest, name, seed in map(str.split, lines)}
