"""How long a plan takes on so many workers: the scheduler's own order, with a clock that only counts."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from xaibench.runner.plan.job_base import STAGES, Job


def simulate(
    jobs: Sequence[Job],
    seconds: Mapping[Job, float],
    workers: int,
    *,
    device_workers: int = 0,
    dispatch: float = 0.0,
    done: Collection[Job] = (),
) -> float:
    """Seconds from the first job to the last.

    Args:
        jobs: Each after those it needs.
        seconds: How long each takes on one worker.
        workers: How many jobs run at a time.
        device_workers: How many jobs that use the device run at a time, beside the others; 0 = ``workers`` run them.
        dispatch: Seconds that handing over one job takes the run's own process, which does so one job after another.
        done: Jobs whose results are there.

    Example:
        >>> from xaibench.core.frozen import Frozen
        >>> from xaibench.runner.plan.jobs import DataJob
        >>> jobs = [DataJob("a", seed, Frozen(), "1") for seed in range(5)]
        >>> simulate(jobs, dict.fromkeys(jobs, 2.0), workers=2)
        6.0
    """
    order = {job: i for i, job in enumerate(jobs)}
    dependents: dict[Job, list[Job]] = {job: [] for job in jobs}
    missing: dict[Job, int] = {}
    for job in jobs:
        needs = [need for need in job.needs if need not in done]
        missing[job] = len(needs)
        for need in needs:
            dependents[need].append(job)

    lines: dict[bool, list[tuple[int, int, Job]]] = {True: [], False: []}
    free = {True: device_workers, False: workers}
    running: list[tuple[float, int, Job, bool]] = []
    now = driver = 0.0

    def line_up(job: Job) -> None:
        own = job.uses_device and device_workers > 0
        heapq.heappush(lines[own], (STAGES.index(job.stage), order[job], job))

    for job in jobs:
        if not missing[job] and job not in done:
            line_up(job)
    while running or any(lines.values()):
        for own, line in lines.items():
            while line and free[own]:
                _, number, job = heapq.heappop(line)
                driver = max(driver, now) + dispatch
                heapq.heappush(running, (driver + seconds[job], number, job, own))
                free[own] -= 1
        now, _, job, own = heapq.heappop(running)
        free[own] += 1
        for dependent in dependents[job]:
            missing[dependent] -= 1
            if not missing[dependent]:
                line_up(dependent)
    return now
