"""Check a result without running anything: its two files are valid, and its rows are those of its suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xaibench.core.messages import listed, printable
from xaibench.leaderboard.facts import FACTS, SuiteFacts, read_facts
from xaibench.leaderboard.repository import RESULT, ResultError, describe_error, find_verification, read_manifest
from xaibench.leaderboard.scores import decode_sheet, read_picture, read_sample_sheet, read_scores
from xaibench.leaderboard.suites import official_suite
from xaibench.runfolder.schema import SCORES
from xaibench.runner.plan.plan import CellPlan
from xaibench.scores.summary import is_scored_as_chance

if TYPE_CHECKING:
    import pandas as pd

_KEY = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
#: Columns that follow from the key.
_DERIVED = ["subset", "variant", "correct", "scored", "higher_is_better", "truth"]


def check(folder: str | Path) -> list[str]:
    """Check a result in a results repository without running or importing anything in it.

    Its scores are compared row by row with the plan of its suite and the facts about it: data sets, data seeds,
    trainings, samples, which of them count, and metrics. A result of an earlier version of its suite is accepted if it
    was verified at that version.

    Args:
        folder: Folder of the result, ``METHOD/SUITE@VERSION`` in its repository.

    Returns:
        One sentence per problem; empty if the result is accepted.
    """
    try:
        return [printable(problem) for problem in _problems(Path(folder).absolute())]
    except Exception as error:  # whatever a file of a stranger causes
        return [describe_error(error)]


def _problems(folder: Path) -> Iterator[str]:
    paths = (folder.parent.parent, folder.parent, folder, *folder.iterdir())
    if links := [path.name for path in paths if path.is_symlink()]:
        yield f"{listed(links, 3)} are links; a results repository may contain regular files only."
        return
    if others := sorted({path.name for path in folder.iterdir()} - {RESULT, SCORES.name}):
        yield f"it has {listed(others, 3)}; expected {RESULT} and {SCORES.name} only."
        return
    manifest = read_manifest(folder)
    if folder.parts[-2:] != tuple(manifest.folder.split("/")):
        yield f"it is at {'/'.join(folder.parts[-2:])}, but its {RESULT} says {manifest.folder}; move it there."
        return
    official = official_suite(manifest.suite)
    if manifest.version != official.version:
        if find_verification(folder) is None:
            yield (
                f"{manifest.suite} of this xaibench is version {official.version}, not {manifest.version}: its data, "
                "networks or metrics have changed. Run the method again."
            )
        return
    facts = read_facts(folder.parent.parent / FACTS / manifest.suite_folder)
    if facts.layout is not None:
        read_sample_sheet(facts.folder, facts.layout)
        if picture := read_picture(folder):
            decode_sheet(picture, f"The picture in {SCORES.name}", facts.layout.size)
    yield from _check_scores(folder, manifest.method, _expected_rows(facts, manifest.suite))


def _check_scores(folder: Path, method: str, expected: pd.DataFrame) -> Iterator[str]:
    scores = read_scores(folder, len(expected))
    if (names := sorted(scores["explainer"].unique())) != [method]:
        yield f"{SCORES.name} has scores of {listed(names, 3)}; expected only {method}."
        return
    if repeated := int(scores.duplicated(_KEY).sum()):
        yield f"{SCORES.name} has {repeated} duplicate rows."
        return
    scores = scores.astype(dict.fromkeys(SCORES.text, str))
    # A method may lack all scores of a network that it does not support, but not some of them.
    expected = expected[expected["model"].isin(scores["model"].unique())]
    rows = expected.merge(scores, on=_KEY, how="outer", suffixes=("_expected", ""), indicator=True)
    for side, problem in (("right_only", "has {} rows that are not in the suite"), ("left_only", "lacks {} rows")):
        if (odd := rows[rows["_merge"] == side]).shape[0]:
            first = ", ".join(f"{name} {odd[name].iloc[0]}" for name in _KEY)
            yield f"{SCORES.name} {problem.format(len(odd))}, such as {first}."
    if set(rows["_merge"]) != {"both"}:
        return
    for name in _DERIVED:
        # What the networks answered is missing in results and facts of older versions.
        differs = (rows[name] != rows[f"{name}_expected"]).fillna(False)
        if (wrong := differs.astype(bool)).any():
            row = rows[wrong].iloc[0]
            first = ", ".join(f"{key} {row[key]}" for key in _KEY)
            yield f"{name} differs from the suite in {int(wrong.sum())} rows of {SCORES.name}, such as {first}."
    value, undefined, explained = rows["value"], rows["value"].isna(), rows["reason"].ne("")
    outside = (value < rows["low"] - 1e-9) | (value > rows["high"] + 1e-9) | np.isinf(value)
    if outside.any():
        metric, worst = rows[outside][["metric", "value"]].iloc[0]
        yield f"{int(outside.sum())} scores are outside the range of their metric, such as {metric} {worst:g}."
    if (undefined & ~explained).any():
        yield f"{SCORES.name} has {int((undefined & ~explained).sum())} undefined scores without a reason."
    wrong = ~undefined & explained & ~is_scored_as_chance(rows["reason"])
    if wrong.any():
        yield f"{SCORES.name} has {int(wrong.sum())} defined scores with the reason of an undefined one."


@lru_cache(maxsize=8)
def _expected_rows(facts: SuiteFacts, name: str) -> pd.DataFrame:
    """Return all rows of a suite, from its plan and the facts about it, which are checked against the plan.

    Raises:
        ResultError: If the facts have other networks or samples than the plan.
    """
    import pandas as pd

    plan = official_suite(name).plan
    networks, tables, count = facts.networks.set_index(["dataset", "model", "data_seed"]).sort_index(), [], 0
    for cell in plan.cells:
        key = (cell.dataset_name, cell.model, cell.data.seed)
        mine = networks.loc[[key]] if key in networks.index else networks.iloc[:0]
        trainings, seeds = [seed for job in cell.trainings for seed in job.seeds], sorted(mine["seed"].astype(int))
        every = plan.suite.explaining.trainings == "all"
        if seeds != sorted(trainings) if every else len(seeds) != 1 or seeds[0] not in trainings:
            raise ResultError(f"{facts.folder} has the trainings {seeds} of {key}; expected {trainings}.")
        tables += [_rows_of_network(cell, plan.suite.explaining.samples, row) for row in mine.to_dict("records")]
        count += len(mine)
    if count != len(networks):
        raise ResultError(f"{facts.folder} has networks that are not in the suite.")
    rows = pd.concat(tables, ignore_index=True)
    directions = dict(zip(rows["metric"], rows["higher_is_better"], strict=True))
    if any(facts.parts.metrics[metric].higher_is_better != direction for metric, direction in directions.items()):
        raise ResultError(f"{facts.folder} has another direction of a metric than the library.")
    return rows


def _rows_of_network(cell: CellPlan, samples: int | str, row: Mapping[Any, Any]) -> pd.DataFrame:
    """Return the rows of one network; ``row`` has a digit per sample of each flag, or none for ``correct``."""
    import pandas as pd

    correct, scored = str(row["correct"]), str(row["scored"])
    most = samples if isinstance(samples, int) else len(scored)
    expected = min(most, cell.data.sizes[2]) if cell.data.dataset.has_n_samples else min(most, len(scored))
    for digits in (scored, correct or scored):
        if set(digits) - {"0", "1"} or len(digits) != expected or not digits:
            raise ResultError(
                f"The facts about {cell.dataset_name} list {len(digits)} samples, not {expected} digits 0 or 1."
            )
    same = cell.names | {"seed": int(row["seed"])}
    tables = []
    for name, score in {score.metric.name: score for _, score in cell.scores}.items():
        info = score.metric.info
        low, high = info.range
        known = {"higher_is_better": bool(info.higher_is_better), "low": low, "high": high}
        answers = np.array([digit == "1" for digit in correct]) if correct else pd.NA
        each = {"sample": np.arange(len(scored)), "correct": answers, "scored": np.array(list(scored)) == "1"}
        table = pd.DataFrame({**same, "metric": name, "truth": cell.truth_of(score), **known, **each})
        tables.append(table.astype({"correct": "boolean"}))
    return pd.concat(tables)
