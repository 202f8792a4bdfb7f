"""Run the submitted methods of a results repository on the data of a round."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xaibench.core.messages import unknown
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import METHOD, ResultError, find_results, read_manifest
from xaibench.leaderboard.rounds import Round, read_rounds, suite_for_round
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.sandbox.sandbox import require_sandbox
from xaibench.leaderboard.submission import hide_secrets
from xaibench.leaderboard.suite_text import official_suite
from xaibench.leaderboard.verdicts import find_record
from xaibench.leaderboard.verification import rerun_method


def run_round(
    repository: str | Path,
    name: str,
    *,
    seconds: float = 600.0,
    memory_gb: float = 8.0,
    work: str | Path | None = None,
    install: bool = False,
    on_message: Callable[[str], None] = lambda line: None,
    **run_settings: Any,
) -> list[Path]:
    """Run every method that was received by the deadline on the data of a round, each in a sandbox.

    Args:
        repository: A results repository with the round, whose seed has been revealed.
        name: Name of the round.
        seconds: Time limit per batch of images, in seconds.
        memory_gb: Memory limit of a method, in GiB.
        work: Folder of the runs, which share their networks. Default: a temporary folder.
        install: Install the packages that a method requires for its sandbox, as in
            :func:`xaibench.leaderboard.verification.verify`.
        on_message: Called with one line per method.
        **run_settings: Passed to :func:`xaibench.runner.run`.

    Returns:
        The folders of the new results.

    Raises:
        ResultError: If the round does not exist, its seed has not been revealed, there is no result of its suite,
            or this machine has no sandbox (bubblewrap).
    """
    require_sandbox()
    place = Path(repository)
    rounds = {one.name: one for one in read_rounds(place)}
    if name not in rounds:
        raise ResultError(unknown(f"{place} has no round", name, rounds))
    drawn, found = rounds[name], list[Path]()
    with tempfile.TemporaryDirectory(prefix="xaibench-round-") as temporary, hide_secrets():
        base = Path(work) if work else Path(temporary)
        for folder in find_results(place):
            try:
                manifest = read_manifest(folder)
            except ResultError as error:
                on_message(str(error))
                continue
            if manifest.suite.name != drawn.suite or manifest.round:
                continue
            if refusal := _late(folder, drawn) or next(iter(check(folder)), ""):
                on_message(f"{manifest.method.name}: {refusal}")
                continue
            own, fresh = base / manifest.method.name, suite_for_round(official_suite(drawn.suite), drawn)
            own.mkdir(parents=True, exist_ok=True)
            limits = {"seconds": seconds, "memory_gb": memory_gb}
            try:
                # The shared store holds the data and networks of the round.
                shared: dict[str, Any] = {"store": base / "store", "install": install} | run_settings
                rerun_method(folder, manifest, own, limits=limits, suite_text=fresh, dependence=False, **shared)
            except ResultError as error:
                on_message(str(error))
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
            )
            on_message(f"{manifest.method.name}: done")
    if not found:
        raise ResultError(f"{place} has no result of {drawn.suite} that can be run for round {name}.")
    return found


def _late(folder: Path, drawn: Round) -> str:
    """Return why a result was not received in time; empty if it was. The submitter's own date does not count."""
    record = find_record(folder)
    if record is None:
        return (
            "no signed record says when it was received. The keeper of the repository runs `xaibench results receive` "
            "and `xaibench results sign` on every submission."
        )
    if record.received > drawn.deadline:
        return f"received on {record.received}, after the deadline {drawn.deadline}"
    return ""
