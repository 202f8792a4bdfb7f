"""Read the results of a repository that pass the check, and merge those of a suite into one run.

The report's code computes the numbers of that run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import tomli_w

from xaibench.core.checks import to_latin
from xaibench.core.messages import printable
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.facts import FACTS, SuiteFacts, read_facts
from xaibench.leaderboard.repository import (
    Manifest,
    ResultError,
    Verification,
    describe_error,
    find_results,
    find_verification,
    read_manifest,
)
from xaibench.leaderboard.scores import read_scores
from xaibench.leaderboard.suites import official_suite
from xaibench.registry.parameters import Frozen
from xaibench.runfolder.descriptions import Environment, PartDescription
from xaibench.runfolder.schema import FAILURES, SCORES
from xaibench.scores.leaderboards import Boards, boards
from xaibench.scores.results import RunResults, assemble_results
from xaibench.scores.summary import UnscoredMaps, count_unscored, infer, summarize


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


#: Columns of the scores that are merged (the reason is counted first), and smaller types for some.
_COLUMNS = [name for name in SCORES.columns if name not in ("reason", "correct")]
_DTYPES = {"sample": "int32", "seed": "int32"}
#: Largest number of scores of a result.
_MAX_ROWS = 20_000_000


@dataclass(frozen=True)
class SuiteLeaderboards:
    """Methods and leaderboards of one suite.

    Attributes:
        results: Method to result.
        run: All scores, with the methods as explainers.
        summary: One row per cell, method and metric.
        pairs: Paired tests of every two methods in every cell.
        boards: Leaderboard by kind of truth.
        unscored: Maps that were scored as chance, and undefined scores, of the methods that have any.
    """

    results: dict[str, Result]
    run: RunResults
    summary: pd.DataFrame
    pairs: pd.DataFrame
    boards: dict[str, Boards]
    unscored: dict[str, UnscoredMaps]


def build_leaderboards(results: Sequence[Result]) -> tuple[SuiteLeaderboards | None, list[ExcludedResult]]:
    """Read the scores of a suite, one result at a time, and compute its leaderboards.

    Args:
        results: Its results.

    Returns:
        The leaderboards (None if no scores can be read), and the excluded results.
    """
    tables, shown, left_out = [], [], []
    unscored: dict[str, UnscoredMaps] = {}
    for one in results:
        try:
            rows = read_scores(one.folder, _MAX_ROWS, list(SCORES.columns)).astype(_DTYPES)
            unscored |= count_unscored(rows)
            tables.append(rows[_COLUMNS])
            shown.append(one)
        except Exception as error:  # rows of results of earlier versions of the suite were not checked before
            left_out.append(ExcludedResult(one.manifest.folder, describe_error(error)))
    if not shown:
        return None, left_out
    run = _merge_into_run(shown, _concatenate(tables))
    summary, pairs = infer(run, summarize(run))
    by_method = {one.manifest.method: one for one in shown}
    return SuiteLeaderboards(by_method, run, summary, pairs, boards(run, summary, pairs), unscored), left_out


def _concatenate(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables column by column, freeing each column so that it is in memory only once."""
    columns = {}
    for name in _COLUMNS:
        parts = [table.pop(name) for table in tables]
        if name in SCORES.text:
            categories = pd.Index(list(dict.fromkeys(one for part in parts for one in part.cat.categories)))
            parts = [part.cat.set_categories(categories) for part in parts]
        columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def _merge_into_run(results: Sequence[Result], scores: pd.DataFrame) -> RunResults:
    """Merge results into a run with the facts about their suite, which no single result can change."""
    facts = results[0].facts
    parts = dataclasses.replace(
        facts.parts, explainers={one.manifest.method: _method_description(one) for one in results}
    )
    upwards = {name: part.higher_is_better for name, part in parts.metrics.items()}
    scores["higher_is_better"] = scores["metric"].map(upwards).astype(bool)
    return assemble_results(
        facts.folder,
        parts,
        scores,
        accuracy=facts.accuracy,
        trainings=facts.trainings,
        samples=facts.samples,
        failures=FAILURES.empty(),
        environment=Environment(),
        suite_toml=_suite_text(results[0].manifest.suite),
    )


def _suite_text(name: str) -> str:
    """Return the suite as TOML; empty if this version of the library does not have it."""
    try:
        return tomli_w.dumps(official_suite(name).tables)
    except ResultError:
        return ""


def _method_description(result: Result) -> PartDescription:
    method = result.manifest
    return PartDescription(
        method.method,
        method.label,
        control=result.is_control,
        meaning=method.summary,
        citation=method.citation,
        parameters=Frozen(dict(method.parameters)),
        passes=method.passes,
    )
