"""Scheduler: runs every job after the jobs that it needs, earlier stages first, and retries some failed jobs."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from xaibench.runner.engines import Engine
from xaibench.runner.plan.job_base import STAGES, Job, Outcome
from xaibench.runner.store import Store, StoreError

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

    Attributes:
        failures: Jobs that failed, with their errors, which include the number of dependent jobs that were not run.
        inapplicable: Jobs whose explainer does not support the network, with the reason. They have not failed.
        damaged: Whether stored results were damaged. They were set aside, and recomputed if jobs needed them.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        store: Store,
        progress: Callable[[Job], None] = lambda job: None,
        ended: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._store, self._progress, self._ended = store, progress, ended
        self._order = dict(zip(jobs, itertools.count()))
        self._dependents = defaultdict[Job, list[Job]](list)
        self._waiting: dict[Job, set[Job]] = {}  # unfinished jobs, with what they wait for
        # Jobs that use the device have their own queue, so that neither kind blocks the other.
        self._ready: dict[bool, list[tuple[int, int, Job]]] = {True: [], False: []}
        self._running = 0
        self._tries = Counter[Job]()
        self._lost: set[Job] = set()  # failed, inapplicable or skipped
        self.failures: dict[Job, str] = {}
        self.inapplicable: dict[Job, str] = {}
        self.damaged = False
        # One listing per stage, because one request per job would be slow with a remote store.
        self._stored = set[str]().union(*map(store.keys, STAGES))
        for job in self._order:
            for other in (*job.needs, *job.waits_for):
                self._dependents[other].append(job)
            if self._is_stored(job):
                self._progress(job)
            else:
                self._enqueue_when_ready(job)

    def run(self, engine: Engine) -> None:
        """Run all jobs whose results are not stored.

        Raises:
            StoreError: If the store cannot be written. Finished results are kept.
        """
        while any(self._ready.values()) or self._running:
            while queues := [queue for queue in self._ready.values() if queue and engine.has_room(queue[0][-1])]:
                engine.submit(heapq.heappop(min(queues, key=lambda queue: queue[0][:2]))[-1])
                self._running += 1
            for outcome in engine.wait():
                self._running -= 1
                self._ended(outcome)
                self._handle_outcome(outcome)

    def _is_stored(self, job: Job) -> bool:
        return self._stored.issuperset(job.results)

    def _enqueue(self, job: Job) -> None:
        """Queue the job by stage, because more jobs depend on earlier stages, and then in the order of the plan."""
        heapq.heappush(self._ready[job.uses_device], (STAGES.index(job.stage), self._order[job], job))

    def _enqueue_when_ready(self, job: Job, also: Iterable[Job] = ()) -> None:
        """Queue the job once its missing dependencies, and those in ``also``, are done."""
        before = {*job.needs, *(set(job.waits_for) - self._lost)}
        self._waiting[job] = {*itertools.filterfalse(self._is_stored, before), *also}
        if not self._waiting[job]:
            self._enqueue(job)

    def _handle_outcome(self, outcome: Outcome) -> None:
        job = outcome.job
        if not outcome.error:
            self._waiting.pop(job, None)
            self._stored.update(job.results)
            self._progress(job)
            for dependent in self._dependents[job]:
                self._release(dependent, job)
        elif outcome.fatal:
            raise StoreError(outcome.error)
        elif outcome.inapplicable:
            self.inapplicable[job] = outcome.error
            for lost in (job, *self._skip_dependents(job)):
                self._progress(lost)
        elif (missing := self._missing(job)) or outcome.died:
            if missing:
                self.damaged = True
                self._store.set_aside_damaged()
                missing += self._missing(job)
            self._retry(job, missing, outcome.error)
        else:
            self._fail(job, outcome.error)

    def _release(self, job: Job, other: Job) -> None:
        """Let a job no longer wait for another, and queue it if that was the last one."""
        waiting = self._waiting.get(job)
        if waiting and other in waiting:
            waiting.discard(other)
            if not waiting:
                self._enqueue(job)

    def _missing(self, job: Job) -> list[Job]:
        """Return the direct and indirect dependencies whose results were found damaged and set aside."""
        missing: dict[Job, None] = {}
        for other in (*job.needs, *job.waits_for):
            missing |= dict.fromkeys(self._missing(other))
            gone = {key for key in other.results if not self._store.has(other.stage, key)}
            if gone & self._stored:
                self._stored -= gone
                missing[other] = None
        return list(missing)

    def _retry(self, job: Job, missing: list[Job], error: str) -> None:
        self._tries[job] += 1
        if self._tries[job] >= MAX_TRIES:
            self._fail(job, f"{error}; tried {MAX_TRIES} times")
            return
        log.warning("Trying %s again: %s", job, error)
        for other in missing:
            if job not in self._dependents[other]:  # an indirect dependency, such as the data of a score's maps
                self._dependents[other].append(job)
            if other not in self._waiting:
                self._enqueue_when_ready(other)
        self._enqueue_when_ready(job, missing)

    def _fail(self, job: Job, error: str) -> None:
        if skipped := self._skip_dependents(job):
            error += f" ({len(skipped)} jobs that need it were not run)"
        self.failures[job] = error

    def _skip_dependents(self, job: Job) -> list[Job]:
        """Skip all jobs that need a lost job, release jobs that only wait for it, and return the skipped ones."""
        self._lost.add(job)
        skipped = []
        for other in self._dependents[job]:
            if other not in self._waiting or other in self._lost:
                continue
            if job in other.waits_for:
                self._release(other, job)
            else:
                skipped += [other, *self._skip_dependents(other)]
        return skipped
