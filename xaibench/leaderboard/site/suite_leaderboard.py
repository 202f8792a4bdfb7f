"""Merge the results of a suite into one run, so that the report's code computes its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import tomli_w

from xaibench.component.parameters import Frozen
from xaibench.leaderboard.manifest import ResultError, describe_error
from xaibench.leaderboard.scores import read_scores
from xaibench.leaderboard.site.read import ExcludedResult, Result
from xaibench.leaderboard.suites import official_suite
from xaibench.runfolder.descriptions import Environment, PartDescription
from xaibench.runfolder.schema import FAILURES, SCORES
from xaibench.scores.leaderboards import Boards, boards
from xaibench.scores.results import RunResults, assemble_results
from xaibench.scores.summary import UnscoredMaps, count_unscored, infer, summarize

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
