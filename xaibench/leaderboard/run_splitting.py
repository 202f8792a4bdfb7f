"""Split a run folder into results, one folder per method."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xaibench.core.files import atomic_file
from xaibench.core.messages import listed, unknown
from xaibench.hub.card_text import strip_folders
from xaibench.hub.license import check_license_name
from xaibench.leaderboard.card import bibtex_entry, render_card
from xaibench.leaderboard.manifest import (
    CARD,
    CITATION,
    LICENSE,
    MANIFEST,
    METHOD,
    CodeInfo,
    Manifest,
    MethodInfo,
    ResultError,
    SuiteVersion,
    code_checksum,
    file_checksums,
)
from xaibench.leaderboard.rounds import Round, suite_with_public_seeds
from xaibench.leaderboard.suite_text import (
    count_cells,
    differs_from_official,
    explainer_entry,
    is_generated,
    suite_version,
    without_sets,
)
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE, PartDescription, read_parts
from xaibench.runfolder.sample_file import SAMPLES_FILE, SampleCell, read_samples, to_safetensors
from xaibench.runfolder.tables import ACCURACY, FAILURES, IMAGES, JOBS, SAMPLES, SCORES, TRAININGS, RunFolderError
from xaibench.runner.suites.files import load_suite

#: Largest size of the preview samples in bytes. It is divided equally between the cells of the suite, each of
#: which keeps the first samples of the test split that fit, so that all methods have the same samples.
_MAX_SAMPLE_BYTES = 1 << 20


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
    """Write one result per method of a run: scores, configuration, card and manifest.

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
        ResultError: If a job of the run failed, a method is unknown or has no scores, or the suite of the run is not
            one of the library.
        LicenseError: If a license name is malformed.
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
    found = []
    for name in (one for one in names if one in scores):
        entry = explainer_entry(text, name)
        parameters = {"parameters": {key: value for key, value in entry.items() if key != "use"}}
        method = _method_info(parts.explainers[name], uses[name], parameters | dict((about or {}).get(name, {})))
        check_license_name(method.license or None)
        manifest = Manifest(method, version, day, {}, code or CodeInfo(), drawn.name if drawn else "")
        found.append(_write_result(folder, Path(repository), manifest, name, scores[name], source))
    return found


def _suite_version(folder: Path, text: str, drawn: Round | None) -> tuple[SuiteVersion, dict[str, str]]:
    suite, _ = load_suite(folder / SUITE)
    uses = {part.name: part.use for part in suite.explainers}
    if drawn is not None:
        text = suite_with_public_seeds(text, suite.name, drawn)
    if differs_from_official(text, suite.name):
        raise ResultError(
            f"The run in {folder} is of another suite than {suite.name} of the library: other samples, seeds, data, "
            "networks or metrics. Run the suite as it is, without --images; --explainers is for methods of your own."
        )
    return SuiteVersion(suite.name, suite.title, suite_version(suite.name)), uses


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
    repository: Path,
    manifest: Manifest,
    name: str,
    scores: pa.Table,
    source: Path | None,
) -> Path:
    """Write to a temporary folder first, so that a result is either complete or absent."""
    target = repository / manifest.folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as place:
        folder = Path(place) / "result"
        folder.mkdir()
        _write_tables(run, folder, name, manifest.method.name, scores)
        _write_texts(run, folder, manifest, name)
        if source is not None:
            shutil.copytree(source, folder / METHOD, ignore=shutil.ignore_patterns("__pycache__", ".git", ".*"))
        (folder / CITATION).write_text(bibtex_entry(manifest), encoding="utf-8")
        (folder / LICENSE).write_text(f"{manifest.method.license or 'not stated'}\n", encoding="utf-8")
        code = dataclasses.replace(manifest.code, sha256=code_checksum(file_checksums(folder)))
        manifest = dataclasses.replace(manifest, code=code)
        (folder / CARD).write_text(render_card(manifest, folder), encoding="utf-8")
        manifest = dataclasses.replace(manifest, files=file_checksums(folder))
        with atomic_file(folder / MANIFEST) as stream:
            stream.write(manifest.to_json())
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
    return target


def _write_tables(run: Path, folder: Path, name: str, shown: str, scores: pa.Table) -> None:
    place = scores.column_names.index("explainer")
    scores = scores.set_column(place, "explainer", pa.array([shown] * len(scores), pa.string()).dictionary_encode())
    pq.write_table(scores, folder / SCORES.name, compression="zstd", write_page_checksum=True)
    for table in (IMAGES, TRAININGS, ACCURACY):
        if (run / table.name).exists():
            shutil.copyfile(run / table.name, folder / table.name)
    if (run / SAMPLES.name).exists():  # groups for the intervals, without file names
        people = SAMPLES.read(run).assign(id="", file="")[list(SAMPLES.columns)]
        (folder / SAMPLES.name).write_text(people.to_csv(index=False), encoding="utf-8")
    jobs = JOBS.read(run)
    own = jobs[jobs["explainer"].eq(name)].assign(worker="", explainer=shown)
    rows = ({str(name): value for name, value in row.items()} for row in own[list(JOBS.columns)].to_dict("records"))
    (folder / JOBS.name).write_bytes(JOBS.to_csv(rows))
    cells = [cell for cell in read_samples(run) if name in cell.explainers and _is_publishable(cell.dataset)]
    room = _MAX_SAMPLE_BYTES // count_cells(_executed_suite(run))
    if pictures := _encode_samples([_keep_method(cell, name, shown) for cell in cells], room):
        (folder / SAMPLES_FILE).write_bytes(pictures)


def _encode_samples(cells: Sequence[SampleCell], room: int) -> bytes:
    """Encode as many samples per cell as fit into ``room`` bytes; empty if one sample per cell does not fit."""

    def largest(count: int) -> int:
        return max(len(to_safetensors([cell.lowest(count)])) for cell in cells)

    most = max((len(cell.samples) for cell in cells), default=0)
    count = bisect.bisect_right(range(1, most + 1), room, key=largest)
    return to_safetensors([cell.lowest(count) for cell in cells]) if count else b""


def _is_publishable(dataset: str) -> bool:
    """Return whether images of a data set may be published: generated ones without photographs."""
    return is_generated(dataset) and "imagenet" not in dataset


def _keep_method(cell: SampleCell, name: str, shown: str) -> SampleCell:
    which = [cell.explainers.index(name)]
    return dataclasses.replace(
        cell, explainers=(shown,), maps=cell.maps[:, which], means=cell.means[which[: len(cell.means)]]
    )


def _write_texts(run: Path, folder: Path, manifest: Manifest, name: str) -> None:
    parts, method = read_parts(run), manifest.method
    words = dataclasses.replace(parts.explainers[name], name=method.name, label=method.label)
    described = dataclasses.replace(parts, explainers={method.name: words})
    (folder / PARTS).write_bytes(described.to_json())
    ran = strip_folders((run / ENVIRONMENT).read_text(encoding="utf-8"))
    (folder / ENVIRONMENT).write_text(ran, encoding="utf-8")
