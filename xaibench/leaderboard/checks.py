"""What can be seen of a result without running it: that it is whole, unchanged, and could be what it says it is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import listed
from xaibench.data import DATASETS
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.manifest import (
    CARD,
    LICENSE,
    MANIFEST,
    METHOD,
    VERDICTS,
    VERIFICATION,
    Manifest,
    ResultError,
    code_checksum,
    file_checksums,
    read_manifest,
    read_verification,
)
from xaibench.leaderboard.rounds import Round, read_rounds, suite_with_public_seeds
from xaibench.leaderboard.suite_text import check_public_datasets, plan_without_explainers, suite_version
from xaibench.models import MODELS
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE
from xaibench.runfolder.tables import IMAGES, SCORES, RunFolderError
from xaibench.runner.parts import part_info
from xaibench.runner.plan.plan import Plan
from xaibench.runner.suites.schema import Suite

if TYPE_CHECKING:
    import pandas as pd

#: The largest result that is taken, in bytes.
_MOST_BYTES = 100 << 20
_NEEDED = (SCORES.name, IMAGES.name, SUITE, PARTS, ENVIRONMENT, CARD, LICENSE)

#: What looks like a key to somebody's account: of the Hub, GitHub, PyPI, AWS, or a private key.
_TOKEN = re.compile(
    rb"hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|pypi-[\w-]{50,}|AKIA[A-Z0-9]{16}"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


#: A part that is imported by its name; what stands before the colon of others.
_IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SCHEMES = DATASETS.schemes | MODELS.schemes


def check(folder: str | Path, *, in_repository: bool = True, verdict: bool = True, earlier: bool = False) -> list[str]:
    """What is wrong with a result.

    Args:
        folder: Of the result.
        in_repository: Whether it lies at its place in a results repository.
        verdict: Whether a verdict that lies there must be of the result as it is.
        earlier: Whether one may be of an earlier version of its suite that was verified while that was the version: it
            cannot be run again, and stays as it was, for the history of its method.

    Returns:
        A sentence for each fault; none where it can be taken.
    """
    place = Path(folder)
    try:
        manifest = read_manifest(place)
    except ResultError as error:
        return [str(error)]
    found = list(_faults_of_files(place, manifest))
    if in_repository and place.resolve().parts[-2:] != tuple(manifest.folder.split("/")):
        here = "/".join(place.resolve().parts[-2:])
        found.append(f"it lies at {here}, but says that it is {manifest.folder}; move it there.")
    if not found:
        found += _stale_verdict(place) if verdict else ()
        found += _faults_of_code(place, manifest)
        found += _foreign_parts(place)
    if not found:
        found += _faults_of_suite(place, manifest)
        if found and earlier and read_verification(place).get("verdict") in VERDICTS[:-1]:
            return []
    if not found:
        found += _faults_of_scores(place, manifest)
    return found


def _faults_of_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    if links := [path.name for path in folder.rglob("*") if path.is_symlink()]:
        yield f"{listed(links, 3)} are links; a result has files of its own alone."
        return
    if (size := sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())) > _MOST_BYTES:
        yield f"it holds {size >> 20} MiB; expected at most {_MOST_BYTES >> 20}."
        return
    there, said = file_checksums(folder), dict(manifest.files)
    for name in sorted(said.keys() - there.keys()):
        yield f"{name} is missing."
    for name in sorted(there.keys() - said.keys()):
        yield f"{name} is not among the files of {MANIFEST}; leave it out, or write the result anew."
    for name in sorted(there.keys() & said.keys()):
        if there[name] != said[name]:
            yield f"{name} was changed after it was written: its sha256 is {there[name][:12]}…, not {said[name][:12]}…."
    for name in _NEEDED:
        if name not in there and name not in said:
            yield f"it has no {name}."
    for name in there:
        if _TOKEN.search((folder / name).read_bytes()):
            yield f"{name} holds what looks like a token or private key; take it out, and make the token invalid."


def _stale_verdict(folder: Path) -> Iterator[str]:
    try:
        if (folder / VERIFICATION).exists() and not read_verification(folder):
            yield f"{VERIFICATION} is of another state of this result; remove it, and verify the result again."
    except ResultError as error:
        yield str(error)


def _faults_of_code(folder: Path, manifest: Manifest) -> Iterator[str]:
    if code_checksum(manifest.files) != manifest.code.sha256:
        yield f"the code below {METHOD} is not the one whose sha256 is {manifest.code.sha256[:12] or 'empty'}."
    entry = manifest.method.entry
    if entry in EXPLAINERS:  # by its name alone: looking another up would import it
        if (folder / METHOD).exists():
            yield f"{entry} is an explainer of the library, and {METHOD} holds code; give the method a name of its own."
        return
    module, _, attribute = entry.partition(":")
    path = (folder / METHOD).joinpath(*module.split("."))
    file = next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)
    if file is None or not attribute:
        yield f"entry is {entry!r}: there is no {path.relative_to(folder)}.py; expected module:name below {METHOD}."
        return
    try:
        ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        yield f"{file.relative_to(folder)} is no Python: {error}."


def _foreign_parts(folder: Path) -> Iterator[str]:
    """Data, networks and metrics that somebody brought along would be run where the answers are, so there are none."""
    try:
        tables = tomllib.loads((folder / SUITE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield f"{SUITE} cannot be read ({error})."
        return
    tables.pop("explainers", None)
    for name in sorted(set(_texts(tables))):
        if _IMPORTED.fullmatch(name) and name.partition(":")[0] not in _SCHEMES:
            yield f"{SUITE} names {name}; data sets, networks and metrics of a result are those of the library."


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _faults_of_suite(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        text = (folder / SUITE).read_text(encoding="utf-8")
        names = list(tomllib.loads(text).get("explainers", {}))
        if names != [manifest.method.name]:
            yield f"{SUITE} has the explainers {listed(names, 3)}; expected {manifest.method.name} alone."
            return
        check_public_datasets(text, manifest.suite.name)
        if manifest.round:
            found = _round(folder, manifest)
            text = suite_with_public_seeds(text, manifest.suite.name, found)
        version = suite_version(text)
    except (ResultError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:  # of tables that are none
        yield f"{SUITE} cannot be run: {error}"
        return
    if version != manifest.suite.version:
        yield (
            f"{SUITE} is version {version} of {manifest.suite.name} with this xaibench, not {manifest.suite.version}: "
            "its data, networks or metrics are others now. Run it again."
        )


def _round(folder: Path, manifest: Manifest) -> Round:
    rounds = {one.name: one for one in read_rounds(folder.resolve().parent.parent)}
    if manifest.round not in rounds:
        raise ResultError(f"there is no round {manifest.round!r}; known: {listed(rounds)}.")
    return rounds[manifest.round]


def _faults_of_scores(folder: Path, manifest: Manifest) -> Iterator[str]:
    try:
        scores = SCORES.read(folder)
    except RunFolderError as error:
        yield str(error)
        return
    if (names := sorted(map(str, scores["explainer"].unique()))) != [manifest.method.name]:
        yield f"{SCORES.name} has scores of {listed(names, 3)}; expected {manifest.method.name} alone."
        return
    plan = plan_without_explainers((folder / SUITE).read_text(encoding="utf-8"))
    yield from _faults_of_rows(scores)
    yield from _faults_of_values(scores, plan.suite)
    yield from _faults_of_cells(scores, plan)


def _faults_of_rows(scores: pd.DataFrame) -> Iterator[str]:
    key = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
    if again := int(scores.duplicated(key).sum()):
        yield f"{SCORES.name} has {again} rows twice."
    counts = scores.groupby(key[:-1], observed=True)["correct"].nunique()
    if (counts > 1).any():
        yield f"{SCORES.name} calls {int((counts > 1).sum())} samples both right and wrong."
    unsaid = scores["value"].isna() & scores["reason"].astype(str).eq("")
    if unsaid.any():
        yield f"{SCORES.name} has {int(unsaid.sum())} undefined scores without a reason."


def _faults_of_values(scores: pd.DataFrame, suite: Suite) -> Iterator[str]:
    """By what the library knows of its metrics, and not by what the result says of them."""
    for part in suite.metrics:
        info: Any = part_info("metric", part.use)
        own = scores[scores["metric"] == part.name]
        if info is None or not len(own):
            continue
        low, high = info.range
        outside = (own["value"] < low - 1e-9) | (own["value"] > high + 1e-9)
        if outside.any():
            count, value = int(outside.sum()), own["value"][outside].iloc[0]
            yield f"{count} scores of {part.name}, such as {value:g}, lie outside its range [{low:g}, {high:g}]."
        if (own["higher_is_better"] != info.higher_is_better).any():
            yield f"{SCORES.name} has the direction of {part.name} the wrong way round."


def _faults_of_cells(scores: pd.DataFrame, plan: Plan) -> Iterator[str]:
    from xaibench.runner.stages.score_rows import dataset_name

    expected = {(dataset_name(cell), cell.model, job.metric.name) for cell in plan.cells for _, job in cell.scores}
    cells = scores[["dataset", "model", "metric"]].drop_duplicates().astype(str)
    there = set(cells.itertuples(index=False, name=None))
    if more := sorted(there - expected):
        yield f"{SCORES.name} has {len(more)} cells that the suite has not, such as {' '.join(more[0])}."
    if lacking := sorted(expected - there):
        models = {model for _, model, _ in lacking} - {model for _, model, _ in there}
        whole = {(dataset, model) for dataset, model, _ in lacking}
        some = whole & {(dataset, model) for dataset, model, _ in there}
        # A network that the method cannot treat is left out whole; of one that it treats, every score is there.
        if some or not models:
            yield f"{SCORES.name} lacks {len(lacking)} cells of the suite, such as {' '.join(lacking[0])}."
    most = plan.suite.explaining.samples
    if isinstance(most, int) and len(scores) and (last := int(scores["sample"].max())) >= most:
        yield f"{SCORES.name} has a sample {last}; the suite explains the first {most}."
