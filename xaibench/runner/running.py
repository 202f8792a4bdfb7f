"""One run, from the suite to the tables of the run folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from xaibench.core.compute.device import devices_of, resolve_device
from xaibench.core.compute.host_work import available_cpus
from xaibench.core.messages import unknown
from xaibench.core.rich_results import html_table
from xaibench.runfolder.descriptions import ENVIRONMENT, SUITE, Environment
from xaibench.runner.costs.calibration import known_costs, learn
from xaibench.runner.costs.work_done import WorkDone
from xaibench.runner.engines.local_engines import Engine, Outcome, Processes, Serial
from xaibench.runner.engines.scheduling import Schedule
from xaibench.runner.plan.job_base import STAGES, Job, Stage
from xaibench.runner.plan.planning import Plan
from xaibench.runner.published_scores import add_published
from xaibench.runner.request import OpenRequest, RunRequest
from xaibench.runner.run_environment import environment
from xaibench.runner.stages.gathering import collect
from xaibench.runner.stages.merged_scores import set_name
from xaibench.runner.stages.sample_data import notes_of_sets
from xaibench.runner.store.job_records import Records
from xaibench.runner.store.result_store import CorruptResultError, Store
from xaibench.runner.store.store_files import write_atomic, writing

#: Where jobs can run.
ENGINES = ("serial", "processes", "ray")

_GET_RAY = 'pip install "xaibench[ray]".'

#: Called with a stage, how many of its jobs are done, how many there are, and the share of its work that is done:
#: between 0 and 1, by what jobs of the kind took in this run and earlier ones.
Progress = Callable[[Stage, int, int, float], None]


class ArgumentError(ValueError):
    """An argument of a run that cannot be used, such as its folder; the message says why and what to do."""


@dataclass(frozen=True, repr=False)
class Run:
    """What a run left behind.

    Attributes:
        folder: The run folder with its tables.
        failures: ``{job: error}`` in words; empty when all went well.
        jobs: How many jobs the suite has.
        seconds: How long it took this time.
        missing: ``{data set: how to get it}`` of the sets that were left out because they are not there.
        inapplicable: ``{job: why}`` of explainers that cannot treat a network, as they say themselves (by an
            :class:`~xaibench.explainers.UnsupportedModelError`); their scores are left out, and nothing has failed.
        beside: What is to be known of the published scores that stand beside the run's, in words.
        notes: ``{data set: sentence}`` of what is to be known of its samples, as that photographs are repeated.
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
        return f"Run({', '.join(f'{name} {value}' for name, value in self._said())})"

    def _repr_html_(self) -> str:
        errors = [f"Failed: {job}: {error}" for job, error in self.failures.items()]
        refused = [f"Not applicable: {job}: {why}" for job, why in self.inapplicable.items()]
        page = f"The page: xaibench.report.write_report({str(self.folder)!r})."
        notes = [f"{name}: {said}" for name, said in self.notes.items()]
        return html_table(self._said(), title="Run", notes=[*self.beside, *notes, *refused, *errors[:20], page])

    def _said(self) -> list[tuple[str, object]]:
        """What matters of it; what there was none of is left out."""
        some = {"failed": self.failures, "not applicable": self.inapplicable, "sets left out": self.missing}
        counts = [(name, len(found)) for name, found in some.items() if found or name == "failed"]
        return [("folder", self.folder), ("jobs", self.jobs), ("seconds", round(self.seconds, 1)), *counts]


