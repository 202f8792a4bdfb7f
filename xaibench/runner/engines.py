"""Engines for one machine, and the scheduler. Results do not depend on the engine.

An engine receives jobs that are ready and returns their outcomes. The scheduler decides which jobs are ready: it runs
every job after the jobs that it needs, earlier stages first, and retries some failed jobs. The engine for clusters is
:mod:`xaibench.runner.ray_cluster`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import heapq
import itertools
import logging
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xaibench.runner.plan.jobs import STAGES, Job, Outcome
from xaibench.runner.store import Store, StoreError
from xaibench.tensors.device import devices_of, memory_of
from xaibench.tensors.workers import available_cpus, worker_context

log = logging.getLogger("xaibench")


class Engine(ABC):
    """Runs jobs. Used as a context manager that stops running jobs on exit."""

    @abstractmethod
    def has_room(self, job: Job) -> bool:
        """Return whether the job should be submitted now."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Submit a job whose inputs are in the store."""

    @abstractmethod
    def wait(self) -> list[Outcome]:
        """Return the outcomes of finished jobs; blocks until there is at least one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the jobs; at once if ``kind`` is an error."""


def run_job(job: Job, store: Store, device: str) -> Outcome:
    """Run one job in this process. An error becomes an outcome, so that one job cannot end the run."""
    from xaibench.evaluation.apply import is_inapplicable
    from xaibench.runner.stages.execute import execute

    start, cpu_start = time.perf_counter(), time.process_time()
    try:
        outcome = Outcome(job, spent=execute(job, store, device))
    except StoreError as error:
        outcome = Outcome(job, str(error), fatal=True)
    except Exception as error:
        if is_inapplicable(error):
            outcome = Outcome(job, str(error), inapplicable=True)
        else:
            log.debug("%s failed", job, exc_info=True)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            subject = ": ".join([*getattr(error, "__notes__", ()), type(error).__name__])
            outcome = Outcome(job, f"{subject}: {error} (in {frame.name}, {frame.filename}:{frame.lineno})")
    return replace(
        outcome,
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - cpu_start,
        peak_mb=_peak_mb(),
        worker=f"{platform.node()}:{os.getpid()}",
    )


def _peak_mb() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    # Linux reports KiB, macOS bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


class Serial(Engine):
    """Engine that runs one job after the other in this process."""

    def __init__(self, store: Store, device: str = "auto") -> None:
        self._store, self._device = store, device
        self._job: Job | None = None

    def has_room(self, job: Job) -> bool:
        """Return whether no job is submitted."""
        return self._job is None

    def submit(self, job: Job) -> None:
        """Keep the job for :meth:`wait`."""
        self._job = job

    def wait(self) -> list[Outcome]:
        """Run the submitted job."""
        job, self._job = self._job, None
        assert job is not None
        return [run_job(job, self._store, self._device)]


class Processes(Engine):
    """Engine that runs jobs in worker processes on this machine, one thread each.

    With a GPU there are two pools: a few processes per GPU run the jobs that train or evaluate a network, the others
    run the rest (data, controls, scores) on the CPU. Each pool has its own queue, so neither waits for the other: maps
    are scored while others are still being computed.

    Args:
        store: The store for the results.
        device: As in :func:`xaibench.explain`.
        workers: Number of CPU processes; by default the number of CPUs available to this process minus the number of
            device processes.
        device_workers: Number of processes for jobs that use the device; by default :func:`default_device_workers`.
    """

    def __init__(
        self, store: Store, device: str = "auto", workers: int | None = None, device_workers: int | None = None
    ) -> None:
        if str(store.root).startswith("memory://"):
            raise StoreError(
                f"The store {store.root} is in the memory of this process, which worker processes cannot access; "
                "choose a folder or an object store, or engine 'serial'."
            )
        devices = devices_of(device)
        device_processes = device_workers if device_workers is not None else default_device_workers(devices)
        cpu = _Pool(store, ["cpu"], workers or max(1, available_cpus() - device_processes))
        #: The pool of jobs that use the device, and that of the others.
        self._pools = {True: _Pool(store, devices, device_processes) if device_processes else cpu, False: cpu}

    def has_room(self, job: Job) -> bool:
        """Return whether the job's pool has fewer than two jobs per worker."""
        return self._pools[job.uses_device].has_room()

    def submit(self, job: Job) -> None:
        """Submit the job to its pool."""
        self._pools[job.uses_device].submit(job)

    def wait(self) -> list[Outcome]:
        """Return the outcomes of finished jobs of both pools."""
        running = {future: pool for pool in self._pools.values() for future in pool.running}
        done: set[concurrent.futures.Future[Outcome]] = set()
        while not done:
            done, _ = concurrent.futures.wait(running, _PATIENCE, concurrent.futures.FIRST_COMPLETED)
            stopped = [pid for pool in set(self._pools.values()) for pid in _stopped_workers(pool.executor)]
            if not done and stopped:
                numbers = " ".join(map(str, stopped))
                log.warning("Worker processes are stopped and wait for a signal: kill -CONT %s continues.", numbers)
        return [running[future].take(future) for future in done]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in set(self._pools.values()):
            end_workers(pool.executor, at_once=kind is not None)  # do not wait for a training to end


