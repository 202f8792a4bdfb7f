"""The suites of the library as results use them, their versions, and how a run's suite differs from them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import tomli_w

from xaibench.benchmarks.checksums import published_checksums
from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.repository import ResultError
from xaibench.runner.plan.plan import Plan, make_plan
from xaibench.runner.published_networks import network_file_checksums
from xaibench.runner.published_scores import identity
from xaibench.runner.suites.parsing import SUITES, load_suite, parse_suite
from xaibench.runner.suites.schema import OptionalCells, Suite

# Schemes of data sets that everyone can get; other schemes refer to a local folder.
_PUBLIC_SCHEMES = {"certified", "hf"}


@lru_cache(maxsize=32)
def official_suite(name: str) -> OfficialSuite:
    """Return a suite of the library as results use it.

    A result only names its suite. What the library has under that name is what is checked, run and compared; nothing
    in a result can change it.

    Args:
        name: Name of a suite of the library; with ``-quick`` at the end, its quick form.

    Raises:
        ResultError: If the library has no such suite, or it is for images of a local folder.
    """
    base = name.removesuffix("-quick")
    if base not in SUITES:
        raise ResultError(unknown("A result is of a suite of the library, and there is none named", name, SUITES))
    tables = tomllib.loads(load_suite(base, quick=base != name)[1])
    cells = [
        {key: value for key, value in cell.items() if key != "explainers"}
        for cell in tables["cells"]
        if "$XAIBENCH_IMAGES" not in str(cell.get("data", {}))
    ]
    suite = OfficialSuite(
        {key: value for key, value in tables.items() if key not in ("quick", "optional")}
        | {"cells": cells, "explainers": {}}
    )
    if local := [each for cell in cells for each in cell["datasets"] if _is_local(each)]:
        raise ResultError(
            f"{name} uses images of a local folder ({listed(local, 2)}), which others do not have. Use a suite of "
            "generated or registered annotated data sets."
        )
    return suite


def _is_local(dataset: str) -> bool:
    """Return whether a data set exists only in a folder of this machine, such as ``photographs:$XAIBENCH_DATA``."""
    name = dataset.split(":", 2)[-1] if dataset.startswith("whitened:") else dataset  # whitened:KIND:NAME
    return ":" in name and name.partition(":")[0] not in _PUBLIC_SCHEMES


@dataclasses.dataclass(frozen=True, eq=False)
class OfficialSuite:
    """A suite of the library without explainers, variants, and cells that need photographs of a local folder.

    Attributes:
        tables: The parsed TOML.
    """

    tables: Mapping[str, Any]

    @cached_property
    def suite(self) -> Suite:
        """The suite with one control as its explainer."""
        return parse_suite({**self.tables, "explainers": {"uniform": {}}}, str(self.tables["name"]))

    @cached_property
    def plan(self) -> Plan:
        """The plan of that suite."""
        return make_plan(self.suite)

    @cached_property
    def version(self) -> str:
        """Hash of everything that decides the scores of a map, as 32 hexadecimal digits.

        That is the whole suite except its explainers, the revisions of its data sets, architectures and metrics, and
        the published checksums of its data sets and networks.
        """
        jobs = list(dict.fromkeys(job for cell in self.plan.cells for job in cell.trainings))
        names = {job.data.name for job in jobs}
        known = {
            "suite": self.tables,
            "parts": identity(self.plan),
            "data": sorted(each for key, each in published_checksums().items() if key[0] in names),
            "networks": sorted(network_file_checksums(key for job in jobs for key in job.published_keys)),
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]

    def with_explainer(self, name: str, use: str, parameters: Mapping[str, Any]) -> str:
        """Return the suite with one explainer, as TOML."""
        return tomli_w.dumps({**self.tables, "explainers": {name: {**parameters, "use": use}}})

    def differences(self, suite: Suite, missing: Collection[str] = ()) -> list[str]:
        """Return where the suite of a run differs from this one, except in its explainers.

        Args:
            suite: The suite of the run.
            missing: Data sets that the run left out, because they need photographs of a local folder.

        Returns:
            One phrase per entry, such as ``"explaining.samples is 5 instead of 100"``; empty if nothing differs.
        """
        run, official = _without_explainers(suite, missing), _without_explainers(self.suite)
        return list(_compare_entries(_plain(run), _plain(official)))


def _without_explainers(suite: Suite, missing: Collection[str] = ()) -> Suite:
    cells = (
        dataclasses.replace(cell, explainers=(), datasets=tuple(one for one in cell.datasets if one not in missing))
        for cell in suite.cells
    )
    shown = tuple(cell for cell in cells if cell.datasets)
    return dataclasses.replace(suite, cells=shown, explainers=(), optional=OptionalCells())


def _plain(value: Any) -> Any:
    """Return dicts and lists, in which the order of parameters does not matter."""
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.compare}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _compare_entries(run: Mapping[str, Any], official: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, mine in run.items():
        theirs, name = official[key], f"{prefix}{key}"
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict) and not prefix:
            yield from _compare_entries(mine, theirs, f"{name}.")
        elif all(isinstance(one, str | int | float | None) for one in (mine, theirs)):
            yield f"{name} is {mine!r} instead of {theirs!r}"
        else:
            yield f"{name} differ" if name.endswith("s") else f"{name} differs"