def run(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    *,
    engine: str = "processes",
    workers: int | None = None,
    device: str = "auto",
    quick: bool = False,
    progress: Progress | None = None,
    store: str | Path | None = None,
    address: str | None = None,
    device_workers: int | None = None,
    root: str | Path | None = None,
    images: str | Path | None = None,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    explainers: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    samples: int | Literal["all"] | None = None,
    finetune: str | None = None,
    protocol: str | None = None,
    against: str | Path | None = None,
) -> Run:
    """Run a suite: generate, train, explain, score, and write the tables of the run folder.

    What is already in the folder is not computed again, so a run that was stopped goes on where it was, and a suite
    that was changed computes only what the change touches. The tables are the same to the bit whatever the engine, the
    number of workers and the interruptions.

    Args:
        suite: Name of a built-in suite, or path of a TOML file; or a request, which says all but ``engine``,
            ``progress`` and ``address``.
        out: The run folder; default ``runs/<name of the suite>``.
        engine: ``"processes"`` runs jobs side by side, ``"serial"`` one after the other in this process, ``"ray"`` on
            the machines of a Ray cluster (extra ``ray``).
        workers: The most jobs to run at a time on CPUs; default one a CPU, of the cluster with ``"ray"``.
        device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        quick: Run the suite's small form.
        progress: Called as jobs end.
        store: Where the results of the jobs lie: a folder, or a URL that fsspec knows (``"s3://bucket/run"``); default
            ``store`` in the run folder. With ``"ray"`` every machine must reach it under this name.
        address: Of the Ray cluster, or ``"auto"`` for the one that this machine is part of; default a new one on this
            machine alone.
        device_workers: Processes that share the GPUs; default up to four each, as their memory and the CPUs
            allow. With ``"ray"``, jobs that share one GPU.
        root: The folder below which annotated sets lie; default the environment variable ``XAIBENCH_DATA``.
        images: The folder of photographs that IMAGENET sets lie on; default the environment variable
            ``XAIBENCH_IMAGES``. Where it has fewer than a set needs, each is repeated, and the page says how often.
        datasets: Only these of the suite's data sets, by name or by their cell's label.
        models: These instead of the suite's, or in the place that it leaves open for them.
        explainers: These instead of the suite's, whose controls stay; ``"mine:squared"`` is one of your own. Those that
            the suite has too keep the parameters it states.
        metrics: These instead of the suite's, likewise.
        samples: The first so many test samples of each data set, or ``"all"``.
        finetune: ``"head"`` or ``"all"``, of suites that train pretrained networks.
        protocol: How maps are cut, ``"scaled"`` or ``"published"`` (:mod:`xaibench.evaluation.protocol`).
        against: ``"published"``: rank the run's methods among those whose scores of this suite come with the library
            and need not be run; or a file of such scores (:func:`xaibench.runner.published_scores.write_published`).

    Returns:
        The run folder, what failed, and which annotated sets were left out because they are not there. Failed jobs are
        tried again by the next run.

    Raises:
        UnknownNameError: If the suite, or a part that it names, is not known.
        SuiteError: If the suite cannot be run as written.
        ArgumentError: If the folder cannot be written or is in use, or there is no such engine or device.
        StoreError: If the disk is full or goes away while it runs; what is finished is kept.
    """
    start = time.monotonic()
    asked = RunRequest.of(
        suite,
        out=out,
        quick=quick,
        store=store,
        workers=workers,
        device=device,
        device_workers=device_workers,
        root=root,
        images=images,
        datasets=datasets,
        models=models,
        explainers=explainers,
        metrics=metrics,
        samples=samples,
        finetune=finetune,
        protocol=protocol,
        against=against,
    )
    if engine != "ray":  # whose machines may have what this one has not
        _check_device(asked.device)
    with asked.opened() as opened, _sole_use(opened.folder):
        write_atomic(opened.folder / SUITE, opened.text.encode())
        with _engine(engine, opened.store, asked, address) as runner, Records(opened.folder) as records:
            here = engine != "ray"  # whose machines are others: of them nothing is remembered
            on = devices_of(asked.device)[0].partition(":")[0] if here else "ray"
            work = WorkDone(opened.plan.jobs if progress else (), on, known_costs() if here else {})

            def ended(outcome: Outcome) -> None:
                work.ran(outcome)
                records.add(outcome)

            count = _counted(opened.plan, progress, work)
            done = _compute(opened.plan, opened.store, opened.folder, runner, count, ended)
        if here:
            learn(records.outcomes, on)
        seconds = time.monotonic() - start
        if opened.published is not None:
            add_published(opened.published, opened.plan, opened.folder)
        failed, inapplicable = _in_words(done.failures), _in_words(done.inapplicable)
        notes = notes_of_sets(opened.store, {set_name(cell): cell.data for cell in opened.plan.cells})
        conditions = _conditions(asked, opened, engine, seconds) | Environment(inapplicable=inapplicable, notes=notes)
        write_atomic(opened.folder / ENVIRONMENT, json.dumps(environment() | conditions, indent=2).encode())
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


