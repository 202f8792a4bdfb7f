"""Verify a result: run its method again in a sandbox and compare the scores."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xaibench._version import __version__
from xaibench.compute.device import resolve_device
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.dependence import measure_dependence
from xaibench.leaderboard.manifest import METHOD, Manifest, ResultError, read_manifest
from xaibench.leaderboard.method_source import is_library_control
from xaibench.leaderboard.rounds import find_round, suite_for_round
from xaibench.leaderboard.sandbox import method as sandboxed_method
from xaibench.leaderboard.sandbox.packages import provide_packages
from xaibench.leaderboard.sandbox.protocol import SandboxError
from xaibench.leaderboard.sandbox.sandbox import Sandbox, require_sandbox
from xaibench.leaderboard.score_files import read_scores, round_scores
from xaibench.leaderboard.submission import hide_secrets
from xaibench.leaderboard.suite_facts import facts_folder, write_facts
from xaibench.leaderboard.suite_text import official_suite, with_explainers
from xaibench.leaderboard.verdicts import Verification, record_verification
from xaibench.report.numbers.summary import is_scored_as_chance
from xaibench.runfolder.tables import SCORES
from xaibench.runner.request import RunRequest
from xaibench.runner.run import RunProgress, run

if TYPE_CHECKING:
    import pandas as pd

#: Largest difference of a score of the same networks on another CPU.
SCORE_TOLERANCE = 1e-6

#: Module of the explainers that forward to the sandbox.
_SANDBOXED_MODULE = sandboxed_method.__name__

_ROW_KEY = ["dataset", "model", "data_seed", "seed", "sample", "metric"]


@dataclass(frozen=True)
class Rerun:
    """A method that was run again.

    Attributes:
        folder: The run folder.
        scores: Its scores, with the columns of ``scores.parquet``.
        changed: Share of the maps that change with the network and the image (:func:`measure_dependence`).
    """

    folder: Path
    scores: pd.DataFrame
    changed: Mapping[str, float]


def verify(
    folder: str | Path,
    *,
    record: bool = True,
    seconds: float = 600.0,
    memory_gb: float = 8.0,
    datasets: Sequence[str] | None = None,
    work: str | Path | None = None,
    device: str = "cpu",
    install: bool = False,
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> Verification:
    """Run the method of a result again in a sandbox, compare the scores, and measure what its maps depend on.

    Args:
        folder: Folder of the result in its repository.
        record: Write the verdict to the repository's ``verdicts.json``, to be signed by its keeper
            (:func:`xaibench.leaderboard.verdicts.sign_records`), and the facts about the suite to ``suites``.
        seconds: Time limit per batch of images, in seconds.
        memory_gb: Memory limit of the method, in GiB.
        datasets: Verify only these data sets of the suite. No verdict is written then.
        work: Folder of the run; an interrupted run is continued, and networks are reused. Default: a temporary folder.
        device: Device of training and of the method: ``"cpu"``, ``"auto"``, ``"cuda"``, ... Scores computed on a CPU
            are bit-identical only on a CPU.
        install: Install missing packages of the method, or other versions, for its sandbox only. Only wheels are
            installed, which run no code during installation. Requires network access.
        progress: Called when jobs end.
        **run_settings: Passed to :func:`xaibench.runner.run`.

    Returns:
        The outcome.

    Raises:
        ResultError: If the result does not pass ``xaibench results check``, or its method failed or violated the
            sandbox, or this machine has none (bubblewrap).
    """
    require_sandbox()
    place = Path(folder)
    if problems := check(place):
        raise ResultError(f"{place} is refused before it is run: {problems[0]}")
    manifest = read_manifest(place)
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary, hide_secrets():
        base = Path(work) if work else Path(temporary)
        base.mkdir(parents=True, exist_ok=True)
        again = rerun_method(
            place,
            manifest,
            base,
            datasets=datasets,
            limits={"seconds": seconds, "memory_gb": memory_gb},
            device=device,
            install=install,
            progress=progress,
            **run_settings,
        )
        compared = compare_scores(read_scores(place), again.scores, partial=datasets is not None)
        result = replace(compared, changed=again.changed)
        if record and datasets is None:
            record_outcome(place, base, result)
    return result


def record_outcome(folder: Path, work: Path, result: Verification) -> None:
    """Write the verdict on a result and the facts about its suite to its repository.

    Args:
        folder: Folder of the result in its repository.
        work: Folder of the run of :func:`verify`.
        result: Its outcome.
    """
    facts = facts_folder(folder.resolve().parent.parent, read_manifest(folder))
    write_facts(work / "run", facts, replace=True)
    record_verification(folder, result)


def rerun_method(
    folder: Path,
    manifest: Manifest,
    base: Path,
    *,
    limits: Mapping[str, Any],
    suite_text: str | None = None,
    device: str = "cpu",
    install: bool = False,
    dependence: bool = True,
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> Rerun:
    """Run the method of a result in a sandbox.

    A control of the library that is fitted to the training masks is run without a sandbox, because the sandbox hides
    the masks.

    Args:
        folder: Folder of the result.
        manifest: Manifest of the result.
        base: Folder of the run.
        limits: ``seconds`` and ``memory_gb`` of the sandbox.
        suite_text: The suite as TOML. Default: the suite of the library that the result names, with the seeds of its
            round if it is of one.
        device: Device of training and of the method.
        install: As in :func:`verify`.
        dependence: Measure what the maps depend on.
        progress: Called when jobs end.
        **run_settings: Passed to :func:`xaibench.runner.run`.

    Returns:
        The run folder, its scores and the measured dependence.

    Raises:
        ResultError: If the method failed or violated the sandbox.
    """
    text = suite_text or _suite_of(folder, manifest)
    with tempfile.TemporaryDirectory(prefix="xaibench-method-") as apart:
        if is_library_control(manifest.method.entry):
            explainer = dict(manifest.method.parameters) | {"use": manifest.method.entry}
        else:
            explainer = _sandboxed_explainer(folder, manifest, text, Path(apart), limits, device, install)
        file = base / "suite-again.toml"
        file.write_text(with_explainers(text, {manifest.method.name: explainer}), encoding="utf-8")
        try:
            done = run(file, base / "run", device=device, progress=progress, **run_settings)
            if done.failures:
                job, why = next(iter(done.failures.items()))
                raise ResultError(f"{manifest.method.name} is refused: {_failure_reason(why)} (in {job}).")
            changed = _measure(file, done.folder, manifest.method.name, device, run_settings) if dependence else {}
        finally:
            sandboxed_method.close_all()
    rows = SCORES.read(done.folder)
    return Rerun(done.folder, rows[rows["explainer"] == manifest.method.name], changed)


def _measure(suite: Path, folder: Path, name: str, device: str, settings: Mapping[str, Any]) -> dict[str, float]:
    same = {key: value for key, value in settings.items() if key not in ("engine", "address")}
    with RunRequest.of(suite, folder, device=device, **same).opened() as opened:
        return measure_dependence(opened.plan, opened.store, name, device)


def _sandboxed_explainer(
    folder: Path, manifest: Manifest, text: str, apart: Path, limits: Mapping[str, Any], device: str, install: bool
) -> dict[str, Any]:
    """Return the entry of a suite that runs the method in a sandbox; copies of its code and packages are in `apart`."""
    output = tomllib.loads(text).get("explaining", {}).get("output", "")
    code = ""
    if (folder / METHOD).is_dir():
        code = _readable_copy(folder / METHOD, apart / METHOD)
    sandbox = Sandbox(
        manifest.method.entry,
        code,
        _provide_packages(manifest, apart / "packages", install),
        json.dumps(dict(manifest.method.parameters)),
        "" if output == "default" else output,
        device=str(resolve_device(device)),
        **limits,
    )
    settings = json.dumps(asdict(sandbox))
    name = "FittedSandboxedMethod" if _has_fit(manifest, settings) else "SandboxedMethod"
    return {"use": f"{_SANDBOXED_MODULE}:{name}", "settings": settings}


def _suite_of(folder: Path, manifest: Manifest) -> str:
    text = official_suite(manifest.suite.name)
    return suite_for_round(text, find_round(folder, manifest.round)) if manifest.round else text


def _readable_copy(source: Path, target: Path) -> str:
    """Copy code so that the user without rights in the sandbox may read it."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(target)


