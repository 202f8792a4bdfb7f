"""What a results repository holds: every result that can be shown, and why each of the others cannot."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xaibench.leaderboard.manifest import (
    VERDICTS,
    Manifest,
    ResultError,
    find_results,
    read_manifest,
    read_verification,
)
from xaibench.runfolder.descriptions import Environment, RunParts, read_environment, read_parts
from xaibench.runfolder.sanitize import sanitize_json
from xaibench.runfolder.tables import IMAGES, SCORES, RunFolderError


@dataclass(frozen=True)
class SuiteKey:
    """What results must share to stand beside each other.

    Attributes:
        name: Of the suite.
        version: Of its images, networks and metrics.
        round: Of fresh seeds; empty for the suite's own.
    """

    name: str
    version: str
    round: str = ""

    @property
    def words(self) -> str:
        """As folders have it: ``SUITE@VERSION+ROUND``."""
        return f"{self.name}@{self.version}{'+' * bool(self.round)}{self.round}"


@dataclass(frozen=True)
class Result:
    """One method on one suite.

    Attributes:
        folder: Where it lies.
        manifest: What it says of itself.
        parts: What it was made with, in words.
        environment: Where and with what it was made.
        verification: The content of ``verification.json``; empty where nobody verified it as it is.
        images: A hash of the images of each data set and seed; empty where it does not say which.
    """

    folder: Path
    manifest: Manifest
    parts: RunParts
    environment: Environment
    verification: dict[str, Any]
    images: dict[str, str]

    @property
    def key(self) -> SuiteKey:
        """What it can stand beside."""
        suite = self.manifest.suite
        return SuiteKey(suite.name, suite.version, self.manifest.round)

    @property
    def verdict(self) -> str:
        """One of :data:`VERDICTS`; empty where nobody verified it."""
        found = self.verification.get("verdict", "")
        return found if found in VERDICTS else ""

    @property
    def is_verified(self) -> bool:
        """Whether somebody ran it again, and the same came out."""
        return self.verdict in VERDICTS[:2]


@dataclass(frozen=True)
class ExcludedResult:
    """A result that is not shown.

    Attributes:
        name: Of its folder, below the repository.
        reason: Why.
    """

    name: str
    reason: str


def read_results(repository: Path) -> tuple[list[Result], list[ExcludedResult]]:
    """All results of a repository but for their scores.

    Args:
        repository: A folder with ``METHOD/SUITE@VERSION`` below it, or a single result.

    Returns:
        The results in the order of their folders, and those that are left out.

    Raises:
        ResultError: If there is no result at all.
    """
    found, left_out = [], []
    images: dict[bytes, dict[str, str]] = {}
    for folder in find_results(repository):
        name = folder.relative_to(repository).as_posix() if folder != repository else folder.name
        try:
            found.append(_read(folder, repository, images))
        except (ResultError, RunFolderError, OSError) as error:
            left_out.append(ExcludedResult(name, str(error)))
    shown, others = _of_same_images(found, repository)
    return shown, left_out + others


def _read(folder: Path, repository: Path, images: dict[bytes, dict[str, str]]) -> Result:
    manifest = read_manifest(folder)
    place = f"{folder.parent.name}/{folder.name}"
    if folder != repository and place != manifest.folder:
        raise ResultError(f"{folder} says that it is {manifest.folder}; expected it to lie there. Move it.")
    if not (folder / SCORES.name).is_file():
        raise ResultError(f"{folder} has no {SCORES.name}; a result has one. Submit the method again.")
    return Result(
        folder,
        manifest,
        read_parts(folder),
        read_environment(folder),
        sanitize_json(read_verification(folder)),
        _images(folder, images),
    )


def _images(folder: Path, known: dict[bytes, dict[str, str]]) -> dict[str, str]:
    """Hashes of the images of each set; ``known`` by the file's content, which the methods of a suite share."""
    file = folder / IMAGES.name
    if not file.is_file():
        return _hashes(folder)
    content = file.read_bytes()
    if content not in known:
        known[content] = _hashes(folder)
    return known[content]


def _hashes(folder: Path) -> dict[str, str]:
    rows = IMAGES.read(folder).astype({"dataset": str})
    found = {}
    for (name, seed), mine in rows.groupby(["dataset", "data_seed"]):
        numbers = mine[["sample", "image"]].astype("int64").sort_values(["sample", "image"]).to_numpy()
        found[f"{name} of seed {seed}"] = hashlib.sha256(np.ascontiguousarray(numbers, "<i8").tobytes()).hexdigest()
    return found


def _of_same_images(results: list[Result], repository: Path) -> tuple[list[Result], list[ExcludedResult]]:
    """Of each suite those that explained the images that most did: others are not comparable with them."""
    shown, left_out = [], []
    usual = {key: _usual(mine) for key, mine in by_suite(results).items()}
    for one in results:
        others = [name for name, found in one.images.items() if found != usual[one.key][name]]
        if not others:
            shown.append(one)
            continue
        reason = (
            f"{one.folder} explained other images of {others[0]} than the other results of {one.key.words}; "
            "expected those of the suite. Submit the method again."
        )
        left_out.append(ExcludedResult(one.folder.relative_to(repository).as_posix(), reason))
    return shown, left_out


def _usual(results: list[Result]) -> dict[str, str]:
    names = {name for one in results for name in one.images}
    return {name: most_common(one.images[name] for one in results if name in one.images) for name in names}


def most_common(values: Iterable[Any]) -> Any:
    """What occurs most often, of several the first; None of nothing.

    Example:
        >>> most_common("abcb"), most_common("")
        ('b', None)
    """
    counts = Counter(values)
    return max(counts, key=lambda value: counts[value]) if counts else None


def by_suite(results: Iterable[Result]) -> dict[SuiteKey, list[Result]]:
    """The results that can stand beside each other, suites in the order of their names, rounds behind them."""
    found: dict[SuiteKey, list[Result]] = {}
    for one in sorted(results, key=lambda one: (one.key.name, one.key.version, one.key.round)):
        found.setdefault(one.key, []).append(one)
    return found
