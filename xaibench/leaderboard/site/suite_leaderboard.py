"""The results of a suite as one run: its numbers are then those that the report page has, worked out in one place."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from xaibench.leaderboard.site.read import ExcludedResult, Result, SuiteKey, most_common
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import Boards, boards
from xaibench.report.numbers.ranks_and_agreement import Ranking, rankings
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, assemble_results
from xaibench.runfolder.descriptions import PartDescription, RunParts, read_environment, read_suite
from xaibench.runfolder.tables import ACCURACY, FAILURES, SAMPLES, SCORES, TRAININGS, RunFolderError

#: What is read of scores: all but why some are undefined, in the room that it needs.
_COLUMNS = [name for name in SCORES.columns if name != "reason"]
_SMALL = {"sample": "int32", "seed": "int32"}


@dataclass(frozen=True)
class SuiteLeaderboards:
    """The methods of one suite, side by side.

    Attributes:
        key: Which suite, version and round.
        results: By method.
        run: All scores, the methods as its explainers.
        summary: Of each cell, method and metric.
        pairs: Every two methods in every cell.
        boards: The leaderboards by kind of truth.
        ranks: The mean ranks by metric, with what tells them apart.
    """

    key: SuiteKey
    results: dict[str, Result]
    run: RunResults
    summary: pd.DataFrame
    pairs: pd.DataFrame
    boards: dict[str, Boards]
    ranks: dict[str, Ranking]


def build_leaderboards(
    key: SuiteKey, results: Sequence[Result]
) -> tuple[SuiteLeaderboards | None, list[ExcludedResult]]:
    """Read the scores of a suite, a result at a time, and work out its numbers.

    Args:
        key: Which suite.
        results: Its results.

    Returns:
        The board, None where no result has scores that can be read; and the results that were left out.
    """
    tables, shown, left_out = [], [], []
    for one in results:
        try:
            tables.append(_scores(one))
            shown.append(one)
        except RunFolderError as error:
            left_out.append(ExcludedResult(one.manifest.folder, str(error)))
    if not shown:
        return None, left_out
    run = _as_run(shown, _together(tables))
    summary, pairs = infer(run, summarize(run))
    found = {one.manifest.method.name: one for one in shown}
    return SuiteLeaderboards(key, found, run, summary, pairs, boards(run, summary), rankings(run, summary)), left_out


def _scores(result: Result) -> pd.DataFrame:
    rows = SCORES.read(result.folder, _COLUMNS).astype(_SMALL)
    names = set(rows["explainer"].unique())
    name = result.manifest.method.name
    if names != {name}:
        raise RunFolderError(
            f"{result.folder / SCORES.name} has scores of {', '.join(sorted(names)) or 'nothing'}; expected those of "
            f"{name} alone. Submit the method again."
        )
    return rows


def _together(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """One table of all, column by column: what is put together is let go of, so that it is there once."""
    columns = {}
    for name in _COLUMNS:
        parts = [table.pop(name) for table in tables]
        if name in SCORES.text:
            categories = pd.Index(list(dict.fromkeys(one for part in parts for one in part.cat.categories)))
            parts = [part.cat.set_categories(categories) for part in parts]
        columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def _as_run(results: Sequence[Result], scores: pd.DataFrame) -> RunResults:
    """What most results say of suite, networks and metrics: a single one cannot rename them for all."""
    grouped = next((one for one in results if (one.folder / SAMPLES.name).is_file()), results[0])
    parts = RunParts(
        suite=results[0].key.name,
        title=most_common(one.manifest.suite.title for one in results),
        citation=most_common(one.parts.citation for one in results),
        explainers={one.manifest.method.name: _method(one) for one in results},
        models=_agreed([one.parts.models for one in results]),
        metrics=_agreed([one.parts.metrics for one in results]),
    )
    upwards = {name: part.higher_is_better for name, part in parts.metrics.items()}
    scores["higher_is_better"] = scores["metric"].map(upwards).astype(bool)
    return assemble_results(
        grouped.folder,
        parts,
        scores,
        accuracy=ACCURACY.read(results[0].folder),
        trainings=TRAININGS.read(results[0].folder),
        failures=FAILURES.read(results[0].folder),
        environment=read_environment(results[0].folder),
        suite_toml=most_common(read_suite(one.folder) for one in results),
    )


def _method(result: Result) -> PartDescription:
    method = result.manifest.method
    own = result.parts.explainers.get(method.name) or PartDescription(method.name, method.label)
    words = {"label": method.label, "control": method.control, "citation": method.citation, "passes": method.passes}
    return dataclasses.replace(own, **words, own=False)  # type: ignore[arg-type]


def _agreed(kinds: Sequence[Mapping[str, PartDescription]]) -> dict[str, PartDescription]:
    names = list(dict.fromkeys(name for parts in kinds for name in parts))
    found = {}
    for name in names:
        said = most_common(json.dumps(parts[name].plain(), sort_keys=True) for parts in kinds if name in parts)
        found[name] = PartDescription.of(name, json.loads(said))
    return found
