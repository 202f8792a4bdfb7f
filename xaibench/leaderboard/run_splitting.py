"""Split a run folder into results, one folder per method."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.manifest import (
    METHOD,
    CodeInfo,
    Manifest,
    MethodInfo,
    ResultError,
    RunInfo,
    SuiteVersion,
    code_checksum,
)
from xaibench.leaderboard.pictures import SheetLayout, draw_map_sheet
from xaibench.leaderboard.rounds import Round, suite_with_public_seeds
from xaibench.leaderboard.score_files import MANIFEST, PICTURE, write_scores
from xaibench.leaderboard.suite_facts import facts_folder, shown_samples, write_facts
from xaibench.leaderboard.suite_text import differences_from_official, explainer_entry, suite_version, without_sets
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE, PartDescription, read_environment, read_parts
from xaibench.runfolder.sample_file import SampleCell
from xaibench.runfolder.tables import FAILURES, JOBS, SCORES, RunFolderError
from xaibench.runner.suites.files import load_suite


def split_run(
    run: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    *,
    methods: Collection[str] | None = None,
    about: Mapping[str, Mapping[str, Any]] | None = None,
    source: Path | None = None,
    code: CodeInfo | None = None,
    drawn: Round | None = None,
    submitted: str | None = None,
) -> list[Path]:
    """Write one result per method of a run, and the facts about its suite if the repository lacks them.

    Args:
        run: Folder of a finished run.
        repository: Results repository. Each result is written to ``METHOD/SUITE@VERSION`` and replaces an existing one.
        methods: Names of the explainers to write. Default: all ranked explainers and controls that have scores.
        about: ``{method: fields of MethodInfo}`` that differ from the run, such as ``license``.
        source: Folder with the source of a method that is not part of the library.
        code: Repository and commit of that source.
        drawn: The round whose seeds the run used; None for the suite's own seeds.
        submitted: Date of the submission. Default: today.

    Returns:
        The folders of the results.

    Raises:
        RunFolderError: If the folder is not a run folder, or one of its files is damaged.
        ResultError: If a job of the run failed, a method is unknown or has no scores, the suite of the run is not
            one of the library, or the repository has results of the suite on other images.
    """
    folder = Path(run)
    parts = read_parts(folder)
    if not parts.explainers or not (folder / SCORES.name).exists():
        raise RunFolderError(
            f"{folder} is not a run folder: it lacks {PARTS} or {SCORES.name}. `xaibench run` writes one."
        )
    if len(failed := FAILURES.read(folder)):
        raise ResultError(
            f"{folder}: {len(failed)} jobs failed ({listed(failed['job'], 2)}); expected none. Run it again."
        )
    ranked = [name for name, part in parts.explainers.items() if not part.reference]
    names = ranked if methods is None else list(methods)
    for name in names:
        if name not in parts.explainers:
            raise ResultError(unknown(f"{folder} has no method", name, parts.explainers))
    _check_names_differ(folder, names)
    text = _executed_suite(folder)
    version, uses = _suite_version(folder, text, drawn)
    day = submitted or datetime.now(UTC).date().isoformat()
    scores = _scores_by_method(folder, names)
    if methods is not None and (silent := [name for name in names if name not in scores]):
        raise ResultError(f"{folder} has no scores of {listed(silent)}, which support none of its networks.")
    found, cells = [], shown_samples(folder)
    for name in (one for one in names if one in scores):
        entry = explainer_entry(text, name)
        parameters = {"parameters": {key: value for key, value in entry.items() if key != "use"}}
        method = _method_info(parts.explainers[name], uses[name], parameters | dict((about or {}).get(name, {})))
        manifest = Manifest(method, version, day, code or CodeInfo(), drawn.name if drawn else "")
        facts = write_facts(folder, facts_folder(Path(repository), manifest))
        pictures = _Pictures(cells, facts.layout)
        target = Path(repository) / manifest.folder
        found.append(_write_result(folder, target, manifest, name, scores[name], source, pictures))
    return found


def _suite_version(folder: Path, text: str, drawn: Round | None) -> tuple[SuiteVersion, dict[str, str]]:
    suite, _ = load_suite(folder / SUITE)
    uses = {part.name: part.use for part in suite.explainers}
    if drawn is not None:
        text = suite_with_public_seeds(text, suite.name, drawn)
    if differences := differences_from_official(text, suite.name):
        raise ResultError(
            f"The run in {folder} is of another suite than {suite.name} of the library: {listed(differences, 3)}. Run "
            "the suite as it is; only --explainers may be chosen."
        )
    return SuiteVersion(suite.name, suite_version(suite.name)), uses


def _executed_suite(run: Path) -> str:
    """Return the suite without the data sets that were missing on this machine (those on photographs)."""
    ran: dict[str, Any] = json.loads((run / ENVIRONMENT).read_text(encoding="utf-8"))
    return without_sets((run / SUITE).read_text(encoding="utf-8"), ran.get("missing", ()))


def _method_info(words: PartDescription, use: str, about: Mapping[str, Any]) -> MethodInfo:
    known = {"summary": words.meaning, "citation": words.citation, "passes": words.passes, "control": words.control}
    license = {} if words.own else {"license": "mit"}
    return MethodInfo(**{"name": slugify(words.name), "label": words.label, "entry": use, **known, **license, **about})


def slugify(name: str) -> str:
    """Turn a name into a folder name.

    Example:
        >>> slugify("My Method (fast)")
        'my-method-fast'
        >>> slugify("gradcam++")
        'gradcamplusplus'
    """
    kept = "".join(
        letter if letter.isalnum() or letter in "_." else " " for letter in name.lower().replace("+", "plus")
    )
    return "-".join(kept.encode("ascii", "ignore").decode().split())[:64] or "method"


def _check_names_differ(run: Path, names: Collection[str]) -> None:
    for name, other in itertools.combinations(names, 2):
        if slugify(name) == slugify(other):
            raise ResultError(
                f"{run}: the results of {name} and {other} would have the same folder, {slugify(name)}; rename "
                "one of them."
            )


def _scores_by_method(folder: Path, names: Collection[str]) -> dict[str, pa.Table]:
    """Read the scores of each method in one pass over the row groups."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in names}
    SCORES.read(folder, ["explainer"])  # raises if the file is damaged or malformed
    text = [column for column in pq.read_schema(folder / SCORES.name).names if column in SCORES.text]
    with pq.ParquetFile(folder / SCORES.name, read_dictionary=text) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            group = group.replace_schema_metadata()
            for name in set(pc.unique(group["explainer"]).to_pylist()) & parts.keys():
                parts[name].append(group.filter(pc.equal(group["explainer"], name)))
    return {name: pa.concat_tables(found).unify_dictionaries() for name, found in parts.items() if found}


