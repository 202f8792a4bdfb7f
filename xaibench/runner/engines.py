"""Where jobs run: in this process, or in several beside it. The results are the same; only the time differs.

An engine takes jobs that are ready and gives back outcomes as they come; which jobs are ready is the scheduler's
business (:mod:`xaibench.runner.schedule`).
"""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import threading
import traceback
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from xaibench.runner.plan import Job
from xaibench.runner.store import Store, StoreError

log = logging.getLogger("xaibench")


@dataclass(frozen=True)
class Outcome:
    """How one job ended.

    Attributes:
        job: The job.
        error: Empty when the result is in the store; else what went wrong.
        fatal: True when no other job can succeed either (the disk is full).
        died: True when the process died that ran this job or another beside it, so that it may be worth a second try.
    """

    job: Job
    error: str = ""
    fatal: bool = False
    died: bool = False


class Engine(Protocol):
    """Runs jobs. Used as a context manager: leaving it stops what still runs."""

    #: How many jobs are worth handing over at once.
    capacity: int

    def submit(self, job: Job) -> None:
        """Take a job whose needs are in the store."""

    def wait(self) -> list[Outcome]:
        """The outcomes that have come in; blocks until there is at least one."""

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def run_job(job: Job, store: Store, device: str) -> Outcome:
    """Run one job here; an error becomes an outcome, so that one job cannot take the run down."""
    from xaibench.runner.job import execute

    try:
        execute(job, store, device)
    except StoreError as error:
        return Outcome(job, str(error), fatal=True)
    except Exception as error:
        log.debug("%s failed", job, exc_info=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(job, f"{type(error).__name__}: {error} (in {frame.name}, {frame.filename}:{frame.lineno})")
    return Outcome(job)


class Serial:
    """One job after the other, in this process."""

    capacity = 1

    def __init__(self, store: Store, device: str = "auto") -> None:
        self._store, self._device = store, device
        self._queue: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Put the job in line."""
        self._queue.append(job)

    def wait(self) -> list[Outcome]:
        """Run the next job in line."""
        return [run_job(self._queue.popleft(), self._store, self._device)]

    def __enter__(self) -> Serial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.clear()


class Processes:
    """Jobs in worker processes on this machine, one thread each.

    Args:
        store: Where results go.
        device: As in :func:`xaibench.explain`.
        workers: Number of processes; default one for each CPU that this process may use.
    """

    def __init__(self, store: Store, device: str = "auto", workers: int | None = None) -> None:
        self._store, self._device = store, device
        self._workers = workers or available_cpus()
        # A second job in line for each worker, so that none waits for the scheduler between two small jobs.
        self.capacity = 2 * self._workers
        self._running: dict[concurrent.futures.Future[Outcome], Job] = {}
        self._pool = self._new_pool()

    def _new_pool(self) -> concurrent.futures.ProcessPoolExecutor:
        # The fork server imports torch once and forks a clean process for each worker; a plain fork of a process that
        # already runs torch's threads can hang.
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload(["xaibench.runner.warm"])
        return concurrent.futures.ProcessPoolExecutor(self._workers, context, initializer=_start_worker)

    def submit(self, job: Job) -> None:
        """Hand the job to the pool."""
        try:
            future = self._pool.submit(run_job, job, self._store, self._device)
        except BrokenProcessPool:
            self._pool = self._new_pool()
            future = self._pool.submit(run_job, job, self._store, self._device)
        self._running[future] = job

    def wait(self) -> list[Outcome]:
        """Outcomes of the jobs that have ended."""
        done, _ = concurrent.futures.wait(self._running, return_when=concurrent.futures.FIRST_COMPLETED)
        return [self._outcome(future, self._running.pop(future)) for future in done]

    def _outcome(self, future: concurrent.futures.Future[Outcome], job: Job) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool:
            return Outcome(job, "a worker process died (killed, or out of memory)", died=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:  # interrupted: do not wait for a training to end
            for process in processes:
                process.terminate()


def available_cpus() -> int:
    """CPUs that this process may use, which is fewer than the machine has inside a container or a job of a cluster."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker() -> None:
    """A worker keeps to one thread, and ends when the run does, even when the run was killed outright."""
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
