"""Verify many results in parallel, training the networks of each suite once."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xaibench.compute.device import resolve_device
from xaibench.compute.fork_server import worker_context
from xaibench.compute.host_threads import available_cpus
from xaibench.leaderboard.manifest import ResultError, read_manifest
from xaibench.leaderboard.pinned_code import check_code_at_commit
from xaibench.leaderboard.sandbox.sandbox import require_sandbox
from xaibench.leaderboard.verdicts import Verification
from xaibench.leaderboard.verification import record_outcome, verify
from xaibench.runner.engines import become_worker, end_workers
from xaibench.runner.run import RunProgress

logger = logging.getLogger("xaibench")


@dataclass(frozen=True)
class VerifiedResult:
    """Outcome for one of several results.

    Attributes:
        folder: Folder of the result.
        verification: The outcome; None if there is none.
        refused: Why there is none, if the result or its method is the cause.
        failed: Why there is none, if the cause is elsewhere, such as a full disk.
    """

    folder: Path
    verification: Verification | None
    refused: str = ""
    failed: str = ""


def verify_all(
    folders: Sequence[Path],
    *,
    work: str | Path | None = None,
    workers: int | None = None,
    clone: bool = False,
    bars: Callable[[], AbstractContextManager[RunProgress | None]] = nullcontext,
    **settings: Any,
) -> Iterator[VerifiedResult]:
    """Verify several results, each in a sandbox.

    The first result of each suite uses all workers, so that its networks are trained in parallel. The other results
    reuse these networks and take one worker each. Verdicts do not depend on the order or on the number of workers.

    Args:
        folders: Folders of the results. Verdicts are written as by :func:`xaibench.leaderboard.verification.verify`.
        work: Folder of runs and networks, which are reused. Default: a temporary folder.
        workers: Number of processes; 1 uses the current process. Default: one per CPU.
        clone: First fetch the commit that a result names and compare the code with it.
        bars: Returns a context manager per result that is run alone; its value is called as ``progress``.
        **settings: Passed to :func:`xaibench.leaderboard.verification.verify`.

    Yields:
        One outcome per result, in the order of completion.

    Raises:
        ValueError: If the device does not exist.
        ResultError: If this machine has no sandbox (bubblewrap).
    """
    resolve_device(settings.get("device", "cpu"))  # fail early
    require_sandbox()
    many = workers or available_cpus()
    engine = {"engine": "serial"} if workers == 1 else {"workers": workers}
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary:
        base = Path(work or temporary)
        runs = {folder: base / folder.parent.name / folder.name for folder in folders}
        # Only this process writes verdicts, because they are in one file.
        shared = {"store": base / "store", **settings, "record": False}
        for mine in _group_by_suite(folders):
            for one in _verify_group(mine, runs, many, clone, shared, engine, bars):
                if one.verification is not None and settings.get("datasets") is None:
                    record_outcome(one.folder, runs[one.folder], one.verification)
                yield one


def _verify_group(
    folders: list[Path],
    runs: Mapping[Path, Path],
    workers: int,
    clone: bool,
    shared: Mapping[str, Any],
    engine: Mapping[str, Any],
    bars: Callable[[], AbstractContextManager[RunProgress | None]],
) -> Iterator[VerifiedResult]:
    """Verify the results of one suite."""
    trained, left = False, list(folders)
    while left and not (trained and 1 < workers <= len(left)):
        folder = left.pop(0)
        with bars() as progress:
            one = _verify_one(folder, clone, {**shared, **engine, "work": runs[folder], "progress": progress})
        trained = trained or one.verification is not None
        yield one
    yield from _verify_parallel({folder: runs[folder] for folder in left}, workers, clone, shared)


def _group_by_suite(folders: Sequence[Path]) -> list[list[Path]]:
    """Group results with the same networks; an unreadable result, which will be refused, is a group of its own."""
    found: dict[object, list[Path]] = {}
    for folder in folders:
        key: object = folder
        try:
            manifest = read_manifest(folder)
            key = (manifest.suite.name, manifest.suite.version, manifest.round)
        except ResultError:
            pass
        found.setdefault(key, []).append(folder)
    return list(found.values())


def _verify_one(folder: Path, clone: bool, settings: Mapping[str, Any]) -> VerifiedResult:
    try:
        if clone and (code := read_manifest(folder).code).sha256:
            check_code_at_commit(folder, code.repository, code.commit)
        return VerifiedResult(folder, verify(folder, **settings))
    except ResultError as error:
        return VerifiedResult(folder, None, refused=str(error))
    except Exception as error:  # continue with the other results
        logger.debug("%s could not be verified", folder, exc_info=True)
        return VerifiedResult(folder, None, failed=f"{type(error).__name__}: {error}")


def _verify_parallel(
    runs: Mapping[Path, Path], workers: int, clone: bool, shared: Mapping[str, Any]
) -> Iterator[VerifiedResult]:
    """Verify each result in one of ``workers`` processes."""
    if not runs:
        return
    executor, ended = ProcessPoolExecutor(workers, worker_context(), become_worker), False
    left = list[Path]()
    try:
        alone = {**shared, "engine": "serial"}
        running = {executor.submit(_verify_one, one, clone, {**alone, "work": run}): one for one, run in runs.items()}
        for future in as_completed(running):
            try:
                yield future.result()
            except BrokenProcessPool:  # one worker died, which ends all of them
                left.append(running[future])
        ended = True
    finally:
        end_workers(executor, at_once=not ended)
    for folder in left:
        yield _verify_one(folder, clone, {**shared, "workers": workers, "work": runs[folder]})
