"""From a run folder to results: one folder for each of its methods."""

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
    check_public_datasets,
    count_cells,
    explainer_entry,
    is_generated,
    suite_version,
    with_explainers,
    without_sets,
)
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE, PartDescription, read_parts
from xaibench.runfolder.sample_file import SAMPLES_FILE, SampleCell, read_samples, to_safetensors
from xaibench.runfolder.tables import ACCURACY, FAILURES, IMAGES, JOBS, SAMPLES, SCORES, TRAININGS, RunFolderError
from xaibench.runner.suites.files import load_suite

#: Pictures of samples are at most so large. Each cell of the suite has its part, and of every cell as many of the first
#: of the test split go along as fit into it: methods have the same ones, whichever cells they can treat.
_MOST_PICTURES = 1 << 20


def split_run(
    run: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    *,
    methods: Collection[str] | None = None,
    about: Mapping[str, Mapping[str, Any]] | None = None,
    source: Path | None = None,
    code: CodeInfo | None = None,
    drawn: Round | None = None,
    entries: Mapping[str, Mapping[str, Any]] | None = None,
    submitted: str | None = None,
) -> list[Path]:
    """Write a result for each method of a run: its scores, what they were made with, a card, and the manifest.

    Args:
        run: A folder that ``xaibench run`` wrote and finished.
        repository: Below it each result lies at ``METHOD/SUITE@VERSION``; one that is there is replaced whole.
        methods: Only these of its explainers; default all that are ranked and have scores, and the controls.
        about: ``{method: fields of Method}`` that are not as the run has them, such as ``license``.
        source: A folder with the source of a method that is no part of the library.
        code: Where that is developed, and in which state.
        drawn: The round whose fresh seeds the run is on; None for the suite's own.
        entries: ``{method: its entry in a suite}`` where that is not the run's, as of what was run in a sandbox.
        submitted: The day; default today.

    Returns:
        The folders.

    Raises:
        RunFolderError: If it is no run folder, or one of its files is damaged.
        ResultError: If a job of it failed, or it has no such method or no scores of it.
        LicenseError: If a license has a name that is none.
    """
    folder = Path(run)
    parts = read_parts(folder)
    if not parts.explainers or not (folder / SCORES.name).exists():
        raise RunFolderError(f"{folder} is no run folder: it lacks {PARTS} or {SCORES.name}. `xaibench run` makes one.")
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
    version, uses = _version(folder, drawn)
    day = submitted or datetime.now(UTC).date().isoformat()
    scores = _scores_by_method(folder, names)
    if methods is not None and (silent := [name for name in names if name not in scores]):
        raise ResultError(f"{folder} has no scores of {listed(silent)}, which can treat none of its networks.")
    found = []
    for name in (one for one in names if one in scores):
        method = _method(parts.explainers[name], uses[name], (about or {}).get(name, {}))
        check_license_name(method.license or None)
        manifest = Manifest(method, version, day, {}, code or CodeInfo(), drawn.name if drawn else "")
        entry = (entries or {}).get(name)
        found.append(_write(folder, Path(repository), manifest, name, scores[name], source, entry))
    return found


def _version(folder: Path, drawn: Round | None) -> tuple[SuiteVersion, dict[str, str]]:
    suite, _ = load_suite(folder / SUITE)
    uses = {part.name: part.use for part in suite.explainers}
    text = _suite_that_ran(folder)
    check_public_datasets(text, suite.name)
    if drawn is not None:
        text = suite_with_public_seeds(text, suite.name, drawn)
    return SuiteVersion(suite.name, suite.title, suite_version(text)), uses


def _suite_that_ran(run: Path) -> str:
    """The suite without the sets that were not there: those on photographs, which not everybody has."""
    ran: dict[str, Any] = json.loads((run / ENVIRONMENT).read_text(encoding="utf-8"))
    return without_sets((run / SUITE).read_text(encoding="utf-8"), ran.get("missing", ()))


def _method(words: PartDescription, use: str, about: Mapping[str, Any]) -> MethodInfo:
    known = {"summary": words.meaning, "citation": words.citation, "passes": words.passes, "control": words.control}
    license = {} if words.own else {"license": "mit"}
    return MethodInfo(**{"name": slugify(words.name), "label": words.label, "entry": use, **known, **license, **about})


