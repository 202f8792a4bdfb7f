"""Check a result without running anything: complete, unmodified, and consistent with its suite."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import listed
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.manifest import (
    METHOD,
    Manifest,
    ResultError,
    code_checksum,
    read_manifest,
)
from xaibench.leaderboard.pictures import decode_sheet
from xaibench.leaderboard.rounds import find_round
from xaibench.leaderboard.score_files import PICTURE, read_note, read_scores
from xaibench.leaderboard.suite_text import official_plan, suite_version
from xaibench.leaderboard.verdicts import VERDICTS, find_record
from xaibench.report.numbers.summary import is_scored_as_chance
from xaibench.runfolder.tables import SCORES, RunFolderError
from xaibench.runner.parts import part_info
from xaibench.runner.plan.plan import Plan
from xaibench.runner.suites.schema import Suite

if TYPE_CHECKING:
    import pandas as pd

#: Largest accepted size of a result, in bytes.
_MAX_BYTES = 100 << 20
#: Largest size of the file of a method, in bytes.
_MAX_CODE_BYTES = 1 << 20
#: Access tokens of the Hub, GitHub, PyPI and AWS, and private keys.
_TOKEN = re.compile(
    rb"hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|pypi-[\w-]{50,}|AKIA[A-Z0-9]{16}"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def check(folder: str | Path, *, in_repository: bool = True, earlier: bool = False) -> list[str]:
    """Check a result without running anything.

    Args:
        folder: Folder of the result.
        in_repository: Whether the folder must be at its place in a results repository.
        earlier: Accept a result of an earlier version of its suite if it was verified at that version. It cannot be run
            again, but is kept for the history of its method.

    Returns:
        One sentence per problem; empty if the result is accepted.
    """
    place = Path(folder)
    if found := list(_check_files(place)):  # first, since it limits the size of what is read
        return found
    try:
        manifest = read_manifest(place)
    except ResultError as error:
        return [str(error)]
    if in_repository and place.resolve().parts[-2:] != tuple(manifest.folder.split("/")):
        here = "/".join(place.resolve().parts[-2:])
        found.append(f"it is at {here}, but its manifest says {manifest.folder}; move it there.")
    if not found:
        found += _check_code(place, manifest)
    if not found:
        found += _check_suite(place, manifest)
        if found and earlier and _was_verified(place):
            return []
    if not found:
        found += _check_scores(place, manifest)
    return found


def _was_verified(folder: Path) -> bool:
    record = find_record(folder)
    found = record.verification if record is not None else None
    return found is not None and found.verdict in VERDICTS[:-1]


def _check_files(folder: Path) -> Iterator[str]:
    if links := [path.name for path in folder.rglob("*") if path.is_symlink()]:
        yield f"{listed(links, 3)} are links; a result may contain regular files only."
        return
    if (size := sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())) > _MAX_BYTES:
        yield f"its size is {size >> 20} MiB; expected at most {_MAX_BYTES >> 20}."
        return
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        name = path.relative_to(folder).as_posix()
        if name != SCORES.name and not name.startswith(f"{METHOD}/"):
            yield f"{name} is not part of a result, which has {SCORES.name} and the folder {METHOD}; remove it."
        if _TOKEN.search(path.read_bytes()):
            yield f"{name} contains what looks like a token or private key; remove it, and revoke the token."


def _check_code(folder: Path, manifest: Manifest) -> Iterator[str]:
    if (found := code_checksum(folder)) != manifest.code.sha256:
        yield (
            f"the files below {METHOD} were modified: their sha256 is {found[:12] or 'empty'}, not "
            f"{manifest.code.sha256[:12] or 'empty'}; submit the method again."
        )
    entry = manifest.method.entry
    if entry in EXPLAINERS:  # a name lookup, which imports nothing
        if (folder / METHOD).exists():
            yield f"{entry} is an explainer of the library, but {METHOD} contains code; rename the method."
        return
    module, _, attribute = entry.partition(":")
    path = (folder / METHOD).joinpath(*module.split("."))
    file = next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)
    if file is None or not attribute:
        yield f"entry is {entry!r}: there is no {path.relative_to(folder)}.py; expected module:name below {METHOD}."
        return
    try:
        if file.stat().st_size > _MAX_CODE_BYTES:
            yield f"{file.relative_to(folder)} has more than {_MAX_CODE_BYTES:,} bytes."
            return
        ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # a parser that runs out of its stack
        yield f"{file.relative_to(folder)} is not valid Python: {error or type(error).__name__}."


def _check_suite(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        if manifest.round:
            find_round(folder, manifest.round)
        version = suite_version(manifest.suite.name)
    except ResultError as error:
        yield str(error)
        return
    if version != manifest.suite.version:
        yield (
            f"{manifest.suite.name} of this xaibench is version {version}, not {manifest.suite.version}: its data, "
            "networks or metrics have changed. Submit the method again."
        )


def _check_scores(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        scores = read_scores(folder)
        if picture := read_note(folder, PICTURE):
            decode_sheet(picture, f"The picture in {SCORES.name}")
    except (RunFolderError, ResultError) as error:
        yield str(error)
        return
    if (names := sorted(map(str, scores["explainer"].unique()))) != [manifest.method.name]:
        yield f"{SCORES.name} has scores of {listed(names, 3)}; expected only {manifest.method.name}."
        return
    plan = official_plan(manifest.suite.name)
    yield from _check_rows(scores)
    yield from _check_values(scores, plan.suite)
    yield from _check_cells(scores, plan)
    seeds = list(plan.suite.data.seeds)
    if manifest.round:
        seeds = find_round(folder, manifest.round).seeds(len(seeds))
    if (found := sorted(set(scores["data_seed"].astype(int)))) != sorted(seeds):
        yield f"{SCORES.name} has scores of the data seeds {listed(found, 3)}; expected {listed(sorted(seeds), 3)}."


def _check_rows(scores: pd.DataFrame) -> Iterator[str]:
    key = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
    if again := int(scores.duplicated(key).sum()):
        yield f"{SCORES.name} has {again} duplicate rows."
    counts = scores.groupby(key[:-1], observed=True)["correct"].nunique()
    if (counts > 1).any():
        yield f"{SCORES.name} marks {int((counts > 1).sum())} samples as both correct and incorrect."
    unsaid = scores["value"].isna() & scores["reason"].astype(str).eq("")
    if unsaid.any():
        yield f"{SCORES.name} has {int(unsaid.sum())} undefined scores without a reason."
    said = scores["value"].notna() & scores["reason"].astype(str).ne("") & ~is_scored_as_chance(scores["reason"])
    if said.any():
        yield f"{SCORES.name} has {int(said.sum())} defined scores with the reason of an undefined one."


def _check_values(scores: pd.DataFrame, suite: Suite) -> Iterator[str]:
    """Compare values with the library's metadata of each metric, not with the metadata in the result."""
    for part in suite.metrics:
        info: Any = part_info("metric", part.use)
        own = scores[scores["metric"] == part.name]
        if info is None or not len(own):
            continue
        low, high = info.range
        outside = (own["value"] < low - 1e-9) | (own["value"] > high + 1e-9)
        if outside.any():
            count, value = int(outside.sum()), own["value"][outside].iloc[0]
            yield f"{count} scores of {part.name}, such as {value:g}, are outside its range [{low:g}, {high:g}]."
        if (own["higher_is_better"] != info.higher_is_better).any():
            yield f"{SCORES.name} has the wrong direction (higher_is_better) for {part.name}."


def _check_cells(scores: pd.DataFrame, plan: Plan) -> Iterator[str]:
    expected = {(cell.dataset_name, cell.model, job.metric.name) for cell in plan.cells for _, job in cell.scores}
    cells = scores[["dataset", "model", "metric"]].drop_duplicates().astype(str)
    there = set(cells.itertuples(index=False, name=None))
    if more := sorted(there - expected):
        yield f"{SCORES.name} has {len(more)} cells that are not in the suite, such as {' '.join(more[0])}."
    if lacking := sorted(expected - there):
        models = {model for _, model, _ in lacking} - {model for _, model, _ in there}
        whole = {(dataset, model) for dataset, model, _ in lacking}
        some = whole & {(dataset, model) for dataset, model, _ in there}
        # A method may lack all scores of a network that it does not support, but not some of them.
        if some or not models:
            yield f"{SCORES.name} lacks {len(lacking)} cells of the suite, such as {' '.join(lacking[0])}."
    most = plan.suite.explaining.samples
    if isinstance(most, int) and len(scores) and (last := int(scores["sample"].max())) >= most:
        yield f"{SCORES.name} has a sample {last}; the suite explains the first {most}."
