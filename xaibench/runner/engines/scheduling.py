"""Which job runs when: every job after those it needs, the long ones first, a failed one once more if that may help."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping

from xaibench.runner.engines.local_engines import Engine
from xaibench.runner.plan.job_base import STAGES, Job, Outcome
from xaibench.runner.store.result_store import Store, StoreError

log = logging.getLogger("xaibench")

#: How often one job is tried within a run when the fault may not be its own (a killed worker, a damaged input).
TRIES = 3


class Schedule:
    """One pass over the jobs of a plan.

    Args:
        jobs: All jobs, each after those it needs.
        store: Says which results are there already.
        progress: Called with each job whose result is there: at the start for those found, then as they end.
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
        self._open: dict[Job, set[Job]] = {}
        # Jobs that use the device stand in a line of their own, so that neither kind keeps the other waiting.
        self._ready: dict[bool, list[tuple[int, int, Job]]] = {True: [], False: []}
        self._running = 0
        self._tries: dict[Job, int] = {}
        self._skipped: set[Job] = set()
        self.failures: dict[Job, str] = {}
        #: What was not computed because an explainer says that it cannot treat the network; no failure.
        self.inapplicable: dict[Job, str] = {}
        # One listing a stage: where the store is far away, asking for every job takes longer than many jobs do.
        self._there = {(stage, key) for stage in {job.stage for job in self._order} for key in store.keys(stage)}
        self._blamed = store.failed()

        for job in self._order:
            for need in (*job.needs, *self._waited_for(job)):
                self._dependents[need].append(job)
            if self._has(job):
                self._progress(job)
            else:
                self._await(job)

    def run(self, engine: Engine) -> Mapping[Job, str]:
        """Run all that is not there yet.

        Returns:
            The jobs that failed, and why. What needs them was not run, and is counted in the message.

        Raises:
            StoreError: If nothing can be written any more. What is finished is kept.
        """
        while any(self._ready.values()) or self._running:
            while lines := [line for line in self._ready.values() if line and engine.has_room(line[0][-1])]:
                job = heapq.heappop(min(lines, key=lambda line: line[0][:2]))[-1]
                if (job.stage, job.key) in self._blamed:
                    self._store.forgive(job.stage, job.key)
                engine.submit(job)
                self._running += 1
            for outcome in engine.wait():
                self._running -= 1
                self._ended(outcome)
                self._take(outcome)
        return self.failures

    def _has(self, job: Job) -> bool:
        return all((job.stage, key) in self._there for key in job.results)

    def _line_up(self, job: Job) -> None:
        """Earlier stages first, as more depends on them; within a stage in the order of the plan."""
        heapq.heappush(self._ready[job.uses_device], (STAGES.index(job.stage), self._order[job], job))

    def _await(self, job: Job, also: Iterable[Job] = ()) -> None:
        """Put the job in line behind those of its needs that are not there, and behind ``also``."""
        before = (*job.needs, *self._waited_for(job))
        self._open[job] = {other for other in before if not self._has(other)} | set(also)
        if not self._open[job]:
            self._line_up(job)

    def _waited_for(self, job: Job) -> list[Job]:
        """Of the jobs that it waits for without needing them, those that this pass runs."""
        lost = self.failures.keys() | self.inapplicable.keys() | self._skipped
        return [other for other in job.waits_for if other in self._order and other not in lost]

    def _take(self, outcome: Outcome) -> None:
        job = outcome.job
        if not outcome.error:
            self._open.pop(job, None)
            self._there.update((job.stage, key) for key in job.results)
            self._progress(job)
            self._release(job)
        elif outcome.fatal:
            raise StoreError(outcome.error)
        elif outcome.inapplicable:
            self.inapplicable[job] = outcome.error
            self._progress(job)
            self._skip(job, self._progress)
        elif (missing := self._missing(job)) or outcome.died:
            self._again(job, missing, outcome.error)
        else:
            self._fail(job, outcome.error)

    def _release(self, job: Job) -> None:
        for dependent in self._dependents[job]:
            waiting = self._open.get(dependent)
            if waiting and job in waiting:
                waiting.discard(job)
                if not waiting:
                    self._line_up(dependent)

    def _missing(self, job: Job) -> list[Job]:
        """What the job needs, at any remove, that was found damaged and set aside while it was read."""
        found: dict[Job, None] = {}
        for need in job.needs:
            found.update(dict.fromkeys(self._missing(need)))
            gone = {(need.stage, key) for key in need.results if not self._store.has(need.stage, key)}
            if gone:
                self._there -= gone
                found[need] = None
        return list(found)

    def _again(self, job: Job, missing: list[Job], error: str) -> None:
        self._tries[job] = self._tries.get(job, 1) + 1
        if self._tries[job] > TRIES:
            self._fail(job, f"{error}; tried {TRIES} times")
            return
        log.warning("%s is tried again: %s", job, error)
        for need in missing:
            if job not in self._dependents[need]:  # a score reads the data of its maps: a need at one remove
                self._dependents[need].append(job)
            if need not in self._open:
                self._await(need)
        self._await(job, missing)

    def _fail(self, job: Job, error: str) -> None:
        dependents = self._skip(job)
        if dependents:
            error += f" ({dependents} jobs that need it were not run)"
        self.failures[job] = error
        self._store.fail(job.stage, job.key, error)
        self._blamed.add((job.stage, job.key))

    def _skip(self, failed: Job, each: Callable[[Job], None] = lambda job: None) -> int:
        """Take what needs a failed job out of the line, and tell ``each``; returns how many."""
        there = [job for job in self._dependents[failed] if job in self._open and job not in self._skipped]
        waiting = [job for job in there if failed not in job.waits_for]
        self._skipped.update(waiting)
        for job in there:
            if failed in job.waits_for and self._open[job]:  # it waited, but does without
                self._open[job].discard(failed)
                if not self._open[job]:
                    self._line_up(job)
        for job in waiting:
            each(job)
        return len(waiting) + sum(self._skip(job, each) for job in waiting)
