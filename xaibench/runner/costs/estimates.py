"""Estimate of jobs, time, memory and disk space per stage, before a run starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xaibench.core.compute.device import devices_of
from xaibench.core.compute.host_work import available_cpus
from xaibench.runner.costs.calibration import calibrate, known_costs
from xaibench.runner.costs.simulation import simulate
from xaibench.runner.engines.local_engines import default_device_workers
from xaibench.runner.plan.job_base import STAGES
from xaibench.runner.request import OpenRequest, RunRequest

if TYPE_CHECKING:
    import pandas as pd

#: Seconds to start the workers, and to write the tables and the page after the last job.
START = 12.0


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a run.

    Attributes:
        suite: Name of the suite.
        stages: One row per stage: ``jobs``, ``done`` (jobs with stored results), ``work_seconds`` (total work of the
            remaining jobs on one worker), ``longest_seconds`` (of one remaining job), ``memory_mb`` (maximum of one
            worker) and ``disk_mb`` (of all jobs).
        seconds: Wall time of the run with ``workers``, in the order of the scheduler.
        workers: Number of concurrent CPU jobs.
        device_workers: Number of concurrent GPU jobs; 0 without a GPU.
        memory_mb: Maximum memory of all workers together.
        disk_mb: Disk space of all results.
        unmeasured: Number of jobs with unknown cost, which count as 0: their measurement failed or was not requested.
    """

    suite: str
    stages: pd.DataFrame
    seconds: float
    workers: int
    device_workers: int
    memory_mb: float
    disk_mb: float
    unmeasured: int


def estimate(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    *,
    quick: bool = False,
    workers: int | None = None,
    device: str = "auto",
    store: str | Path | None = None,
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
    measure: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Estimate:
    """Estimate the cost of :func:`xaibench.runner.run` with the same arguments.

    Costs come from earlier runs on this machine. For kinds of jobs that were never run on it, small jobs are measured
    (seconds at 8×8, a minute or two at 64×64) and cached. Times are processor times, so a run takes longer if other
    programs use the CPUs. ``seconds`` includes :data:`START` for starting the workers and writing the tables and page.

    Args:
        suite: As in :func:`~xaibench.runner.run`.
        out: The run folder; finished jobs in it are not counted.
        quick: As in :func:`~xaibench.runner.run`.
        workers: As in :func:`~xaibench.runner.run`; give a cluster's number of CPUs to estimate a run on it.
        device: As in :func:`~xaibench.runner.run`.
        store: As in :func:`~xaibench.runner.run`.
        device_workers: As in :func:`~xaibench.runner.run`.
        root: As in :func:`~xaibench.runner.run`.
        images: As in :func:`~xaibench.runner.run`.
        datasets: As in :func:`~xaibench.runner.run`.
        models: As in :func:`~xaibench.runner.run`.
        explainers: As in :func:`~xaibench.runner.run`.
        metrics: As in :func:`~xaibench.runner.run`.
        samples: As in :func:`~xaibench.runner.run`.
        finetune: As in :func:`~xaibench.runner.run`.
        protocol: As in :func:`~xaibench.runner.run`.
        against: As in :func:`~xaibench.runner.run`; it adds no cost.
        measure: Whether to measure unknown costs on small jobs. Otherwise such jobs count as 0, and ``unmeasured`` is
            their number.
        say: Called with a message when something is measured.

    Returns:
        The estimate.

    Raises:
        UnknownNameError: If the suite, or a part that it names, is unknown.
        SuiteError: If the suite is invalid.
    """
    request = RunRequest.of(
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
    with request.opened() as opened:
        return _estimate(request, opened, measure, say)


def _estimate(request: RunRequest, opened: OpenRequest, measure: bool, say: Callable[[str], None]) -> Estimate:
    import pandas as pd

    plan, results = opened.plan, opened.store
    devices = devices_of(request.device)
    device_type = devices[0].partition(":")[0]
    device_workers = default_device_workers(devices) if request.device_workers is None else request.device_workers
    costs = calibrate(plan, device_type, say) if measure else known_costs()
    keys = {stage: results.keys(stage) for stage in STAGES}
    done = {job for job in plan.jobs if all(key in keys[job.stage] for key in job.results)}

    names = {job: job.kind(device_type) for job in plan.jobs}
    seconds = {job: costs[name].of(job) if name in costs else 0.0 for job, name in names.items()}
    workers = request.workers or max(1, available_cpus() - device_workers)
    rows = []
    for stage in STAGES:
        jobs = [job for job in plan.jobs if job.stage == stage]
        left = [job for job in jobs if job not in done]
        rows.append(
            {
                "jobs": len(jobs),
                "done": len(jobs) - len(left),
                "work_seconds": sum(seconds[job] for job in left),
                "longest_seconds": max((seconds[job] for job in left), default=0.0),
                "memory_mb": max((job.memory_mb for job in left), default=0.0),
                "disk_mb": sum(job.disk_mb for job in jobs),
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(STAGES, name="stage"))
    concurrent = min(workers + device_workers, len(plan.jobs) - len(done))
    wall_seconds = simulate(plan.jobs, seconds, workers, device_workers=device_workers, done=done)
    return Estimate(
        suite=opened.suite.name,
        stages=table,
        seconds=wall_seconds + START * (concurrent > 0),
        workers=workers,
        device_workers=device_workers,
        memory_mb=concurrent * float(table["memory_mb"].max()),
        disk_mb=float(table["disk_mb"].sum()),
        unmeasured=sum(name not in costs for job, name in names.items() if job not in done),
    )
