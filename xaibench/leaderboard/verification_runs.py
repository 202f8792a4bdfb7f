"""Many results verified side by side, a suite's networks trained once for all of them."""

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
from xaibench.compute.host_threads import available_cpus
from xaibench.leaderboard.manifest import ResultError, read_manifest
from xaibench.leaderboard.pinned_code import check_code_at_commit
from xaibench.leaderboard.verification import Verification, verify
from xaibench.runner.engines.worker_processes import become_worker, end_workers, worker_context
from xaibench.runner.run import RunProgress

logger = logging.getLogger("xaibench")


@dataclass(frozen=True)
class VerifiedResult:
    """What came of one of the results.

    Attributes:
        folder: Of the result.
        verification: The verdict; None without one.
        refused: Why there is none, where that is the result's or its method's doing.
        failed: Where it is not, as when the disk is full.
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
    """Run the methods of results again, each in a sandbox.

    The first result of a suite takes all workers: its networks are trained side by side. The others find them, and each
    is one worker's, which is warm after its first. Verdicts do not depend on who runs beside whom.

    Args:
        folders: Of the results. Each verdict is written there, as :func:`xaibench.leaderboard.verification.verify` does.
        work: Where runs and networks lie, which serve again; default a temporary folder.
        workers: Processes; 1 is none beside this. Default one for each CPU.
        clone: Whether the commit that a result names is fetched, and its code compared, first.
        bars: Called before each result that is run alone; gives what is told of its jobs.
        **settings: As :func:`xaibench.leaderboard.verification.verify` takes them.

    Yields:
        Each result once, as it is done.

    Raises:
        ValueError: If there is no such device.
    """
    resolve_device(settings.get("device", "cpu"))  # once, not for each
    many = workers or available_cpus()
    engine = {"engine": "serial"} if workers == 1 else {"workers": workers}
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary:
        base = Path(work or temporary)
        runs = {folder: base / folder.parent.name / folder.name for folder in folders}
        shared = {"store": base / "store", "hidden": [run.parent for run in runs.values()], **settings}
        for mine in _by_suite(folders):
            trained = False
            while mine and not (trained and 1 < many <= len(mine)):
                folder = mine.pop(0)
                with bars() as progress:
                    one = _verified(folder, clone, {**shared, **engine, "work": runs[folder], "progress": progress})
                trained = trained or one.verification is not None
                yield one
            yield from _side_by_side({folder: runs[folder] for folder in mine}, many, clone, shared)


def _by_suite(folders: Sequence[Path]) -> list[list[Path]]:
    """Those with the same networks together; one that cannot be read is by itself, and will be refused."""
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


def _verified(folder: Path, clone: bool, settings: Mapping[str, Any]) -> VerifiedResult:
    try:
        if clone and (code := read_manifest(folder).code).sha256:
            check_code_at_commit(folder, code.repository, code.commit)
        return VerifiedResult(folder, verify(folder, **settings))
    except ResultError as error:
        return VerifiedResult(folder, None, refused=str(error))
    except Exception as error:  # one result cannot take the others down
        logger.debug("%s could not be verified", folder, exc_info=True)
        return VerifiedResult(folder, None, failed=f"{type(error).__name__}: {error}")


def _side_by_side(
    runs: Mapping[Path, Path], workers: int, clone: bool, shared: Mapping[str, Any]
) -> Iterator[VerifiedResult]:
    """Each result by one of so many processes."""
    if not runs:
        return
    executor, ended = ProcessPoolExecutor(workers, worker_context(), become_worker), False
    left = list[Path]()
    try:
        alone = {**shared, "engine": "serial"}
        running = {executor.submit(_verified, one, clone, {**alone, "work": run}): one for one, run in runs.items()}
        for future in as_completed(running):
            try:
                yield future.result()
            except BrokenProcessPool:  # one of them was killed, or ran out of memory; the others go with it
                left.append(running[future])
        ended = True
    finally:
        end_workers(executor, at_once=not ended)
    for folder in left:
        yield _verified(folder, clone, {**shared, "workers": workers, "work": runs[folder]})
