"""Edit the suite of a result (TOML): other explainers, other seeds, its version."""

from __future__ import annotations

import hashlib
import json
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from xaibench.core.messages import listed
from xaibench.leaderboard.manifest import ResultError
from xaibench.runfolder.descriptions import SUITE
from xaibench.runner.plan.plan import Plan, make_plan
from xaibench.runner.published_scores import identity
from xaibench.runner.suites.files import load_suite
from xaibench.runner.suites.toml_writing import to_toml

# Data sets that are generated from a seed.
_GENERATED_PREFIXES = ("xai-tris/", "certified:")
# Schemes of data sets that everyone can get; other schemes refer to a local folder.
_PUBLIC_SCHEMES = {"certified", "hf"}


def is_generated(dataset: str) -> bool:
    """Return whether every seed gives a new data set of this name.

    Example:
        >>> is_generated("xai-tris/lin-white-8x8"), is_generated("certified:xor"), is_generated("pascal")
        (True, True, False)
    """
    return dataset.startswith(_GENERATED_PREFIXES)


def local_datasets(text: str) -> list[str]:
    """Return the data sets of a suite that exist only in a folder of this machine.

    Args:
        text: The suite as TOML.

    Returns:
        Their names, such as ``photographs:$XAIBENCH_DATA``.
    """
    names = dict.fromkeys(name for cell in _read_tables(text)["cells"] for name in cell["datasets"])
    return [name for name in names if ":" in name and name.partition(":")[0] not in _PUBLIC_SCHEMES]


def check_public_datasets(text: str, suite: str) -> None:
    """Check that a suite can be run on other machines.

    Args:
        text: The suite as TOML.
        suite: Its name, for the message.

    Raises:
        ResultError: If it uses images of a local folder.
    """
    if own := local_datasets(text):
        raise ResultError(
            f"{suite} uses images of a local folder ({listed(own, 2)}), which others do not have. Use generated "
            "data sets, "
            "registered annotated ones, or hf://owner/name."
        )


def with_explainers(text: str, explainers: Mapping[str, Mapping[str, Any]], *, of: str = "") -> str:
    """Replace the explainers of a suite, without importing any.

    Args:
        text: The suite as TOML.
        explainers: Name to entry.
        of: Name of an explainer of the suite; cells that are limited to other explainers are removed.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    cells = [cell for cell in tables["cells"] if not of or of in cell.get("explainers", [of])]
    for cell in cells:
        cell.pop("explainers", None)
    return to_toml(tables | {"cells": cells, "explainers": {name: dict(entry) for name, entry in explainers.items()}})


def without_sets(text: str, missing: Collection[str]) -> str:
    """Remove data sets from a suite, and cells that have no other data set.

    Args:
        text: The suite as TOML.
        missing: Names of the data sets.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    kept = [cell | {"datasets": [name for name in cell["datasets"] if name not in missing]} for cell in tables["cells"]]
    return to_toml(tables | {"cells": [cell for cell in kept if cell["datasets"]]})


def explainer_entry(text: str, explainer: str) -> dict[str, Any]:
    """Return the entry of an explainer in a suite.

    Args:
        text: The suite as TOML.
        explainer: Name of the explainer.

    Returns:
        The entry: parameters, and ``use`` if the explainer has a name of its own in the suite.
    """
    return dict(_read_tables(text)["explainers"][explainer])


def count_cells(text: str) -> int:
    """Return the number of pairs of data set and model in a suite.

    Args:
        text: The suite as TOML.
    """
    return sum(len(cell["datasets"]) * len(cell["models"]) for cell in _read_tables(text)["cells"])


def read_seeds(text: str) -> list[int]:
    """Return the data set seeds of a suite."""
    return list(_read_tables(text).get("data", {}).get("seeds", [0]))


def with_seeds(text: str, seeds: Sequence[int]) -> str:
    """Replace the data set seeds of a suite.

    Args:
        text: The suite as TOML.
        seeds: As many seeds as the suite has.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    return to_toml(tables | {"data": tables.get("data", {}) | {"seeds": list(seeds)}})


def suite_version(text: str) -> str:
    """Return the version of a suite, a hash of everything that determines images, networks and metrics.

    Explainers do not change the version.

    Args:
        text: The suite as TOML.

    Returns:
        Eight hexadecimal digits.

    Raises:
        SuiteError: If the suite cannot be run.
    """
    plan = plan_without_explainers(text)
    known = identity(plan) | {"samples": plan.suite.explaining.samples}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:8]


def plan_without_explainers(text: str) -> Plan:
    """Return the plan of a suite with one control in place of its explainers, so that none of them is imported.

    Args:
        text: The suite as TOML.

    Returns:
        The plan; cached, as the results of a suite differ only in their explainers.

    Raises:
        SuiteError: If the suite cannot be run.
    """
    return _make_plan(with_explainers(text, {"uniform": {}}))


@lru_cache(maxsize=8)
def _make_plan(text: str) -> Plan:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / SUITE
        file.write_text(text, encoding="utf-8")
        return make_plan(load_suite(file)[0])


def _read_tables(text: str) -> dict[str, Any]:
    """Parse a suite and drop the tables of its variants, which a result never uses."""
    tables = tomllib.loads(text)
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    return tables
