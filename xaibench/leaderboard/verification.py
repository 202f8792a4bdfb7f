"""Verify a result: run its method again and compare the scores. This executes the method."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xaibench._version import __version__
from xaibench.core.messages import listed
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.dependence import measure_dependence
from xaibench.leaderboard.facts import FACTS, different_facts, read_facts, write_facts
from xaibench.leaderboard.manifest import Manifest, ResultError, read_manifest, result_checksum
from xaibench.leaderboard.scores import read_scores, round_scores
from xaibench.leaderboard.suites import official_suite
from xaibench.leaderboard.verified import Verification
from xaibench.runfolder.descriptions import read_environment
from xaibench.runfolder.schema import SCORES
from xaibench.runner.request import RunRequest
from xaibench.runner.suite_run import RunProgress, run
from xaibench.scores.summary import is_scored_as_chance

if TYPE_CHECKING:
    import pandas as pd

_ROW_KEY = ["dataset", "model", "data_seed", "seed", "sample", "metric"]


def verify(
    folder: str | Path,
    *,
    explainers: Iterable[str] = (),
    datasets: Sequence[str] | None = None,
    work: str | Path | None = None,
    device: str = "cpu",
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> Verification:
    """Run the method of a result again, compare the scores, and measure what its maps depend on.

    The method is executed with your rights. A method that is not part of the library must be installed, and is run only
    if it is named in ``explainers``. Run methods of strangers in a container without network and secrets.

    Args:
        folder: Folder of the result in its repository.
        explainers: Methods outside the library that may be executed, as ``"module:name"`` or ``"file.py:name"``.
        datasets: Verify only these data sets of the suite.
        work: Folder of the run; an interrupted run is continued. Default: a temporary folder.
        device: Device of training and of the method: ``"cpu"``, ``"auto"``, ``"cuda"``, ... Scores computed on a CPU
            are bit-identical only on a CPU.
        progress: Called when jobs end.
        **run_settings: Passed to :func:`xaibench.runner.run`.

    Returns:
        The outcome.

    Raises:
        ResultError: If the result does not pass :func:`xaibench.leaderboard.check`, its method may not be executed or
            fails, or the facts about its suite differ from those of the run.
    """
    place = Path(folder).absolute()
    if problems := check(place):
        raise ResultError(f"{place} is refused before it is run: {problems[0]}")
    manifest = read_manifest(place)
    _check_allowed(manifest, {name.replace(".py:", ":") for name in explainers})
    official = official_suite(manifest.suite)
    if manifest.version != official.version:
        raise ResultError(f"{place} is of an earlier version of {manifest.suite}, which this xaibench cannot run.")
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary:
        base = Path(work or temporary)
        base.mkdir(parents=True, exist_ok=True)
        file, name = base / "suite-again.toml", manifest.method
        file.write_text(official.with_explainer(name, manifest.entry, manifest.parameters), encoding="utf-8")
        done = run(file, base / "run", device=device, datasets=datasets, progress=progress, **run_settings)
        if done.failures:
            job, why = next(iter(done.failures.items()))
            raise ResultError(f"{name} failed: {why} (in {job}).")
        settings = {key: value for key, value in run_settings.items() if key not in ("engine", "address")}
        with RunRequest.of(file, done.folder, device=device, datasets=datasets, **settings).opened() as opened:
            changed = measure_dependence(opened.plan, opened.store, name, device)
        if datasets is None:
            again = write_facts(done.folder, base / FACTS / manifest.suite_folder)
            if different := different_facts(again, read_facts(place.parent.parent / FACTS / manifest.suite_folder)):
                raise ResultError(f"The facts about {manifest.suite_folder} have other {different} than its run.")
        rows = SCORES.read(done.folder)
        rows = rows[rows["explainer"] == name]
        largest, where = compare_scores(read_scores(place, 20_000_000), rows, partial=datasets is not None)
        commit = str(read_environment(done.folder).get("commit") or "")
        return Verification(manifest.folder, result_checksum(place), __version__, commit, largest, changed, where)


def _check_allowed(manifest: Manifest, allowed: set[str]) -> None:
    """Raise an error if the run would import something that is not part of the library and was not named."""
    names = [text for text in (manifest.entry, *_texts(manifest.parameters)) if ":" in text]
    if manifest.entry not in EXPLAINERS:
        names.append(manifest.entry)
    if foreign := sorted(set(names) - allowed):
        raise ResultError(
            f"{manifest.folder} runs {listed(foreign)}, which is not part of the library. Read and install it, and "
            f"name it: --explainers {','.join(foreign)}. It is executed with your rights."
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(each)


def compare_scores(submitted: pd.DataFrame, rerun: pd.DataFrame, *, partial: bool = False) -> tuple[float, str]:
    """Compare submitted scores with the scores of the method run again.

    Args:
        submitted: Scores as in ``scores.parquet``.
        rerun: Scores of the new run.
        partial: Whether only some cells were run again.

    Returns:
        The largest absolute difference after rounding as stored scores are, and its data set, model and metric. It is
        infinite if one side has rows that the other lacks, a score is undefined on one side, or a map was scored as
        chance on one side.
    """
    text = dict.fromkeys(SCORES.text, object)
    one, other = submitted.astype(text), rerun.astype(text)
    if partial:
        one = one[one["dataset"].isin(set(other["dataset"]))]
    both = one.merge(other, on=_ROW_KEY, how="outer", suffixes=("", "_again"), indicator=True)
    if not len(both):
        return 0.0, ""
    left, right = (round_scores(both[name].to_numpy(float)) for name in ("value", "value_again"))
    chance = [is_scored_as_chance(both[name]).to_numpy() for name in ("reason", "reason_again")]
    matched = (both["_merge"] == "both").to_numpy()
    for name in ("correct", "scored"):  # what the networks answered is missing in results of older versions
        matched = matched & (both[name] == both[f"{name}_again"]).fillna(True).to_numpy(bool)
    matched &= (chance[0] == chance[1]) & (np.isnan(left) == np.isnan(right))
    difference = np.where(matched, np.where(np.isnan(left), 0.0, np.abs(left - right)), np.inf)
    worst = int(difference.argmax())
    return float(difference[worst]), " ".join(str(both[name].iloc[worst]) for name in ("dataset", "model", "metric"))
