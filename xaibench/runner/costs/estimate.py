"""Estimate of jobs, time, memory and disk space per stage, before a run starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from xaibench.compute.device import devices_of
from xaibench.compute.host_threads import available_cpus
from xaibench.runner.costs.calibration import calibrate, known_costs
from xaibench.runner.costs.simulation import simulate
from xaibench.runner.engines.local import default_device_workers
from xaibench.runner.plan.job_base import STAGES, Stage
from xaibench.runner.request import OpenRequest, RequestFields, RunRequest, takes_request_fields

if TYPE_CHECKING:
    import pandas as pd

#: Seconds to start the workers, and to write the tables and the page after the last job.
START = 12.0

#: The subject of the jobs of each stage.
_SUBJECTS: dict[Stage, str] = {"data": "dataset", "train": "model", "explain": "explainer", "score": "metric"}


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
        rough: Number of jobs whose cost is estimated from those of other kinds of jobs, by the name of their data set,
            model, explainer or metric.
    """

    suite: str
    stages: pd.DataFrame
    seconds: float
    workers: int
    device_workers: int
    memory_mb: float
    disk_mb: float
    unmeasured: int
    rough: Mapping[str, int] = field(default_factory=dict)


@takes_request_fields
def estimate(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    *,
    measure: bool = True,
    say: Callable[[str], None] = lambda line: None,
    **fields: Unpack[RequestFields],
) -> Estimate:
    """Estimate the cost of :func:`xaibench.runner.run` with the same arguments.

    Costs are known from earlier runs on this machine. For other kinds of jobs small ones are run for at most eight
    seconds, and their costs are kept. Costs that are still unknown are estimated roughly from those, listed in
    ``rough``; a further call measures some of them. Times are processor times: a run takes longer on a busy machine.
    ``seconds`` includes :data:`START` for starting the workers and writing tables and page.

    Args:
        suite: Name of a built-in suite, or path of a TOML file; or a :class:`~xaibench.runner.RunRequest`.
        out: The run folder. Finished results in it cost nothing.
        measure: Run small jobs if a cost is unknown. Otherwise these jobs count as 0 seconds, in ``unmeasured``.
        say: Called with a line of text when something is measured.
        **fields: The other fields of :class:`~xaibench.runner.RunRequest`.

    Returns:
        Jobs, seconds, memory and disk per stage, and the total wall time.

    Raises:
        UnknownNameError: If the suite or a part is unknown; names the nearest.
        SuiteError: If the suite cannot be run as written.
        UnknownParameterError: If an argument is unknown; names the nearest.
    """
    asked = RunRequest.of(suite, out, **fields)
    with asked.opened() as opened:
        return _estimate(asked, opened, measure, say)


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
    rough = Counter(
        str(job.about()[_SUBJECTS[job.stage]])
        for job, name in names.items()
        if job not in done and name in costs and costs[name].measured == "rough"
    )
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
        rough=rough,
    )
