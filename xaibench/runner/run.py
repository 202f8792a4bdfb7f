"""One run, from the suite to the tables of the run folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xaibench.runner.collect import collect
from xaibench.runner.engines import Engine, Processes, Serial, available_cpus
from xaibench.runner.environment import environment
from xaibench.runner.plan import STAGES, Job, Plan, Stage, make_plan
from xaibench.runner.schedule import Schedule
from xaibench.runner.store import CorruptResultError, Store, write_atomic
from xaibench.runner.suite import load_suite

#: Where jobs can run.
ENGINES = ("serial", "processes")

#: Called with a stage, how many of its jobs are done, and how many there are.
Progress = Callable[[Stage, int, int], None]


class ArgumentError(ValueError):
    """An argument of a run that cannot be used, such as its folder; the message says why and what to do."""


@dataclass(frozen=True)
class Run:
    """What a run left behind.

    Attributes:
        folder: The run folder with its tables.
        failures: ``{job: error}`` in words; empty when all went well.
        jobs: How many jobs the suite has.
        seconds: How long it took this time.
    """

    folder: Path
    failures: dict[str, str]
    jobs: int
    seconds: float


def run(
    suite: str | Path,
    out: str | Path | None = None,
    *,
    engine: str = "processes",
    workers: int | None = None,
    device: str = "auto",
    quick: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Run a suite: generate, train, explain, score, and write the tables of the run folder.

    What is already in the folder is not computed again, so a run that was stopped goes on where it was, and a suite
    that was changed computes only what the change touches. The tables are the same to the bit whatever the engine, the
    number of workers and the interruptions.

    Args:
        suite: Name of a built-in suite, or path of a TOML file.
        out: The run folder; default ``runs/<name of the suite>``.
        engine: ``"processes"`` runs jobs side by side, ``"serial"`` one after the other in this process.
        workers: Number of processes; default one a CPU.
        device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        quick: Run the suite's small form.
        progress: Called as jobs end.

    Returns:
        The run folder and what failed. Failed jobs are tried again by the next run.

    Raises:
        UnknownNameError: If the suite, or a part that it names, is not known.
        SuiteError: If the suite cannot be run as written.
        ArgumentError: If the folder cannot be written or is in use, or there is no such engine or device.
        StoreError: If the disk is full or goes away while it runs; what is finished is kept.
    """
    start = time.monotonic()
    _check_device(device)
    loaded, text = load_suite(suite, quick=quick)
    plan = make_plan(loaded)
    folder = Path(out) if out is not None else Path("runs") / loaded.name
    store = Store(folder / "store")
    with _sole_use(folder):
        write_atomic(folder / "suite.toml", text.encode())
        count = _counted(plan, progress)
        with _engine(engine, store, device, workers) as runner:
            failures = _compute(plan, store, folder, runner, count)
        seconds = time.monotonic() - start
        conditions = {
            "engine": engine,
            "workers": (workers or available_cpus()) if engine == "processes" else 1,
            "device": device,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "seeds": {
                "data": loaded.data.seeds,
                "training": loaded.training.seeds,
                "explaining": loaded.explaining.seed,
            },
            "jobs": {stage: sum(job.stage == stage for job in plan.jobs) for stage in STAGES},
        }
        write_atomic(folder / "environment.json", json.dumps(environment() | conditions, indent=2).encode())
    return Run(folder, {str(job): error for job, error in failures.items()}, len(plan.jobs), seconds)


def _compute(plan: Plan, store: Store, folder: Path, engine: Engine, count: Callable[[Job], None]) -> Mapping[Job, str]:
    """Run what is missing and gather the tables; again when a result turns out damaged only as it is gathered."""
    for last in (False, False, True):
        failures = Schedule(plan.jobs, store, count).run(engine)
        try:
            collect(plan, store, folder, failures)
        except CorruptResultError:
            if last:
                raise
        else:
            break
    return failures


def _counted(plan: Plan, progress: Progress | None) -> Callable[[Job], None]:
    total = {stage: sum(job.stage == stage for job in plan.jobs) for stage in STAGES}
    done: dict[Stage, int] = dict.fromkeys(STAGES, 0)

    seen: set[Job] = set()

    def count(job: Job) -> None:
        if job in seen:  # made again, because its result was damaged
            return
        seen.add(job)
        done[job.stage] += 1
        if progress is not None:
            progress(job.stage, done[job.stage], total[job.stage])

    return count


def _engine(name: str, store: Store, device: str, workers: int | None) -> Engine:
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers is {workers}; expected 1 or more.")
    if name == "serial":
        return Serial(store, device)
    if name == "processes":
        return Processes(store, device, workers)
    raise ArgumentError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}.")


def _check_device(device: str) -> None:
    import torch

    if device == "auto":
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f'there is no device {device!r} here ({reason}); use "auto" or "cpu".') from error


@contextlib.contextmanager
def _sole_use(folder: Path) -> Iterator[None]:
    """Keep two runs out of one folder; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock: Any = (folder / ".lock").open("w")
    except OSError as error:
        raise ArgumentError(
            f"cannot write to the run folder {folder}: {error.strerror}; choose another with --out."
        ) from error
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on Windows: the files themselves are still never half written
            pass
        except OSError as error:
            raise ArgumentError(
                f"another run (process {_owner(folder)}) is using {folder}; wait for it, or choose another with --out."
            ) from error
        (folder / ".owner").write_text(str(os.getpid()))
        yield


def _owner(folder: Path) -> str:
    try:
        return (folder / ".owner").read_text()
    except OSError:
        return "unknown"
