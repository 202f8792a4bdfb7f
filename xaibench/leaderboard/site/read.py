"""Read the results of a repository, and record why others cannot be shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.manifest import (
    Manifest,
    MethodInfo,
    ResultError,
    find_results,
    read_manifest,
    result_checksum,
)
from xaibench.leaderboard.suite_facts import SuiteFacts, facts_folder, read_facts
from xaibench.leaderboard.verdicts import VERDICTS, Record, read_records, record_key
from xaibench.runfolder.tables import RunFolderError


@dataclass(frozen=True)
class SuiteKey:
    """Suite, version and round: results are comparable if they share these.

    Attributes:
        name: Name of the suite.
        version: Version of its images, networks and metrics.
        round: Round of fresh seeds; empty for the suite's own seeds.
    """

    name: str
    version: str
    round: str = ""

    @property
    def words(self) -> str:
        """Return the key as in folder names: ``SUITE@VERSION+ROUND``."""
        return f"{self.name}@{self.version}{'+' * bool(self.round)}{self.round}"


@dataclass(frozen=True)
class Result:
    """One method on one suite.

    Attributes:
        folder: Folder of the result.
        manifest: Its manifest.
        facts: Facts about its suite.
        record: The signed record of its current state; None if there is none.
    """

    folder: Path
    manifest: Manifest
    facts: SuiteFacts
    record: Record | None = None

    @property
    def key(self) -> SuiteKey:
        """Return the suite, version and round."""
        suite = self.manifest.suite
        return SuiteKey(suite.name, suite.version, self.manifest.round)

    @property
    def verdict(self) -> str:
        """Return one of :data:`VERDICTS`; empty if the result was not verified."""
        found = self.record and self.record.verification
        return found.verdict if found and found.verdict in VERDICTS else ""

    @property
    def is_verified(self) -> bool:
        """Return whether a verification reproduced the scores."""
        return self.verdict in VERDICTS[:2]

    @property
    def received(self) -> str:
        """Return the day on which the keeper received the result, or the submitter's date if there is no record."""
        return self.record.received if self.record else self.manifest.submitted

    @property
    def ignores(self) -> tuple[str, ...]:
        """Return ``"network"`` and ``"image"`` as far as a verification found that the maps do not depend on them."""
        found = self.record and self.record.verification
        return found.ignores if found else ()

    @property
    def is_control(self) -> bool:
        """Return whether the method is a control: it says so, or its maps do not depend on the network."""
        return self.manifest.method.control or "network" in self.ignores


@dataclass(frozen=True)
class ExcludedResult:
    """A result that is not shown.

    Attributes:
        name: Path of its folder, relative to the repository.
        reason: Why it is not shown.
    """

    name: str
    reason: str


def read_results(repository: Path) -> tuple[list[Result], list[ExcludedResult]]:
    """Read all results of a repository, except their scores.

    Args:
        repository: A folder with ``METHOD/SUITE@VERSION`` below it.

    Returns:
        The results sorted by folder, and the excluded ones.

    Raises:
        ResultError: If there is no result, or the keeper's file of records is damaged.
    """
    found, left_out = [], []
    folders = find_results(repository)
    records, facts = read_records(record_key(folders[0])[0]), dict[Path, SuiteFacts]()
    for folder in folders:
        name = folder.relative_to(repository).as_posix() if folder != repository else folder.name
        try:
            found.append(_read_result(folder, repository, records, facts))
        except (ResultError, RunFolderError, OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
            left_out.append(ExcludedResult(name, str(error) or type(error).__name__))  # one bad file stops nothing
    return found, left_out


def _read_result(
    folder: Path, repository: Path, records: Mapping[str, Record], known: dict[Path, SuiteFacts]
) -> Result:
    manifest = read_manifest(folder)
    place = f"{folder.parent.name}/{folder.name}"
    if folder != repository and place != manifest.folder:
        raise ResultError(f"The manifest of {folder} says {manifest.folder}; move the folder there.")
    facts = facts_folder(folder.parent.parent, manifest)
    if facts not in known:
        known[facts] = read_facts(facts)
    record = records.get(manifest.folder)
    current = record is not None and record.result == result_checksum(folder)
    method = dataclasses.replace(manifest.method, label=display_name(manifest.method))
    return Result(folder, dataclasses.replace(manifest, method=method), known[facts], record if current else None)


def display_name(method: MethodInfo) -> str:
    """Return the label of a method; of an entry of a suite that has none, its explainer's label and its parameters.

    Example:
        >>> display_name(MethodInfo("lime-50", "lime-50", "lime", parameters={"n_samples": 50}))
        'LIME (n_samples = 50)'
        >>> display_name(MethodInfo("lime-1000", "lime-1000", "lime", parameters={"budget": 1000}))
        'LIME (1,000 passes)'
    """
    if method.label != method.name or method.entry not in EXPLAINERS:
        return method.label
    label = EXPLAINERS.resolve(method.entry).info.label
    parameters = ", ".join(
        f"{value:,} passes" if name == "budget" and isinstance(value, int) else f"{name} = {value}"
        for name, value in method.parameters.items()
    )
    return f"{label} ({parameters})" if parameters else str(label)


def by_suite(results: Iterable[Result]) -> dict[SuiteKey, list[Result]]:
    """Group comparable results, sorted by suite, version and round."""
    found: dict[SuiteKey, list[Result]] = {}
    for one in sorted(results, key=lambda one: (one.key.name, one.key.version, one.key.round)):
        found.setdefault(one.key, []).append(one)
    return found
