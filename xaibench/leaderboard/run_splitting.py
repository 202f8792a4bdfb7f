"""Split a run folder into results, one folder per method."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.facts import FACTS, shown_samples, write_facts
from xaibench.leaderboard.repository import RESULT, Manifest, ResultError
from xaibench.leaderboard.scores import draw_map_sheet, write_scores
from xaibench.leaderboard.suites import official_suite
from xaibench.runfolder.descriptions import PARTS, SUITE, read_environment, read_parts
from xaibench.runfolder.schema import FAILURES, JOBS, SCORES, RunFolderError
from xaibench.runner.suites.parsing import load_suite


def split_run(
    run: str | os.PathLike[str], repository: str | os.PathLike[str], *, methods: Collection[str] | None = None
) -> list[Path]:
    """Write one result per method of a run, and the facts about its suite if the repository lacks them.

    Args:
        run: Folder of a finished run.
        repository: Results repository. Each result is written to ``METHOD/SUITE@VERSION`` and replaces an existing one.
        methods: Names of the explainers to write. Default: all ranked explainers and controls that have scores.

    Returns:
        The folders of the results.

    Raises:
        RunFolderError: If the folder is not a run folder, or one of its files is damaged.
        ResultError: If a job of the run failed, a method is unknown or has no scores, the suite of the run is not
            one of the library, or the repository has results of the suite on other images or networks.
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
    names = [name for name, part in parts.explainers.items() if not part.reference] if methods is None else methods
    for name in names:
        if name not in parts.explainers:
            raise ResultError(unknown(f"{folder} has no method", name, parts.explainers))
    for name, other in itertools.combinations(names, 2):
        if slugify(name) == slugify(other):
            raise ResultError(
                f"{folder}: the results of {name} and {other} would have the same folder, {slugify(name)}; rename "
                "one of them."
            )
    ran = read_environment(folder)
    suite, _ = load_suite(folder / SUITE)
    official = official_suite(suite.name)
    if differences := official.differences(suite, ran.get("missing", ())):
        raise ResultError(
            f"The run in {folder} is of another suite than {suite.name} of the library: {listed(differences, 3)}. Run "
            "the suite as it is; only --explainers may be chosen."
        )
    scores = _scores_by_method(folder, names)
    if methods is not None and (silent := [name for name in names if name not in scores]):
        raise ResultError(f"{folder} has no scores of {listed(silent)}, which support none of its networks.")
    facts = write_facts(folder, Path(repository) / FACTS / f"{suite.name}@{official.version}")
    jobs, cells, written = JOBS.read(folder), shown_samples(folder), []
    machine = ran.get("machine", {})
    hardware = (str(machine.get("processor") or ""), *map(str, machine.get("gpus") or []))
    for part in (part for part in suite.explainers if part.name in scores):
        described, rows = parts.explainers[part.name], scores[part.name]
        mine = jobs[(jobs["stage"] == "explain") & jobs["explainer"].eq(part.name) & ~jobs["failed"].astype(bool)]
        manifest = Manifest(
            method=slugify(part.name),
            label=described.label,
            entry=part.use,
            suite=suite.name,
            version=official.version,
            submitted=datetime.now(UTC).date().isoformat(),
            summary=described.meaning,
            citation=described.citation,
            license="" if described.own else "mit",
            passes=described.passes,
            control=described.control,
            parameters=dict(part.parameters),
            versions={"xaibench": str(ran.get("xaibench", "")), **ran.get("versions", {})},
            machine=" · ".join(filter(None, hardware)),
            seconds=round(float(mine.drop_duplicates("key", keep="last")["seconds"].sum()), 3),
            maps=len(rows) // max(1, len(pc.unique(rows["metric"]))),
        )
        picture = draw_map_sheet(cells, part.name, facts.layout) if facts.layout is not None else b""
        written.append(_write_result(Path(repository) / manifest.folder, manifest, rows, picture))
    return written


def slugify(name: str) -> str:
    """Turn a name into a folder name.

    Example:
        >>> slugify("My Method (fast)")
        'my-method-fast'
        >>> slugify("gradcam++")
        'gradcamplusplus'
    """
    letters = "".join(
        letter if letter.isalnum() or letter == "_" else " " for letter in name.lower().replace("+", "plus")
    )
    return "-".join(letters.encode("ascii", "ignore").decode().split())[:64] or "method"


def _scores_by_method(folder: Path, names: Collection[str]) -> dict[str, pa.Table]:
    """Read the scores of each method in one pass over the row groups."""
    tables: dict[str, list[pa.Table]] = {name: [] for name in names}
    SCORES.read(folder, ["explainer"])  # raises if the file is damaged or malformed
    text = [column for column in pq.read_schema(folder / SCORES.name).names if column in SCORES.text]
    with pq.ParquetFile(folder / SCORES.name, read_dictionary=text) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number).replace_schema_metadata()
            for name in set(pc.unique(group["explainer"]).to_pylist()) & tables.keys():
                tables[name].append(group.filter(pc.equal(group["explainer"], name)))
    return {name: pa.concat_tables(groups).unify_dictionaries() for name, groups in tables.items() if groups}


def _write_result(target: Path, manifest: Manifest, scores: pa.Table, picture: bytes) -> Path:
    """Write to a temporary folder first, so that a result is either complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as temporary:
        folder = Path(temporary) / "result"
        folder.mkdir()
        method = pa.array([manifest.method] * len(scores), pa.string()).dictionary_encode()
        write_scores(scores.set_column(scores.column_names.index("explainer"), "explainer", method), folder, picture)
        (folder / RESULT).write_bytes(manifest.to_json())
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
    return target