def _provide_packages(manifest: Manifest, folder: Path, install: bool) -> str:
    try:
        return provide_packages(manifest.code.requires, folder, install=install)
    except ResultError as error:
        raise ResultError(f"{manifest.method.name} is refused: {error}") from error


def _has_fit(manifest: Manifest, settings: str) -> bool:
    try:
        return sandboxed_method.has_fit(settings)
    except SandboxError as error:
        raise ResultError(f"{manifest.method.name} is refused: {error}") from error


def _failure_reason(why: str) -> str:
    """Return the message of a failed job without its location in the code."""
    return why.rpartition(" (in ")[0].partition("Error: ")[2] or why


def compare_scores(submitted: pd.DataFrame, rerun: pd.DataFrame, *, partial: bool = False) -> Verification:
    """Compare submitted scores with the scores of the method run again.

    Args:
        submitted: Scores as in ``scores.parquet``.
        rerun: Scores of the new run.
        partial: Whether only some cells were run again.

    Returns:
        The outcome. Both sides are rounded as stored scores are. ``"differs"`` also if one side has rows that the other
        lacks, a score is undefined on one side, or a map was scored as chance on one side.
    """
    text = dict.fromkeys([name for name in SCORES.text if name in submitted], object)
    one, other = submitted.astype(text), rerun.astype(text)
    if partial:
        one = one[one["dataset"].isin(set(other["dataset"]))]
    both = one.merge(other, on=_ROW_KEY, how="outer", suffixes=("", "_again"), indicator=True)
    left, right = (round_scores(both[name].to_numpy(float)) for name in ("value", "value_again"))
    matched = (both["_merge"] == "both").to_numpy() & (both["correct"] == both["correct_again"]).to_numpy()
    chance = [is_scored_as_chance(both[name]).to_numpy() for name in ("reason", "reason_again")]
    matched &= chance[0] == chance[1]
    undefined = np.isnan(left) & np.isnan(right)
    difference = np.where(undefined, 0.0, np.abs(left - right))
    difference[~matched | (np.isnan(left) != np.isnan(right))] = np.inf
    same = matched & (undefined | (left == right))
    verdict = "bit-equal" if same.all() else "equal" if (difference <= SCORE_TOLERANCE).all() else "differs"
    largest, where = (0.0, "") if not len(both) else (float(difference.max()), _cell(both, int(difference.argmax())))
    day = datetime.now(UTC).date().isoformat()
    known = None if np.isinf(largest) else largest
    return Verification(verdict, len(both), int(same.sum()), known, where, __version__, day)


def _cell(rows: pd.DataFrame, number: int) -> str:
    return " ".join(str(rows[name].iloc[number]) for name in ("dataset", "model", "metric"))