def _write_result(
    run: Path,
    target: Path,
    manifest: Manifest,
    name: str,
    scores: pa.Table,
    source: Path | None,
    pictures: _Pictures,
) -> Path:
    """Write to a temporary folder first, so that a result is either complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as place:
        folder = Path(place) / "result"
        folder.mkdir()
        shown = pa.array([manifest.method.name] * len(scores), pa.string()).dictionary_encode()
        if source is not None:
            shutil.copytree(source, folder / METHOD, ignore=shutil.ignore_patterns("__pycache__", ".git", ".*"))
        code = dataclasses.replace(manifest.code, sha256=code_checksum(folder))
        made = _run_info(run, name, len(scores) // max(1, len(pc.unique(scores["metric"]))))
        notes = {MANIFEST: dataclasses.replace(manifest, code=code, run=made).to_json()}
        if pictures.layout is not None:
            notes[PICTURE] = draw_map_sheet(pictures.cells, name, pictures.layout)
        write_scores(scores.set_column(scores.column_names.index("explainer"), "explainer", shown), folder, notes)
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
    return target


@dataclass(frozen=True)
class _Pictures:
    """Samples of a run with all maps, and which of them the suite shows."""

    cells: Sequence[SampleCell]
    layout: SheetLayout | None


def _run_info(run: Path, explainer: str, maps: int) -> RunInfo:
    ran, jobs = read_environment(run), JOBS.read(run)
    own = (jobs["stage"] == "explain") & jobs["explainer"].eq(explainer) & ~jobs["failed"].astype(bool)
    seconds = float(jobs[own].drop_duplicates("key", keep="last")["seconds"].sum())
    machine = ran.get("machine", {})
    words = (str(machine.get("processor") or ""), *map(str, machine.get("gpus") or []))
    versions = {"xaibench": str(ran.get("xaibench", "")), **ran.get("versions", {})}
    return RunInfo(versions, " · ".join(filter(None, words)), round(seconds, 3), maps)
