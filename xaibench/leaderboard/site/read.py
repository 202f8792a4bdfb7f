"""Read the results of a repository that pass the check, and record why others are not shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xaibench.core.checks import to_latin
from xaibench.core.messages import printable
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.facts import FACTS, SuiteFacts, read_facts
from xaibench.leaderboard.manifest import Manifest, describe_error, find_results, read_manifest
from xaibench.leaderboard.verified import Verification, find_verification


@dataclass(frozen=True)
class Result:
    """One method on one suite.

    Attributes:
        folder: Folder of the result.
        manifest: Its description.
        facts: Facts about its suite.
        verification: Its row in ``verified.csv``; None if there is none of its current state.
    """

    folder: Path
    manifest: Manifest
    facts: SuiteFacts
    verification: Verification | None = None

    @property
    def verdict(self) -> str:
        """Return ``"bit-equal"``, ``"equal"`` or ``"differs"``; empty if the result was not verified."""
        return self.verification.verdict if self.verification else ""

    @property
    def ignores(self) -> tuple[str, ...]:
        """Return ``"network"`` and ``"image"`` as far as a verification showed that the maps do not depend on them."""
        return self.verification.ignores if self.verification else ()

    @property
    def notes(self) -> str:
        """Return what readers must know: what the method was tuned on, and what its maps do not depend on."""
        tuned, ignored = ", ".join(self.manifest.tuned_on), " and the ".join(self.ignores)
        return "; ".join([f"tuned on {tuned}"] * bool(tuned) + [f"maps do not depend on the {ignored}"] * bool(ignored))

    @property
    def is_control(self) -> bool:
        """Return whether the method is a control: it says so, or its maps do not depend on the network."""
        return self.manifest.control or "network" in self.ignores


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
    """Check all results of a repository, and read them except for their scores.

    Args:
        repository: A folder with ``METHOD/SUITE@VERSION`` below it.

    Returns:
        The results sorted by folder, and the excluded ones. Labels of different methods that look alike are followed
        by the name of the method.

    Raises:
        ResultError: If there is no result, or ``verified.csv`` is damaged.
    """
    results, excluded = [], []
    for folder in (each.absolute() for each in find_results(repository)):
        name = printable("/".join(folder.parts[-2:]))
        if problems := check(folder):
            excluded.append(ExcludedResult(name, problems[0]))
            continue
        verification = find_verification(folder)
        try:
            manifest = read_manifest(folder)
            facts = read_facts(folder.parent.parent / FACTS / manifest.suite_folder)
        except Exception as error:  # of an earlier version of a suite, which was verified then
            excluded.append(ExcludedResult(name, describe_error(error)))
            continue
        manifest = dataclasses.replace(manifest, label=display_name(manifest))
        results.append(Result(folder, manifest, facts, verification))
    methods: dict[str, set[str]] = {}
    for one in results:
        methods.setdefault(_look(one), set()).add(one.manifest.method)
    return [_told_apart(one) if len(methods[_look(one)]) > 1 else one for one in results], excluded


def _look(result: Result) -> str:
    return to_latin(result.manifest.label).casefold()


def _told_apart(result: Result) -> Result:
    label = f"{result.manifest.label} ({result.manifest.method})"
    return dataclasses.replace(result, manifest=dataclasses.replace(result.manifest, label=label))


def display_name(method: Manifest) -> str:
    """Return the label of a method; of an entry of a suite that has none, its explainer's label and its parameters.

    Example:
        >>> about = {"suite": "certified", "version": "", "submitted": ""}
        >>> display_name(Manifest("lime-50", "lime-50", "lime", parameters={"n_samples": 50}, **about))
        'LIME (n_samples = 50)'
        >>> display_name(Manifest("lime-1000", "lime-1000", "lime", parameters={"budget": 1000}, **about))
        'LIME (1,000 passes)'
    """
    if method.label != method.method or method.entry not in EXPLAINERS:
        return method.label
    label = EXPLAINERS.resolve(method.entry).info.label
    parameters = ", ".join(
        f"{value:,} passes" if name == "budget" and isinstance(value, int) else f"{name} = {value}"
        for name, value in method.parameters.items()
    )
    return f"{label} ({parameters})" if parameters else str(label)


def by_suite(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group comparable results by ``SUITE@VERSION``, sorted."""
    groups: dict[str, list[Result]] = {}
    for one in sorted(results, key=lambda one: (one.manifest.suite, one.manifest.version)):
        groups.setdefault(one.manifest.suite_folder, []).append(one)
    return groups
