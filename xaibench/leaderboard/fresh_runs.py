"""The methods of a results repository on the fresh data of a round, each in its sandbox."""

from __future__ import annotations

import dataclasses
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xaibench.core.messages import unknown
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import METHOD, ResultError, find_results, read_manifest
from xaibench.leaderboard.rounds import read_rounds, suite_for_round
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.submission import hide_secrets
from xaibench.leaderboard.verification import rerun_scores
from xaibench.runfolder.descriptions import SUITE


def run_round(
    repository: str | Path,
    name: str,
    *,
    seconds: float = 600.0,
    memory_gb: float = 8.0,
    work: str | Path | None = None,
    install: bool = False,
    said: Callable[[str], None] = lambda line: None,
    **run_settings: Any,
) -> list[Path]:
    """Run every method that was handed in by the deadline on the data of a round.

    Args:
        repository: A results repository with the round, whose seed is shown.
        name: Of the round.
        seconds: The longest that a method may take for one batch of images.
        memory_gb: The most memory that it may hold.
        work: Where the runs lie, one below the other's networks; default a temporary folder.
        install: Whether packages that a method needs are installed for its sandbox, as in
            :func:`xaibench.leaderboard.verification.verify`.
        said: Called with a line for each method.
        **run_settings: As :func:`xaibench.runner.run` takes them.

    Returns:
        The folders of the new results.

    Raises:
        ResultError: If there is no such round, its seed is not shown, or no result of its suite.
    """
    place = Path(repository)
    rounds = {one.name: one for one in read_rounds(place)}
    if name not in rounds:
        raise ResultError(unknown(f"{place} has no round", name, rounds))
    drawn, found = rounds[name], list[Path]()
    with tempfile.TemporaryDirectory(prefix="xaibench-round-") as temporary, hide_secrets():
        base = Path(work) if work else Path(temporary)
        runs = [base / folder.parent.name for folder in find_results(place)]
        for folder in find_results(place):
            manifest = read_manifest(folder)
            if manifest.suite.name != drawn.suite or manifest.round:
                continue
            if manifest.submitted > drawn.deadline:
                said(f"{manifest.method.name}: handed in on {manifest.submitted}, after the deadline {drawn.deadline}")
                continue
            if problems := check(folder):
                said(f"{manifest.method.name}: {problems[0]}")
                continue
            text = (folder / SUITE).read_text(encoding="utf-8")
            own, fresh = base / manifest.method.name, suite_for_round(text, drawn)
            own.mkdir(parents=True, exist_ok=True)
            limits = {"seconds": seconds, "memory_gb": memory_gb}
            try:
                # One store for all: the data and networks of the round are made once.
                shared: dict[str, Any] = {"store": base / "store", "install": install, "hidden": runs} | run_settings
                rerun_scores(folder, manifest, own, limits=limits, suite_text=fresh, **shared)
            except ResultError as error:
                said(str(error))
                continue
            fields = {field.name: getattr(manifest.method, field.name) for field in dataclasses.fields(manifest.method)}
            found += split_run(
                own / "run",
                place,
                methods=[manifest.method.name],
                about={manifest.method.name: fields},
                source=folder / METHOD if (folder / METHOD).is_dir() else None,
                code=manifest.code,
                drawn=drawn,
                entries={manifest.method.name: tomllib.loads(text)["explainers"][manifest.method.name]},
            )
            said(f"{manifest.method.name}: done")
    if not found:
        raise ResultError(f"{place} has no result of {drawn.suite} for round {name}; nothing was run.")
    return found
