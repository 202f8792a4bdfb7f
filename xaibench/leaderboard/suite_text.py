"""Suites of results: the official form of the library's suites, their versions, and edits of their TOML."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from xaibench.benchmarks.checksums import published_checksums
from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.manifest import ResultError
from xaibench.runfolder.descriptions import SUITE
from xaibench.runner.plan.plan import Plan, make_plan
from xaibench.runner.published_networks import network_file_checksums
from xaibench.runner.published_scores import identity
from xaibench.runner.suites.files import SUITES, load_suite
from xaibench.runner.suites.schema import OptionalCells, Suite

# Data sets that are generated from a seed.
_GENERATED_PREFIXES = ("xai-tris/", "pattern-gam/", "certified:")
# Data sets with a layout, and networks that read the pixels of the paper's layout.
_LAYOUT_PREFIX, _BLIND_PREFIX = "xai-tris/", "blind:"
# Schemes of data sets that everyone can get; other schemes refer to a local folder.
_PUBLIC_SCHEMES = {"certified", "hf"}


def is_generated(dataset: str) -> bool:
    """Return whether every seed gives a new data set of this name.

    Example:
        >>> is_generated("xai-tris/lin-white-8x8"), is_generated("certified:xor"), is_generated("pascal")
        (True, True, False)
    """
    return _unwhitened(dataset).startswith(_GENERATED_PREFIXES)


def _unwhitened(dataset: str) -> str:
    """Return the data set that ``whitened:KIND:NAME`` whitens; others unchanged."""
    return dataset.split(":", 2)[-1] if dataset.startswith("whitened:") else dataset


def local_datasets(text: str) -> list[str]:
    """Return the data sets of a suite that exist only in a folder of this machine.

    Args:
        text: The suite as TOML.

    Returns:
        Their names, such as ``photographs:$XAIBENCH_DATA``.
    """
    names = ((name, _unwhitened(name)) for name in read_datasets(text))
    return [name for name, kept in names if ":" in kept and kept.partition(":")[0] not in _PUBLIC_SCHEMES]


def read_datasets(text: str) -> list[str]:
    """Return the names of the data sets of a suite.

    Args:
        text: The suite as TOML.
    """
    return list(dict.fromkeys(name for cell in _read_tables(text)["cells"] for name in cell["datasets"]))


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
            f"{suite} uses images of a local folder ({listed(own, 2)}), which others do not have. Use a suite of "
            "generated or registered annotated data sets."
        )


def with_explainers(text: str, explainers: Mapping[str, Mapping[str, Any]]) -> str:
    """Replace the explainers of a suite, without importing any.

    Args:
        text: The suite as TOML.
        explainers: Name to entry.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    for cell in tables["cells"]:  # limited to explainers of the suite
        cell.pop("explainers", None)
    return tomli_w.dumps(tables | {"explainers": {name: dict(entry) for name, entry in explainers.items()}})


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
    return tomli_w.dumps(tables | {"cells": [cell for cell in kept if cell["datasets"]]})


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
    """Return the data set seeds of a suite; a number ``n`` in the suite means 0 to ``n - 1``."""
    seeds = _read_tables(text).get("data", {}).get("seeds", [0])
    return list(range(seeds) if isinstance(seeds, int) else seeds)


def with_seeds(text: str, seeds: Sequence[int]) -> str:
    """Replace the data set seeds of a suite.

    Args:
        text: The suite as TOML.
        seeds: As many seeds as the suite has.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    return tomli_w.dumps(tables | {"data": tables.get("data", {}) | {"seeds": list(seeds)}})


def read_layouts(text: str) -> set[int]:
    """Return the layouts of the data sets of a suite whose layout :func:`with_layout` sets; 0 is that of the paper."""
    return {cell.get("data", {}).get("layout", 0) for cell in _read_tables(text)["cells"] if _has_layout(cell)}


def with_layout(text: str, layout: int) -> str:
    """Set the positions and orientations of the patterns in the XAI-TRIS data sets of a suite.

    Cells with blinded networks keep the paper's, because the pixels that such a network reads are part of the
    suite.

    Args:
        text: The suite as TOML.
        layout: Number of the layout (:meth:`xaibench.benchmarks.xai_tris.tetrominoes.Tetromino.__call__`); 0 removes
            the number, and so restores the layout of the paper.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    return tomli_w.dumps(tables | {"cells": [_cell_with_layout(cell, layout) for cell in tables["cells"]]})


def _cell_with_layout(cell: dict[str, Any], layout: int) -> dict[str, Any]:
    if not _has_layout(cell):
        return cell
    data = {name: value for name, value in cell.get("data", {}).items() if name != "layout"}
    data |= {"layout": layout} if layout else {}
    rest = {name: value for name, value in cell.items() if name != "data"}
    return rest | ({"data": data} if data else {})


