"""Simulation of the scheduler, to estimate the duration of a plan on a given number of workers."""

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
    """Simulate the scheduler and return the seconds from the start to the end of the last job.

    Args:
        jobs: The jobs, each after the jobs that it needs.
        seconds: Duration of each job on one worker.
        workers: Number of concurrent jobs.
        device_workers: Additional number of concurrent jobs that use the device; 0 = ``workers`` run them.
        dispatch: Seconds that the scheduler needs to submit one job; jobs are submitted one after the other.
        done: Jobs with stored results.

    Example:
        >>> from xaibench.component.parameters import Frozen
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

    queues: dict[bool, list[tuple[int, int, Job]]] = {True: [], False: []}
    free = {True: device_workers, False: workers}
    running: list[tuple[float, int, Job, bool]] = []
    now = submitted = 0.0

    def enqueue(job: Job) -> None:
        on_device = job.uses_device and device_workers > 0
        heapq.heappush(queues[on_device], (STAGES.index(job.stage), order[job], job))

    for job in jobs:
        if not missing[job] and job not in done:
            enqueue(job)
    while running or any(queues.values()):
        for on_device, queue in queues.items():
            while queue and free[on_device]:
                _, number, job = heapq.heappop(queue)
                submitted = max(submitted, now) + dispatch
                heapq.heappush(running, (submitted + seconds[job], number, job, on_device))
                free[on_device] -= 1
        now, _, job, on_device = heapq.heappop(running)
        free[on_device] += 1
        for dependent in dependents[job]:
            missing[dependent] -= 1
            if not missing[dependent]:
                enqueue(dependent)
    return now