#: Seconds without the end of a job after which stopped workers are reported.
_PATIENCE = 60.0
#: Seconds that workers get to end.
_SECONDS_TO_END = 5
#: Seconds to wait before each attempt to restart worker processes; a dead fork server takes a moment to disappear.
_PAUSES = (0.0, 0.1, 1.0)


def _stopped_workers(executor: concurrent.futures.ProcessPoolExecutor) -> list[int]:
    """Return the process numbers of the workers that were stopped by a signal, where the system tells (Linux)."""
    stopped = []
    for pid in list(getattr(executor, "_processes", None) or {}):
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
            if state[:1] in "Tt":
                stopped.append(pid)
    return stopped


class _Pool:
    """Pool of worker processes on some devices, and the jobs that they run."""

    def __init__(self, store: Store, devices: list[str], workers: int) -> None:
        self._store, self._devices, self._workers = store, devices, workers
        self.running: dict[concurrent.futures.Future[Outcome], Job] = {}
        self.executor = self._start()

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        context = worker_context()
        devices: Any = context.SimpleQueue()  # each worker takes one when it starts
        for i in range(self._workers):
            devices.put(self._devices[i % len(self._devices)])
        # Workers are forked from a server that may have been started before a variable was set, such as XAIBENCH_DATA.
        conditions = (devices, dict(os.environ))
        return concurrent.futures.ProcessPoolExecutor(self._workers, context, _start_worker, conditions)

    def has_room(self) -> bool:
        # A second job per worker is queued, so that no worker waits for the scheduler between two small jobs.
        return len(self.running) < 2 * self._workers

    def submit(self, job: Job) -> None:
        for pause in _PAUSES:
            try:
                self.running[self.executor.submit(_run_in_worker, job, self._store)] = job
                return
            except (BrokenProcessPool, ConnectionError, EOFError):  # a worker or the fork server died
                log.debug("Worker processes are restarted.", exc_info=True)
            self.executor.shutdown(wait=False, cancel_futures=True)
            time.sleep(pause)
            self.executor = self._start()
        self.running[self.executor.submit(_run_in_worker, job, self._store)] = job

    def take(self, future: concurrent.futures.Future[Outcome]) -> Outcome:
        job = self.running.pop(future)
        try:
            return future.result()
        except (BrokenProcessPool, concurrent.futures.CancelledError):
            return Outcome(job, "a worker process died (killed, or out of memory)", died=True)


#: Maximum number of processes per GPU, and GiB of GPU memory per process.
_MAX_PER_GPU, _MEMORY_PER_PROCESS = 4, 16


def default_device_workers(devices: list[str]) -> int:
    """Return the default number of processes that use ``devices``.

    Several processes share a GPU if its memory and the CPUs of the machine suffice. While one fits a regression, solves
    for imputed pixels, reads images or launches many small kernels, the forward passes of another keep the GPU busy.

    Args:
        devices: The devices, as returned by :func:`xaibench.tensors.device.devices_of`.

    Returns:
        0 for the CPU, where all processes run all jobs; otherwise the same number for each GPU, at least one.

    Example:
        >>> default_device_workers(["cpu"])
        0
    """
    if devices == ["cpu"]:
        return 0
    by_memory = [memory_of(device) // _MEMORY_PER_PROCESS for device in devices]
    per_gpu = min(_MAX_PER_GPU, available_cpus() // (2 * len(devices)), *by_memory)
    return len(devices) * max(1, int(per_gpu))


#: Parameters of glibc's ``mallopt``, from ``malloc.h``.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: Number of free bytes at the top of the heap that a worker keeps; it returns more to the system.
KEPT = 2**30


@functools.cache
def keep_freed_memory() -> bool:
    """Make this process reuse freed memory instead of returning it to the system.

    By default, glibc maps new pages for every tensor larger than 32 MB and unmaps them when it is freed. The page
    faults take nearly half of the time of a training step of a CNN on 64×64 pixels. Results do not change.

    Returns:
        True if the settings were applied, which needs glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))


def become_worker() -> None:
    """Limit this process to one thread, and make it exit when its parent process ends, even if that is killed."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def end_workers(executor: concurrent.futures.ProcessPoolExecutor, *, at_once: bool) -> None:
    """Stop the worker processes of a pool.

    Args:
        executor: The process pool.
        at_once: Kill running jobs instead of waiting for them.
    """
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=not at_once, cancel_futures=True)
    if at_once:
        for process in processes:
            process.terminate()
        for process in processes:  # so that none still writes to folders that the caller deletes
            process.join(_SECONDS_TO_END)


@contextlib.contextmanager
def helper_process() -> Iterator[concurrent.futures.Executor | None]:
    """Provide one worker process to work next to this one, after :func:`.start_fork_server`.

    Returns:
        A context manager that gives its executor. None on systems without a fork server, where a process would import
        torch first, and with a single CPU.
    """
    context = worker_context()
    if context.get_start_method() != "forkserver" or available_cpus() < 2:
        yield None
        return
    executor = concurrent.futures.ProcessPoolExecutor(1, context, become_worker)
    try:
        yield executor
    finally:
        end_workers(executor, at_once=False)


#: The device of this worker process.
_worker_device = "cpu"


def _run_in_worker(job: Job, store: Store) -> Outcome:
    return run_job(job, store, _worker_device)


def _start_worker(devices: Any, variables: dict[str, str]) -> None:
    global _worker_device
    os.environ.update(variables)
    _worker_device = devices.get()
    become_worker()


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
