"""Run a method again, shut in, and see whether its scores come out the same."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xaibench._version import __version__
from xaibench.compute.device import resolve_device
from xaibench.core.files import atomic_file
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import (
    METHOD,
    SCHEMA,
    VERIFICATION,
    Manifest,
    ResultError,
    manifest_checksum,
    read_manifest,
)
from xaibench.leaderboard.sandbox import method as sandboxed_method
from xaibench.leaderboard.sandbox.packages import provide_packages
from xaibench.leaderboard.sandbox.sandbox import Sandbox, SandboxError, sandbox_kind
from xaibench.leaderboard.submission import hide_secrets
from xaibench.leaderboard.suite_text import with_explainers
from xaibench.runfolder.descriptions import SUITE
from xaibench.runfolder.tables import SCORES
from xaibench.runner.run import RunProgress, run

if TYPE_CHECKING:
    import pandas as pd

#: How far the mean of a cell may be from the one that was handed in, where the scores are not the same to the bit: on a
#: GPU, on another processor, or with another version of torch the networks come out a little different.
BOUND = 0.02

#: What a suite calls the method by, which it then asks in its sandbox.
_PROXIES = sandboxed_method.__name__

_ROW = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
_CELL = ["dataset", "model", "metric"]


@dataclass(frozen=True)
class Verification:
    """What came of running a method again: the content of ``verification.json``.

    Attributes:
        result: The sha256 of ``result.json`` as it was then.
        verdict: ``"bit-equal"``, ``"within bounds"`` or ``"differs"``.
        rows: How many scores were compared.
        equal_rows: How many of them are the same to the bit.
        largest_difference: Between the means of a cell, here and there; None where one has none.
        where: The cell and metric with that difference.
        bound: Up to which a difference is within bounds.
        sandbox: ``"bubblewrap"``, or ``"process"``, which is weaker.
        xaibench: The version that ran it.
        date: The day.
    """

    result: str
    verdict: str
    rows: int
    equal_rows: int
    largest_difference: float | None
    where: str
    bound: float
    sandbox: str
    xaibench: str
    date: str

    def to_json(self) -> bytes:
        """The content of the file.

        Returns:
            JSON, in UTF-8.
        """
        return json.dumps({"schema": SCHEMA} | asdict(self), indent=2).encode() + b"\n"


def verify(
    folder: str | Path,
    *,
    seconds: float = 600.0,
    memory_gb: float = 8.0,
    bound: float = BOUND,
    datasets: Sequence[str] | None = None,
    work: str | Path | None = None,
    device: str = "cpu",
    install: bool = False,
    hidden: Sequence[str | Path] = (),
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> Verification:
    """Run the method of a result again in a sandbox, and compare the scores.

    Args:
        folder: Of the result. What came of it is written there, as ``verification.json``.
        seconds: The longest that the method may take for one batch of images.
        memory_gb: The most memory that it may hold.
        bound: Up to which difference of a cell's mean scores that are not the same to the bit are accepted.
        datasets: Only these of the suite's, which is quicker and less.
        work: Where the run lies, which goes on there if it is stopped, and whose networks serve again; default a
            temporary folder.
        device: Where networks learn and the method computes in its sandbox: ``"cpu"``, ``"auto"``, ``"cuda"``, ... What
            was made on a CPU is equal to the bit on a CPU alone.
        install: Whether packages that the method needs and that are not here, or are in another version, are installed
            for its sandbox alone; of wheels, which run nothing while they are. Needs the network.
        hidden: Folders whose files the method must not read, beside the results, ``work`` and the store: of other runs.
        progress: Called as jobs end.
        **run_settings: As :func:`xaibench.runner.run` takes them.

    Returns:
        The verdict.

    Raises:
        ResultError: If the result does not pass ``xaibench results check``, or its method failed or did what it may
            not do; says what.
    """
    place = Path(folder)
    if problems := check(place, verdict=False):  # which is about to be written anew
        raise ResultError(f"{place} is refused before it is run: {problems[0]}")
    manifest = read_manifest(place)
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary, hide_secrets():
        base = Path(work) if work else Path(temporary)
        base.mkdir(parents=True, exist_ok=True)
        rows = rerun_scores(
            place,
            manifest,
            base,
            datasets=datasets,
            limits={"seconds": seconds, "memory_gb": memory_gb},
            device=device,
            install=install,
            hidden=hidden,
            progress=progress,
            **run_settings,
        )
    result = compare_scores(SCORES.read(place), rows, bound, partial=datasets is not None, of=manifest_checksum(place))
    if datasets is None:
        with atomic_file(place / VERIFICATION) as stream:
            stream.write(result.to_json())
    return result


def rerun_scores(
    folder: Path,
    manifest: Manifest,
    base: Path,
    *,
    limits: Mapping[str, Any],
    suite_text: str | None = None,
    device: str = "cpu",
    install: bool = False,
    hidden: Sequence[str | Path] = (),
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> pd.DataFrame:
    """The scores of a sandboxed method.

    Args:
        folder: Of the result.
        manifest: Its own.
        base: Where the run lies.
        limits: ``seconds`` and ``memory_gb`` of the sandbox.
        suite_text: The suite as TOML; default the result's own.
        device: Where networks learn, and the method computes in its sandbox.
        install: As in :func:`verify`.
        hidden: Likewise.
        progress: Called as jobs end.
        **run_settings: As :func:`xaibench.runner.run` takes them.

    Returns:
        The scores as the run folder has them.

    Raises:
        ResultError: If the method failed or did what it may not do.
    """
    text = suite_text or (folder / SUITE).read_text(encoding="utf-8")
    entry = tomllib.loads(text)["explainers"][manifest.method.name]
    parameters = {name: value for name, value in entry.items() if name != "use"}
    output = tomllib.loads(text).get("explaining", {}).get("output", "")
    # These hold the masks, and need not lie in the run.
    answers = [run_settings.get("store"), run_settings.get("root") or os.environ.get("XAIBENCH_DATA")]
    with tempfile.TemporaryDirectory(prefix="xaibench-method-") as apart:
        code = ""
        if (folder / METHOD).is_dir():  # out of what is hidden: its own code is its to read
            code = str(shutil.copytree(folder / METHOD, Path(apart) / METHOD))
        sandbox = Sandbox(
            manifest.method.entry,
            code,
            _packages(manifest, Path(apart) / "packages", install),
            json.dumps(parameters),
            "" if output == "default" else output,
            device=str(resolve_device(device)),
            hidden=tuple(str(Path(one).resolve()) for one in (folder.parent.parent, base, *answers, *hidden) if one),
            **limits,
        )
        settings = json.dumps(asdict(sandbox))
        name = "FittedSandboxedMethod" if _fits(manifest, settings) else "SandboxedMethod"
        explainer = {"use": f"{_PROXIES}:{name}", "settings": settings}
        file = base / "suite-again.toml"
        file.write_text(with_explainers(text, {manifest.method.name: explainer}), encoding="utf-8")
        try:
            done = run(file, base / "run", device=device, progress=progress, **run_settings)
        finally:
            sandboxed_method.close()
    if done.failures:
        job, why = next(iter(done.failures.items()))
        raise ResultError(f"{manifest.method.name} is refused: {_reason(why)} (in {job}).")
    rows = SCORES.read(base / "run")
    return rows[rows["explainer"] == manifest.method.name]


def _packages(manifest: Manifest, folder: Path, install: bool) -> str:
    try:
        return provide_packages(manifest.code.requires, folder, install=install)
    except ResultError as error:
        raise ResultError(f"{manifest.method.name} is refused: {error}") from error


def _fits(manifest: Manifest, settings: str) -> bool:
    try:
        return sandboxed_method.fits(settings)
    except SandboxError as error:
        raise ResultError(f"{manifest.method.name} is refused: {error}") from error


def _reason(why: str) -> str:
    """What a failed job says, without where in our code."""
    return why.rpartition(" (in ")[0].partition("Error: ")[2] or why


def compare_scores(
    handed_in: pd.DataFrame, again: pd.DataFrame, bound: float, *, partial: bool = False, of: str = ""
) -> Verification:
    """The verdict on scores that were handed in, beside those that came of running the method again.

    Args:
        handed_in: As ``scores.parquet`` has them.
        again: Likewise.
        bound: Up to which difference of a cell's mean they are within bounds.
        partial: Whether only some cells were run again.
        of: The sha256 of the result's manifest.

    Returns:
        ``"differs"`` too where one has rows that the other lacks.
    """
    text = dict.fromkeys([name for name in SCORES.text if name in handed_in], object)
    one, other = handed_in.astype(text), again.astype(text)
    if partial:
        one = one[one["dataset"].isin(set(other["dataset"]))]
    both = one.merge(other, on=_ROW, how="outer", suffixes=("", "_again"), indicator=True)
    left, right = both["value"].to_numpy(float), both["value_again"].to_numpy(float)
    matched = (both["_merge"] == "both").to_numpy()
    same = matched & ((left == right) | (np.isnan(left) & np.isnan(right)))
    same &= (both["correct"] == both["correct_again"]).to_numpy()
    largest, where = _largest(one, other)
    near = matched.all() and largest is not None and largest <= bound
    verdict = "bit-equal" if same.all() else "within bounds" if near else "differs"
    day = datetime.now(UTC).date().isoformat()
    return Verification(
        of, verdict, len(both), int(same.sum()), largest, where, bound, sandbox_kind(), __version__, day
    )


def _largest(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float | None, str]:
    """How far the means of a cell are apart at most, of the samples that count, and where; None if one is missing.

    Cells without any defined score, here and there, are alike.
    """
    means = [rows[rows["correct"].astype(bool)].groupby(_CELL, observed=True)["value"].mean() for rows in (one, other)]
    here, there = means[0].align(means[1])
    differences = (here - there).abs().mask(here.isna() & there.isna(), 0.0)
    if not len(differences):
        return None, ""
    if differences.isna().any():
        return None, " ".join(map(str, differences.index[differences.isna()][0]))
    return float(differences.max()), " ".join(map(str, cast("tuple[str, ...]", differences.idxmax())))
