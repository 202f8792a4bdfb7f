"""Run a suite, from its file to the tables of the run folder."""

from __future__ import annotations

import contextlib
import csv
import json
import operator
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from xaibench.core.markup import html_table
from xaibench.core.messages import unknown
from xaibench.registry.table import IMPORTING
from xaibench.runfolder.descriptions import ENVIRONMENT, SUITE, Environment, read_environment
from xaibench.runfolder.sanitize import quote_formula
from xaibench.runfolder.schema import JOBS, RunFolderError
from xaibench.runner.engines import Engine, Processes, Schedule, Serial
from xaibench.runner.environment import environment
from xaibench.runner.plan.jobs import STAGES, Job, Outcome, Stage
from xaibench.runner.plan.plan import Plan
from xaibench.runner.published_scores import add_published
from xaibench.runner.request import OpenRequest, RunRequest
from xaibench.runner.stages.collect import collect
from xaibench.runner.stages.execute import reuse_scores
from xaibench.runner.stages.samples import dataset_notes
from xaibench.runner.store import CorruptResultError, Store, write_atomic, writing
from xaibench.tensors.device import resolve_device
from xaibench.tensors.workers import available_cpus

#: Names of the engines, which run the jobs.
ENGINES = ("serial", "processes", "ray")

_INSTALL_RAY = 'pip install "xaibench[ray]".'

#: Called with a stage, the number of its finished jobs, and the number of all.
RunProgress = Callable[[Stage, int, int], None]


class ArgumentError(ValueError):
    """An argument of a run, such as its folder, cannot be used."""