def _in_words(errors: Mapping[Job, str]) -> dict[str, str]:
    return {str(job): error for job, error in errors.items()}


def _conditions(asked: RunRequest, opened: OpenRequest, engine: str, seconds: float) -> Environment:
    """What of the run's circumstances its folder keeps."""
    suite = opened.suite
    return {
        "engine": engine,
        "workers": 1 if engine == "serial" else asked.workers or available_cpus(),
        "device": asked.device,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "seeds": {"data": suite.data.seeds, "training": suite.training.seeds, "explaining": suite.explaining.seed},
        "jobs": {stage: sum(job.stage == stage for job in opened.plan.jobs) for stage in STAGES},
        "choices": asked.choices,
        "missing": list(opened.missing),
        "beside": list(opened.beside),
    }


def _compute(
    plan: Plan,
    store: Store,
    folder: Path,
    engine: Engine,
    count: Callable[[Job], None],
    ended: Callable[[Outcome], None],
) -> Schedule:
    """Run what is missing and gather the tables; again when a result turns out damaged only as it is gathered."""
    for last in (False, False, True):
        schedule = Schedule(plan.jobs, store, count, ended)
        schedule.run(engine)
        try:
            collect(plan, store, folder, schedule.failures)
        except CorruptResultError:
            if last:
                raise
        else:
            break
    return schedule


def _counted(plan: Plan, progress: Progress | None, work: WorkDone) -> Callable[[Job], None]:
    total = {stage: sum(job.stage == stage for job in plan.jobs) for stage in STAGES}
    done: dict[Stage, int] = dict.fromkeys(STAGES, 0)

    seen: set[Job] = set()

    def count(job: Job) -> None:
        if job in seen:  # made again, because its result was damaged
            return
        seen.add(job)
        done[job.stage] += 1
        if progress is not None:
            work.ended(job)
            progress(job.stage, done[job.stage], total[job.stage], work.share(job.stage))

    return count


def _engine(name: str, store: Store, asked: RunRequest, address: str | None) -> Engine:
    device, workers, device_workers = asked.device, asked.workers, asked.device_workers
    for what, count in (("workers", workers), ("device_workers", device_workers)):
        if count is not None and count < 1:
            raise ArgumentError(f"{what} is {count}; expected 1 or more.")
    if address is not None and name != "ray":
        raise ArgumentError(
            f"address is {address!r}, but engine is {name!r}; it is for engine 'ray' alone, leave it out."
        )
    if name == "serial":
        return Serial(store, device)
    if name == "processes":
        return Processes(store, device, workers, device_workers)
    if name == "ray":
        return _ray_engine(store, device, workers, address, device_workers or 1)
    raise ArgumentError(unknown("Unknown engine", name, ENGINES))


def _ray_engine(store: Store, device: str, workers: int | None, address: str | None, share: int) -> Engine:
    try:
        from xaibench.runner.engines.ray_engine import Ray, RayError
    except ImportError as error:
        raise ArgumentError(f"engine='ray' needs Ray, which cannot be imported ({error}): {_GET_RAY}") from error
    try:
        return Ray(store, device, workers, address=address, jobs_per_gpu=share)
    except RayError as error:
        raise ArgumentError(str(error)) from error


def _check_device(device: str) -> None:
    try:
        resolve_device(device)
    except (ValueError, TypeError) as error:
        raise ArgumentError(str(error)) from error


@contextlib.contextmanager
def _sole_use(folder: Path) -> Iterator[None]:
    """Keep two runs out of one folder; the lock goes with the process, however it ends."""
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
        except ImportError:  # no such locks on Windows: the files themselves are still never half written
            pass
        except OSError as error:
            raise ArgumentError(
                f"Another run (process {_owner(folder)}) is using {folder}; wait for it, or choose another with --out."
            ) from error
        with writing(folder / ".owner"):
            (folder / ".owner").write_text(str(os.getpid()))
        yield


def _owner(folder: Path) -> str:
    try:
        return (folder / ".owner").read_text()
    except OSError:
        return "unknown"
