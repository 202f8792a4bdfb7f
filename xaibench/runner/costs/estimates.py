"""What a run will cost, before anything starts: jobs, time, memory and disk by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from xaibench.core.compute.device import devices_of
from xaibench.core.compute.host_work import available_cpus
from xaibench.runner.costs.calibration import calibrate, known_costs
from xaibench.runner.costs.simulation import simulate
from xaibench.runner.engines.local_engines import default_drivers
from xaibench.runner.plan.job_base import STAGES
from xaibench.runner.request import OpenRequest, RequestFields, RunRequest, takes_request_fields

if TYPE_CHECKING:
    import pandas as pd

#: Seconds until the workers run, and from their last job to the page.
START = 12.0


@dataclass(frozen=True)
class Estimate:
    """What a run will cost.

    Attributes:
        suite: Its name.
        stages: A row for each stage: ``jobs``, ``done`` (results that are there already), and of those to be run
            ``work_seconds`` (of one worker, summed up), ``longest_seconds`` (of one job), ``memory_mb`` (of one worker
            at most) and ``disk_mb``.
        seconds: From start to end with ``workers``, in the order that the scheduler takes.
        workers: Jobs that run at a time on CPUs.
        device_workers: Jobs that run at a time on GPUs; 0 when there is none.
        memory_mb: Of all workers, at most.
        disk_mb: Of all results.
        unmeasured: Jobs whose cost is not known, which count as nothing: the trial of them failed, or there was none.
    """

    suite: str
    stages: pd.DataFrame
    seconds: float
    workers: int
    device_workers: int
    memory_mb: float
    disk_mb: float
    unmeasured: int


@takes_request_fields
def estimate(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    *,
    measure: bool = True,
    say: Callable[[str], None] = lambda line: None,
    **fields: Unpack[RequestFields],
) -> Estimate:
    """Estimate what :func:`xaibench.runner.run` would cost with the same arguments.

    Costs are known from earlier runs on this machine. For other kinds of jobs small ones are run (seconds at 8×8, a
    minute or two at 64×64), and their costs are kept. Times are processor times: a run takes longer on a busy machine.
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


def _estimate(asked: RunRequest, opened: OpenRequest, measure: bool, say: Callable[[str], None]) -> Estimate:
    import pandas as pd

    plan, results = opened.plan, opened.store
    devices = devices_of(asked.device)
    on = devices[0].partition(":")[0]
    drivers = asked.device_workers if asked.device_workers is not None else default_drivers(devices)
    costs = calibrate(plan, on, say) if measure else known_costs()
    keys = {stage: results.keys(stage) for stage in STAGES}
    done = {job for job in plan.jobs if all(key in keys[job.stage] for key in job.results)}

    names = {job: job.kind(on) for job in plan.jobs}
    seconds = {job: costs[name].of(job) if name in costs else 0.0 for job, name in names.items()}
    workers = asked.workers or max(1, available_cpus() - drivers)
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
    at_once = min(workers + drivers, len(plan.jobs) - len(done))
    return Estimate(
        suite=opened.suite.name,
        stages=table,
        seconds=simulate(plan.jobs, seconds, workers, device_workers=drivers, done=done) + START * (at_once > 0),
        workers=workers,
        device_workers=drivers,
        memory_mb=at_once * float(table["memory_mb"].max()),
        disk_mb=float(table["disk_mb"].sum()),
        unmeasured=sum(name not in costs for job, name in names.items() if job not in done),
    )