def slugify(name: str) -> str:
    """A name as folders have it.

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
    """So that no result takes the place of another of the same run."""
    for name, other in itertools.combinations(names, 2):
        if slugify(name) == slugify(other):
            raise ResultError(
                f"{run}: the results of {name} and {other} would be one folder, {slugify(name)}; give one another name."
            )


def _scores_by_method(folder: Path, names: Collection[str]) -> dict[str, pa.Table]:
    """The scores of each method, read once, a row group at a time."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in names}
    SCORES.read(folder, ["explainer"])  # says so if the file is damaged, or of another kind
    text = [column for column in pq.read_schema(folder / SCORES.name).names if column in SCORES.text]
    with pq.ParquetFile(folder / SCORES.name, read_dictionary=text) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            group = group.replace_schema_metadata()
            for name in set(pc.unique(group["explainer"]).to_pylist()) & parts.keys():
                parts[name].append(group.filter(pc.equal(group["explainer"], name)))
    return {name: pa.concat_tables(found).unify_dictionaries() for name, found in parts.items() if found}


def _write(
    run: Path,
    repository: Path,
    manifest: Manifest,
    name: str,
    scores: pa.Table,
    source: Path | None,
    entry: Mapping[str, Any] | None,
) -> Path:
    """Beside its place first, so that a result is whole or not there."""
    target = repository / manifest.folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as place:
        folder = Path(place) / "result"
        folder.mkdir()
        _write_tables(run, folder, name, manifest.method.name, scores)
        _write_words(run, folder, manifest, name, entry)
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
    if (run / SAMPLES.name).exists():  # who belongs together, for the intervals; not how files are called
        people = SAMPLES.read(run).assign(id="", file="")[list(SAMPLES.columns)]
        (folder / SAMPLES.name).write_text(people.to_csv(index=False), encoding="utf-8")
    jobs = JOBS.read(run)
    own = jobs[jobs["explainer"].eq(name)].assign(worker="", explainer=shown)
    rows = ({str(name): value for name, value in row.items()} for row in own[list(JOBS.columns)].to_dict("records"))
    (folder / JOBS.name).write_bytes(JOBS.to_csv(rows))
    cells = [cell for cell in read_samples(run) if name in cell.explainers and _may_be_shown(cell.dataset)]
    room = _MOST_PICTURES // count_cells(_suite_that_ran(run))
    if pictures := _pictures([_of_method(cell, name, shown) for cell in cells], room):
        (folder / SAMPLES_FILE).write_bytes(pictures)


def _pictures(cells: Sequence[SampleCell], room: int) -> bytes:
    """The content of the file, each cell within so many bytes; nothing where one sample of each is too much."""

    def largest(count: int) -> int:
        return max(len(to_safetensors([cell.lowest(count)])) for cell in cells)

    most = max((len(cell.samples) for cell in cells), default=0)
    count = bisect.bisect_right(range(1, most + 1), room, key=largest)
    return to_safetensors([cell.lowest(count) for cell in cells]) if count else b""


def _may_be_shown(dataset: str) -> bool:
    """What is generated from numbers alone belongs to nobody; photographs stay at home."""
    return is_generated(dataset) and "imagenet" not in dataset


def _of_method(cell: SampleCell, name: str, shown: str) -> SampleCell:
    which = [cell.explainers.index(name)]
    return dataclasses.replace(
        cell, explainers=(shown,), maps=cell.maps[:, which], means=cell.means[which[: len(cell.means)]]
    )


def _write_words(run: Path, folder: Path, manifest: Manifest, name: str, entry: Mapping[str, Any] | None) -> None:
    parts, method = read_parts(run), manifest.method
    words = dataclasses.replace(parts.explainers[name], name=method.name, label=method.label)
    described = dataclasses.replace(parts, explainers={method.name: words})
    (folder / PARTS).write_bytes(described.to_json())
    ran = strip_folders((run / ENVIRONMENT).read_text(encoding="utf-8"))
    (folder / ENVIRONMENT).write_text(ran, encoding="utf-8")
    text = _suite_that_ran(run)
    stated = explainer_entry(text, name) if entry is None else dict(entry)
    # Under the name that the result has, whatever it was called in the run.
    own = {method.name: {"use": method.entry} | {key: value for key, value in stated.items() if key != "use"}}
    (folder / SUITE).write_text(with_explainers(text, own, of=name), encoding="utf-8")
