"""Published checksums of generated data sets, by which a machine shows that it has the published data.

A benchmark keeps them in ``checksums.txt`` of its folder: a line per data set, with its checksum
(:func:`xaibench.data.checksums.checksum`), its name and its parameters as JSON.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from xaibench.benchmarks.folders import benchmark_files
from xaibench.data.base import Dataset
from xaibench.data.checksums import checksum


def check_published(dataset: Dataset) -> str:
    """Compare a data set with its published checksum.

    Args:
        dataset: The data set.

    Returns:
        A warning that names the set if the checksums differ; empty if they are equal or none is published.
    """
    published = published_checksum(dataset)
    if published is None or (found := checksum(dataset)) == published:
        return ""
    return (
        f"{dataset.info.name} with seed {dataset.parameters['seed']} differs from the published data set: its SHA-256 "
        f"is {found}, expected {published}. Do not compare its scores with those of others. Please report the machine."
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
