"""The suite of a result, as TOML: with other explainers, on other seeds, and its version."""

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

# Sets of which every seed draws a fresh one.
_GENERATED = ("xai-tris/", "certified:")
# What a name may begin with that says where a set comes from; the others name a folder of one machine.
_EVERYBODYS = {"certified", "hf"}


def is_generated(dataset: str) -> bool:
    """Whether a seed makes a fresh data set of this name.

    Example:
        >>> is_generated("xai-tris/lin-white-8x8"), is_generated("certified:xor"), is_generated("pascal")
        (True, True, False)
    """
    return dataset.startswith(_GENERATED)


def local_datasets(text: str) -> list[str]:
    """The data sets of a suite that nobody else has: which it is, only the folder of one machine says.

    Args:
        text: The suite as TOML.

    Returns:
        Their names, such as ``photographs:$XAIBENCH_DATA``.
    """
    names = dict.fromkeys(name for cell in _plain(text)["cells"] for name in cell["datasets"])
    return [name for name in names if ":" in name and name.partition(":")[0] not in _EVERYBODYS]


def check_public_datasets(text: str, suite: str) -> None:
    """Look whether a result on a suite could be run again elsewhere.

    Args:
        text: The suite as TOML.
        suite: Its name.

    Raises:
        ResultError: If its images are those of a folder of one's own.
    """
    if own := local_datasets(text):
        raise ResultError(
            f"{suite} is about images of one's own ({listed(own, 2)}), which others have not; results are on data sets "
            "that are generated, annotated ones by their name, or hf://owner/name."
        )


def with_explainers(text: str, explainers: Mapping[str, Mapping[str, Any]], *, of: str = "") -> str:
    """A suite with these explainers in place of its own; none of them is imported.

    Args:
        text: The suite as TOML.
        explainers: Name to entry.
        of: An explainer of the suite: cells that are asked of others alone are left out.

    Returns:
        The text.
    """
    tables = _plain(text)
    cells = [cell for cell in tables["cells"] if not of or of in cell.get("explainers", [of])]
    for cell in cells:
        cell.pop("explainers", None)
    return to_toml(tables | {"cells": cells, "explainers": {name: dict(entry) for name, entry in explainers.items()}})


def without_sets(text: str, missing: Collection[str]) -> str:
    """A suite without some of its data sets, and without the cells that have no other.

    Args:
        text: The suite as TOML.
        missing: Their names.

    Returns:
        The text.
    """
    tables = _plain(text)
    kept = [cell | {"datasets": [name for name in cell["datasets"] if name not in missing]} for cell in tables["cells"]]
    return to_toml(tables | {"cells": [cell for cell in kept if cell["datasets"]]})


def explainer_entry(text: str, explainer: str) -> dict[str, Any]:
    """What a suite states of one of its explainers.

    Args:
        text: The suite as TOML.
        explainer: Its name there.

    Returns:
        The entry: ``use``, where the name is another, and parameters.
    """
    return dict(_plain(text)["explainers"][explainer])


def count_cells(text: str) -> int:
    """How many pairs of a data set and a model a suite has.

    Args:
        text: The suite as TOML.
    """
    return sum(len(cell["datasets"]) * len(cell["models"]) for cell in _plain(text)["cells"])


def read_seeds(text: str) -> list[int]:
    """The seeds of a suite's data sets."""
    return list(_plain(text).get("data", {}).get("seeds", [0]))


def with_seeds(text: str, seeds: Sequence[int]) -> str:
    """A suite on data sets of these seeds, one each.

    Args:
        text: The suite as TOML.
        seeds: As many as it has.

    Returns:
        The text.
    """
    tables = _plain(text)
    return to_toml(tables | {"data": tables.get("data", {}) | {"seeds": list(seeds)}})


def suite_version(text: str) -> str:
    """The version of a suite: of all that decides its images, networks and metrics, but not of what explains.

    Args:
        text: Its TOML.

    Returns:
        Eight hexadecimal digits.

    Raises:
        SuiteError: If it cannot be run as written.
    """
    plan = plan_without_explainers(text)
    known = identity(plan) | {"samples": plan.suite.explaining.samples}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:8]


def plan_without_explainers(text: str) -> Plan:
    """The plan of a suite with a control in place of its explainers, so that none of these is imported.

    Args:
        text: As TOML.

    Returns:
        It; made once for all results of a suite, which are of one text but for their explainers.

    Raises:
        SuiteError: If it cannot be run as written.
    """
    return _planned(with_explainers(text, {"uniform": {}}))


@lru_cache(maxsize=8)
def _planned(text: str) -> Plan:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / SUITE
        file.write_text(text, encoding="utf-8")
        return make_plan(load_suite(file)[0])


def _plain(text: str) -> dict[str, Any]:
    """Its tables, without the variants that a result is not of."""
    tables = tomllib.loads(text)
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    return tables
