"""Read the results of a repository, and record why others cannot be shown."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xaibench.leaderboard.manifest import (
    MAX_JSON_BYTES,
    Manifest,
    ResultError,
    find_results,
    read_manifest,
)
from xaibench.leaderboard.verdicts import VERDICTS, read_verdict
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, Environment, RunParts, read_environment, read_parts
from xaibench.runfolder.sanitize import sanitize_json
from xaibench.runfolder.tables import IMAGES, SCORES, RunFolderError


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
        parts: Descriptions of the parts of its suite.
        environment: Versions and machine.
        verification: The signed verdict on its current state; empty if there is none.
        images: Hash of the images per data set and seed; empty if unknown.
    """

    folder: Path
    manifest: Manifest
    parts: RunParts
    environment: Environment
    verification: dict[str, Any]
    images: dict[str, str]

    @property
    def key(self) -> SuiteKey:
        """Return the suite, version and round."""
        suite = self.manifest.suite
        return SuiteKey(suite.name, suite.version, self.manifest.round)

    @property
    def verdict(self) -> str:
        """Return one of :data:`VERDICTS`; empty if the result was not verified."""
        found = self.verification.get("verdict", "")
        return found if found in VERDICTS else ""

    @property
    def is_verified(self) -> bool:
        """Return whether a verification reproduced the scores."""
        return self.verdict in VERDICTS[:2]


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
        repository: A folder with ``METHOD/SUITE@VERSION`` below it, or a single result.

    Returns:
        The results sorted by folder, and the excluded ones.

    Raises:
        ResultError: If there is no result.
    """
    found, left_out = [], []
    images: dict[bytes, dict[str, str]] = {}
    for folder in find_results(repository):
        name = folder.relative_to(repository).as_posix() if folder != repository else folder.name
        try:
            found.append(_read_result(folder, repository, images))
        except (ResultError, RunFolderError, OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
            left_out.append(ExcludedResult(name, str(error) or type(error).__name__))  # one bad file stops nothing
    shown, others = _exclude_other_images(found, repository)
    return shown, left_out + others


def _read_result(folder: Path, repository: Path, images: dict[bytes, dict[str, str]]) -> Result:
    manifest = read_manifest(folder)
    place = f"{folder.parent.name}/{folder.name}"
    if folder != repository and place != manifest.folder:
        raise ResultError(f"The manifest of {folder} says {manifest.folder}; move the folder there.")
    for name in (PARTS, ENVIRONMENT):
        if (folder / name).is_file() and (size := (folder / name).stat().st_size) > MAX_JSON_BYTES:
            raise ResultError(f"{folder / name} has {size:,} bytes; expected at most {MAX_JSON_BYTES:,}.")
    if not (folder / SCORES.name).is_file():
        raise ResultError(f"{folder} has no {SCORES.name}; every result needs it. Submit the method again.")
    return Result(
        folder,
        manifest,
        read_parts(folder),
        read_environment(folder),
        sanitize_json(read_verdict(folder)),
        _image_hashes(folder, images),
    )


def _image_hashes(folder: Path, known: dict[bytes, dict[str, str]]) -> dict[str, str]:
    """Return hashes of the images of each data set, cached by file content, which the methods of a suite share."""
    file = folder / IMAGES.name
    if not file.is_file():
        return _hash_images(folder)
    content = file.read_bytes()
    if content not in known:
        known[content] = _hash_images(folder)
    return known[content]


def _hash_images(folder: Path) -> dict[str, str]:
    rows = IMAGES.read(folder).astype({"dataset": str})
    found = {}
    for (name, seed), mine in rows.groupby(["dataset", "data_seed"]):
        numbers = mine[["sample", "image"]].astype("int64").sort_values(["sample", "image"]).to_numpy()
        found[f"{name} of seed {seed}"] = hashlib.sha256(np.ascontiguousarray(numbers, "<i8").tobytes()).hexdigest()
    return found


def _exclude_other_images(results: list[Result], repository: Path) -> tuple[list[Result], list[ExcludedResult]]:
    """Exclude results whose images differ from the images of most results of the suite."""
    shown, left_out = [], []
    usual = {key: _usual_images(mine) for key, mine in by_suite(results).items()}
    for one in results:
        others = [name for name, found in one.images.items() if found != usual[one.key][name]]
        if not others:
            shown.append(one)
            continue
        reason = (
            f"{one.folder} explained other images of {others[0]} than the other results of {one.key.words}. "
            "Submit the method again."
        )
        left_out.append(ExcludedResult(one.folder.relative_to(repository).as_posix(), reason))
    return shown, left_out


def _usual_images(results: list[Result]) -> dict[str, str]:
    names = {name for one in results for name in one.images}
    return {name: most_common(one.images[name] for one in results if name in one.images) for name in names}


def most_common(values: Iterable[Any]) -> Any:
    """Return the most frequent value (the first of several), or None if there is none.

    Example:
        >>> most_common("abcb"), most_common("")
        ('b', None)
    """
    counts = Counter(values)
    return max(counts, key=lambda value: counts[value]) if counts else None


def by_suite(results: Iterable[Result]) -> dict[SuiteKey, list[Result]]:
    """Group comparable results, sorted by suite, version and round."""
    found: dict[SuiteKey, list[Result]] = {}
    for one in sorted(results, key=lambda one: (one.key.name, one.key.version, one.key.round)):
        found.setdefault(one.key, []).append(one)
    return found
