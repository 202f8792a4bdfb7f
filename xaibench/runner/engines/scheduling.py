"""Scheduler: runs every job after the jobs that it needs, earlier stages first, and retries some failed jobs."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping

from xaibench.runner.engines.local import Engine
from xaibench.runner.plan.job_base import STAGES, Job, Outcome
from xaibench.runner.store.result_store import Store, StoreError

log = logging.getLogger("xaibench")

#: Maximum number of tries of a job whose failure may have an external cause (a killed worker, a damaged input).
MAX_TRIES = 3


class Schedule:
    """One pass over the jobs of a plan.

    Args:
        jobs: All jobs, each after the jobs that it needs.
        store: The store of the results; jobs with stored results are not run.
        progress: Called with each finished job: at the start for stored results, then as jobs end.
        ended: Called with the outcome of each job that was run.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        store: Store,
        progress: Callable[[Job], None] = lambda job: None,
        ended: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._store, self._progress, self._ended = store, progress, ended
        self._order = {job: i for i, job in enumerate(jobs)}
        self._dependents: dict[Job, list[Job]] = {job: [] for job in self._order}
        self._waiting: dict[Job, set[Job]] = {}
        # Jobs that use the device have their own queue, so that neither kind blocks the other.
        self._ready: dict[bool, list[tuple[int, int, Job]]] = {True: [], False: []}
        self._running = 0
        self._tries: dict[Job, int] = {}
        self._skipped: set[Job] = set()
        self.failures: dict[Job, str] = {}
        #: Jobs whose explainer does not support the network, with the reason. They do not count as failures.
        self.inapplicable: dict[Job, str] = {}
        # One listing per stage, because one request per job would be slow with a remote store.
        self._stored = {(stage, key) for stage in {job.stage for job in self._order} for key in store.keys(stage)}
        self._failed = store.failed()

        for job in self._order:
            for need in (*job.needs, *self._soft_dependencies(job)):
                self._dependents[need].append(job)
            if self._is_stored(job):
                self._progress(job)
            else:
                self._enqueue_when_ready(job)

    def run(self, engine: Engine) -> Mapping[Job, str]:
        """Run all jobs whose results are not stored.

        Returns:
            The jobs that failed, with their errors. The error includes the number of dependent jobs that were not run.

        Raises:
            StoreError: If the store cannot be written. Finished results are kept.
        """
        while any(self._ready.values()) or self._running:
            while queues := [queue for queue in self._ready.values() if queue and engine.has_room(queue[0][-1])]:
                job = heapq.heappop(min(queues, key=lambda queue: queue[0][:2]))[-1]
                if (job.stage, job.key) in self._failed:
                    self._store.forgive(job.stage, job.key)
                engine.submit(job)
                self._running += 1
            for outcome in engine.wait():
                self._running -= 1
                self._ended(outcome)
                self._handle_outcome(outcome)
        return self.failures

    def _is_stored(self, job: Job) -> bool:
        return all((job.stage, key) in self._stored for key in job.results)

    def _enqueue(self, job: Job) -> None:
        """Queue the job by stage, because more jobs depend on earlier stages, and then in the order of the plan."""
        heapq.heappush(self._ready[job.uses_device], (STAGES.index(job.stage), self._order[job], job))

    def _enqueue_when_ready(self, job: Job, also: Iterable[Job] = ()) -> None:
        """Queue the job once its missing dependencies, and those in ``also``, are done."""
        before = (*job.needs, *self._soft_dependencies(job))
        self._waiting[job] = {other for other in before if not self._is_stored(other)} | set(also)
        if not self._waiting[job]:
            self._enqueue(job)

    def _soft_dependencies(self, job: Job) -> list[Job]:
        """Return the jobs of this pass that ``job`` waits for although it can run without their results."""
        lost = self.failures.keys() | self.inapplicable.keys() | self._skipped
        return [other for other in job.waits_for if other in self._order and other not in lost]

    def _handle_outcome(self, outcome: Outcome) -> None:
        job = outcome.job
        if not outcome.error:
            self._waiting.pop(job, None)
            self._stored.update((job.stage, key) for key in job.results)
            self._progress(job)
            self._release(job)
        elif outcome.fatal:
            raise StoreError(outcome.error)
        elif outcome.inapplicable:
            self.inapplicable[job] = outcome.error
            self._progress(job)
            self._skip(job, self._progress)
        elif (missing := self._missing(job)) or outcome.died:
            self._retry(job, missing, outcome.error)
        else:
            self._fail(job, outcome.error)

    def _release(self, job: Job) -> None:
        for dependent in self._dependents[job]:
            waiting = self._waiting.get(dependent)
            if waiting and job in waiting:
                waiting.discard(job)
                if not waiting:
                    self._enqueue(dependent)

    def _missing(self, job: Job) -> list[Job]:
        """Return the direct and indirect dependencies whose results were found damaged and set aside."""
        found: dict[Job, None] = {}
        for need in job.needs:
            found.update(dict.fromkeys(self._missing(need)))
            gone = {(need.stage, key) for key in need.results if not self._store.has(need.stage, key)}
            if gone:
                self._stored -= gone
                found[need] = None
        return list(found)

    def _retry(self, job: Job, missing: list[Job], error: str) -> None:
        self._tries[job] = self._tries.get(job, 1) + 1
        if self._tries[job] > MAX_TRIES:
            self._fail(job, f"{error}; tried {MAX_TRIES} times")
            return
        log.warning("Trying %s again: %s", job, error)
        for need in missing:
            if job not in self._dependents[need]:  # an indirect dependency, such as the data of a score's maps
                self._dependents[need].append(job)
            if need not in self._waiting:
                self._enqueue_when_ready(need)
        self._enqueue_when_ready(job, missing)

    def _fail(self, job: Job, error: str) -> None:
        dependents = self._skip(job)
        if dependents:
            error += f" ({dependents} jobs that need it were not run)"
        self.failures[job] = error
        self._store.fail(job.stage, job.key, error)
        self._failed.add((job.stage, job.key))

    def _skip(self, failed: Job, each: Callable[[Job], None] = lambda job: None) -> int:
        """Skip all jobs that need a failed job, and call ``each`` with each of them.

        Returns:
            The number of skipped jobs.
        """
        dependents = [job for job in self._dependents[failed] if job in self._waiting and job not in self._skipped]
        skipped = [job for job in dependents if failed not in job.waits_for]
        self._skipped.update(skipped)
        for job in dependents:
            if failed in job.waits_for and self._waiting[job]:  # it can run without the failed job
                self._waiting[job].discard(failed)
                if not self._waiting[job]:
                    self._enqueue(job)
        for job in skipped:
            each(job)
        return len(skipped) + sum(self._skip(job, each) for job in skipped)