def _has_layout(cell: Mapping[str, Any]) -> bool:
    is_xai_tris = any(name.startswith(_LAYOUT_PREFIX) for name in cell["datasets"])
    return is_xai_tris and not any(name.startswith(_BLIND_PREFIX) for name in cell["models"])


@lru_cache(maxsize=32)
def official_suite(name: str) -> str:
    """Return a suite of the library as results use it: with data sets that everyone can get.

    A result only names its suite. What the library has under that name is what is checked, run and compared; nothing
    in a result can change it.

    Args:
        name: Name of a suite of the library; with ``-quick`` at the end, its quick form.

    Returns:
        The suite as TOML.

    Raises:
        ResultError: If the library has no such suite, or it is for images of a local folder.
    """
    text = without_photographs(_shipped_text(name))
    check_public_datasets(text, name)
    return text


def without_photographs(text: str) -> str:
    """Remove the cells of a suite that need photographs of a local folder (``$XAIBENCH_IMAGES``).

    Args:
        text: The suite as TOML.

    Returns:
        The suite as TOML.
    """
    tables = _read_tables(text)
    kept = [cell for cell in tables["cells"] if "$XAIBENCH_IMAGES" not in str(cell.get("data", {}))]
    return tomli_w.dumps(tables | {"cells": kept})


def _shipped_text(name: str) -> str:
    base = name.removesuffix("-quick")
    if base not in SUITES:
        raise ResultError(unknown("A result is of a suite of the library, and there is none named", name, SUITES))
    return load_suite(base, quick=base != name)[1]


def differences_from_official(text: str, name: str) -> list[str]:
    """Return where a suite differs from the one of the library, except in its explainers.

    Args:
        text: The suite of a run of one's own, as TOML. Suites of others are not read at all.
        name: Name of the suite.

    Returns:
        One phrase per entry, such as ``"explaining.samples is 5 instead of 100"``; empty if nothing differs.

    Raises:
        ResultError: If the library has no such suite.
        SuiteError: If the text is not a suite.
    """
    return list(_compare_entries(_without_explainers(text), _without_explainers(official_suite(name))))


def _compare_entries(own: Any, official: Any, place: str = "") -> Iterator[str]:
    for each in dataclasses.fields(own):
        if not each.compare:
            continue
        pair = getattr(own, each.name), getattr(official, each.name)
        where = f"{place}{each.name}"
        if pair[0] == pair[1]:
            continue
        if all(map(dataclasses.is_dataclass, pair)):
            yield from _compare_entries(*pair, f"{where}.")
        elif all(isinstance(one, str | int | float | None) for one in pair):
            yield f"{where} is {pair[0]!r} instead of {pair[1]!r}"
        else:
            yield f"{where} differ" if where.endswith("s") else f"{where} differs"


def _without_explainers(text: str) -> Suite:
    suite = _parse(text)
    cells = tuple(dataclasses.replace(cell, explainers=()) for cell in suite.cells)
    return dataclasses.replace(suite, cells=cells, explainers=(), optional=OptionalCells())


def _parse(text: str) -> Suite:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / SUITE
        file.write_text(text, encoding="utf-8")
        return load_suite(file)[0]


@lru_cache(maxsize=32)
def suite_version(name: str) -> str:
    """Return the version of a suite of the library.

    It is a hash of the whole suite except its explainers, of the revisions of its data sets, architectures and metrics,
    and of the published checksums of its data sets and networks.

    Args:
        name: Name of the suite, as for :func:`official_suite`.

    Returns:
        128 bits as 32 hexadecimal digits.

    Raises:
        ResultError: If the library has no such suite.
    """
    tables = _read_tables(with_explainers(official_suite(name), {}))
    plan = official_plan(name)
    jobs = list(dict.fromkeys(job for cell in plan.cells for job in cell.trainings))
    names = {job.data.name for job in jobs}
    known = {
        "suite": tables,
        "parts": identity(plan),
        "data": sorted(each for key, each in published_checksums().items() if key[0] in names),
        "networks": sorted(network_file_checksums(key for job in jobs for key in job.published_keys)),
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]


@lru_cache(maxsize=32)
def official_plan(name: str) -> Plan:
    """Return the plan of a suite of the library, with one control in place of its explainers.

    Args:
        name: Name of the suite, as for :func:`official_suite`.

    Raises:
        ResultError: If the library has no such suite.
    """
    return make_plan(_parse(with_explainers(official_suite(name), {"uniform": {}})))


def _read_tables(text: str) -> dict[str, Any]:
    """Parse a suite and drop the tables of its variants, which a result never uses."""
    tables = tomllib.loads(text)
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    return tables