@dataclass(frozen=True, repr=False)
class Run:
    """The result of a run.

    Attributes:
        folder: The run folder with its tables.
        failures: ``{job: error message}``; empty if no job failed.
        jobs: Number of jobs of the suite.
        seconds: Wall time of this call.
        missing: ``{data set: how to get it}`` of the sets that were left out because they are not there.
        inapplicable: ``{job: reason}`` of explainers that do not support a network (they raise
            :class:`~xaibench.explainers.UnsupportedModelError`). Their scores are left out; this is not a failure.
        beside: Notes about the published scores that the methods of the run are ranked with.
        notes: ``{data set: sentence}`` about its samples, for example that photographs are repeated.
    """

    folder: Path
    failures: dict[str, str]
    jobs: int
    seconds: float
    missing: dict[str, str] = field(default_factory=dict)
    inapplicable: dict[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Run({', '.join(f'{name} {value}' for name, value in self._summary())})"

    def _repr_html_(self) -> str:
        errors = [f"Failed: {job}: {error}" for job, error in self.failures.items()]
        refused = [f"Not applicable: {job}: {why}" for job, why in self.inapplicable.items()]
        page = f"The page: xaibench.report.write_report({str(self.folder)!r})."
        notes = [f"{name}: {said}" for name, said in self.notes.items()]
        return html_table(self._summary(), title="Run", notes=[*self.beside, *notes, *refused, *errors[:20], page])

    def _summary(self) -> list[tuple[str, object]]:
        """Return the rows of the summary, without counts that are 0."""
        some = {"failed": self.failures, "not applicable": self.inapplicable, "sets left out": self.missing}
        counts = [(name, len(found)) for name, found in some.items() if found or name == "failed"]
        return [("folder", self.folder), ("jobs", self.jobs), ("seconds", round(self.seconds, 1)), *counts]


def run(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    *,
    engine: str = "processes",
    progress: RunProgress | None = None,
    address: str | None = None,
    **fields: Any,
) -> Run:
    """Run a suite: generate data, train, explain, score, and write the tables of the run folder.

    Results that are in the folder are not computed again. So a run that was stopped continues, and a changed suite
    computes only what the change affects. The tables are bit-identical for every engine, number of workers and after
    interruptions.

    Args:
        suite: Name of a built-in suite, or path of a TOML file; or a :class:`RunRequest`, which contains all arguments
            except ``engine``, ``progress`` and ``address``.
        out: The run folder; default ``runs/<name of the suite>``.
        engine: ``"processes"`` runs jobs in parallel, ``"serial"`` one after the other in this process, ``"ray"`` on
            the machines of a Ray cluster (extra ``ray``).
        progress: Called after each job with the stage, and the number of finished jobs and of all jobs of the stage.
        address: Address of the Ray cluster, or ``"auto"`` for the one that this machine is part of; default a new one
            on this machine alone.
        **fields: The other fields of :class:`RunRequest`.

    Returns:
        The run folder, what failed, and which data sets were left out because they are not there. The next run tries
        failed jobs again.

    Raises:
        UnknownNameError: If the suite or a part is unknown; names the nearest.
        SuiteError: If the suite cannot be run as written.
        ArgumentError: If the folder is not writable or is in use, the engine or device is unknown, or the module of a
            part runs a suite while it is imported.
        UnknownParameterError: If an argument is unknown; names the nearest.
        StoreError: If the disk is full or is lost during the run; finished results are kept.
    """
    start = time.monotonic()
    if part := IMPORTING.get():
        raise ArgumentError(
            f"The module of the part {part!r} runs a suite while it is imported; expected only definitions. Put its "
            'call of run() below `if __name__ == "__main__":`.'
        )
    asked = RunRequest.of(suite, out, **fields)
    if engine != "ray":  # the devices of the cluster are unknown here
        try:
            resolve_device(asked.device)
        except (ValueError, TypeError) as error:
            raise ArgumentError(str(error)) from error
    with asked.opened(download=asked.download) as opened, _lock_folder(opened.folder):
        write_atomic(opened.folder / SUITE, opened.text.encode())
        ran_on = _record_environment(opened.folder)
        with _engine(engine, opened.store, asked, address) as runner, _job_log(opened.folder) as ended:
            done = _compute(opened.plan, opened.store, opened.folder, runner, progress, ended)
        seconds = time.monotonic() - start
        if opened.published is not None:
            add_published(opened.published, opened.plan, opened.folder)
        failed, inapplicable = (
            {str(job): error for job, error in errors.items()} for errors in (done.failures, done.inapplicable)
        )
        notes, unreadable = dataset_notes(opened.store, {cell.dataset_name: cell.data for cell in opened.plan.cells})
        conditions = _conditions(asked, opened, engine, seconds) | Environment(inapplicable=inapplicable, notes=notes)
        if unreadable:
            conditions["unreadable"] = unreadable
        write_atomic(opened.folder / ENVIRONMENT, json.dumps(ran_on | conditions, indent=2).encode())
    return Run(
        opened.folder,
        failed,
        len(opened.plan.jobs),
        seconds,
        dict(opened.missing),
        inapplicable,
        tuple(opened.beside),
        notes,
    )


def _record_environment(folder: Path) -> Environment:
    """Write the environment into the run folder, with the others in which earlier calls computed its results."""
    here = environment()
    try:
        before = dict[str, Any](read_environment(folder))
    except RunFolderError:  # damaged; it is written anew
        before = {}
    earlier = [*before.pop("earlier", []), cast("Environment", {name: before[name] for name in here if name in before})]
    others = [ran_on for number, ran_on in enumerate(earlier) if ran_on and ran_on not in (here, *earlier[:number])]
    if others:
        here["earlier"] = others
    write_atomic(folder / ENVIRONMENT, json.dumps(here, indent=2).encode())
    return here


def _conditions(asked: RunRequest, opened: OpenRequest, engine: str, seconds: float) -> Environment:
    """Return the conditions of the run for ``environment.json``."""
    suite = opened.suite
    return {
        "engine": engine,
        "workers": 1 if engine == "serial" else asked.workers or available_cpus(),
        "device": asked.device,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "seeds": {"data": suite.data.seeds, "training": suite.training.seeds, "explaining": suite.explaining.seed},
        "jobs": {
            stage: sum(len(getattr(job, "measurements", [job])) for job in opened.plan.jobs if job.stage == stage)
            for stage in STAGES
        },
        "choices": asked.choices | ({"train": True} if asked.train else {}),
        "missing": list(opened.missing),
        "beside": list(opened.beside),
    }


def _compute(
    plan: Plan,
    store: Store,
    folder: Path,
    engine: Engine,
    progress: RunProgress | None,
    ended: Callable[[Outcome], None],
) -> Schedule:
    """Run the missing jobs and collect the tables; repeat if a stored result turns out to be damaged."""
    total = Counter(map(operator.attrgetter("stage"), plan.jobs))
    done = defaultdict[Stage, set[Job]](set)

    def count(job: Job) -> None:
        done[job.stage].add(job)
        if progress is not None:
            progress(job.stage, len(done[job.stage]), total[job.stage])

    for last in (False, False, True):
        reuse_scores(plan.jobs, store)
        schedule = Schedule(plan.jobs, store, count, ended)
        schedule.run(engine)
        try:
            if schedule.damaged and not last:
                continue
            collect(plan, store, folder, schedule.failures)
        except CorruptResultError:
            if last:
                raise
            store.set_aside_damaged()
        else:
            break
    return schedule


@contextlib.contextmanager
def _job_log(folder: Path) -> Iterator[Callable[[Outcome], None]]:
    """Provide a function that appends the cost of a finished job to ``jobs.csv``: of a score job, a line per score.

    A line is flushed at once, so that a later crash does not lose it. Raises :class:`StoreError` if the disk is full.
    """
    path = folder / JOBS.name
    with writing(path):
        file = path.open("a+", encoding="utf-8", newline="")
        size = path.stat().st_size
    writer = csv.DictWriter(file, JOBS.columns, lineterminator="\n")

    def ended(outcome: Outcome) -> None:
        job, total = outcome.job, sum(outcome.spent.values())
        cost = {"peak_mb": f"{outcome.peak_mb:.0f}", "worker": outcome.worker}
        cost["failed"] = str(int(bool(outcome.error) and not outcome.inapplicable))
        shares = {pair: seconds / total for pair, seconds in outcome.spent.items()} if total else {}
        with writing(path):
            for (explainer, metric), share in shares.items() or [(("", ""), 1.0)]:
                about = job.about() | ({"explainer": explainer, "metric": metric} if metric else {})
                times = {"seconds": outcome.seconds * share, "cpu_seconds": outcome.cpu_seconds * share}
                line = {"stage": job.stage, "key": job.key, **about, **cost}
                line = {name: quote_formula(value) for name, value in line.items()}
                writer.writerow(line | {name: f"{value:.4f}" for name, value in times.items()})
            file.flush()

    try:
        with writing(path):
            if not size:
                writer.writeheader()
            elif file.seek(size - 1) and file.read(1) != "\n":  # an earlier run was killed while it wrote a line
                file.write("\n")
        yield ended
    finally:
        with contextlib.suppress(OSError):  # every line is flushed
            file.close()


def _engine(name: str, store: Store, asked: RunRequest, address: str | None) -> Engine:
    device, workers, device_workers = asked.device, asked.workers, asked.device_workers
    for argument, count in (("workers", workers), ("device_workers", device_workers)):
        if count is not None and count < 1:
            raise ArgumentError(f"{argument} is {count}; expected 1 or more.")
    if address is not None and name != "ray":
        raise ArgumentError(
            f"address is {address!r}, but engine is {name!r}; leave it out, only engine 'ray' has an address."
        )
    if name == "serial":
        return Serial(store, device)
    if name == "processes":
        return Processes(store, device, workers, device_workers)
    if name != "ray":
        raise ArgumentError(unknown("Unknown engine", name, ENGINES))
    try:
        from xaibench.runner.ray_cluster import Ray, RayError
    except ImportError as error:
        raise ArgumentError(f"engine='ray' needs Ray, which cannot be imported ({error}): {_INSTALL_RAY}") from error
    try:
        return Ray(store, device, workers, address=address, jobs_per_gpu=device_workers or 1)
    except RayError as error:
        raise ArgumentError(str(error)) from error


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against other runs. The lock is released when the process ends, even if it is killed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock: Any = (folder / ".lock").open("w")
    except OSError as error:
        raise ArgumentError(
            f"Cannot write to the run folder {folder}: {error.strerror}; choose another with --out."
        ) from error
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on Windows; files are still written atomically
            pass
        except OSError as error:
            raise ArgumentError(
                f"Another run (process {_read_owner(folder)}) is using {folder}; wait for it, or choose another folder "
                "with --out."
            ) from error
        with writing(folder / ".owner"):
            (folder / ".owner").write_text(str(os.getpid()))
        yield


def _read_owner(folder: Path) -> str:
    try:
        return (folder / ".owner").read_text()
    except OSError:
        return "unknown"
