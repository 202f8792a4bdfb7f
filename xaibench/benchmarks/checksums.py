"""Published checksums of generated data sets, by which a machine shows that it has the published data.

A benchmark keeps them in ``checksums.txt`` of its folder: a line per data set, with its checksum
(:func:`xaibench.benchmarks.checksums.checksum`), its name and its parameters as JSON.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from xaibench.benchmarks import benchmark_files
from xaibench.data.base import Dataset


def check_published(dataset: Dataset) -> str:
    """Compare a data set with its published checksum.

    Args:
        dataset: The data set.

    Returns:
        A warning that names the set if the checksums differ; empty if they are equal or none is published.
    """
    published = published_checksum(dataset)
    if published is None or (actual := checksum(dataset)) == published:
        return ""
    return (
        f"{dataset.info.name} with seed {dataset.parameters['seed']} differs from the published data set: its SHA-256 "
        f"is {actual}, expected {published}. Do not compare its scores with those of others. Please report the machine."
    )


def published_checksum(dataset: Dataset) -> str | None:
    """Return the published checksum of a data set of this name and with these parameters, or None."""
    return published_checksums().get((dataset.info.name, parameters_as_json(dataset.parameters)))


def parameters_as_json(parameters: Mapping[str, Any]) -> str:
    """Return the parameters of a data set as they are written in ``checksums.txt``."""
    return json.dumps(parameters, sort_keys=True, default=str)


@functools.cache
def published_checksums() -> Mapping[tuple[str, str], str]:
    """Return the published checksums by name and parameters."""
    lines = [line for file in benchmark_files("checksums.txt") for line in file.read_text("ascii").splitlines()]
    return {(name, parameters): digest for digest, name, parameters in (line.split(maxsplit=2) for line in lines)}


def checksum(dataset: Dataset) -> str:
    """Return the SHA-256 of images, masks and targets of all splits, as hexadecimal digits.

    Args:
        dataset: A data set that is in memory.

    Example:
        >>> import torch
        >>> from xaibench.registry.info import DatasetInfo
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
