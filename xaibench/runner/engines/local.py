"""Engines for one machine: in this process, or in worker processes. Results do not depend on the engine.

An engine receives jobs that are ready and returns their outcomes. The scheduler decides which jobs are ready
(:mod:`xaibench.runner.engines.scheduling`). The engine for clusters is :mod:`xaibench.runner.engines.ray_cluster`.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import platform
import sys
import time
import traceback
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from xaibench.compute.device import devices_of, memory_of
from xaibench.compute.fork_server import worker_context
from xaibench.compute.host_threads import available_cpus
from xaibench.runner.engines.worker_processes import become_worker, end_workers
from xaibench.runner.plan.job_base import Job, Outcome
from xaibench.runner.store.result_store import Store, StoreError

log = logging.getLogger("xaibench")


class Engine(Protocol):
    """Runs jobs. Used as a context manager that stops running jobs on exit."""

    def has_room(self, job: Job) -> bool:
        """Return whether the job should be submitted now."""

    def submit(self, job: Job) -> None:
        """Submit a job whose inputs are in the store."""

    def wait(self) -> list[Outcome]:
        """Return the outcomes of finished jobs; blocks until there is at least one."""

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def run_job(job: Job, store: Store, device: str) -> Outcome:
    """Run one job in this process. An error becomes an outcome, so that one job cannot end the run."""
    start, cpu_start = time.perf_counter(), time.process_time()
    outcome = _execute(job, store, device)
    return replace(
        outcome,
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - cpu_start,
        peak_mb=_peak_mb(),
        worker=f"{platform.node()}:{os.getpid()}",
    )


def _execute(job: Job, store: Store, device: str) -> Outcome:
    from xaibench.evaluation.apply import is_inapplicable
    from xaibench.runner.stages.execute import execute

    try:
        execute(job, store, device)
    except StoreError as error:
        return Outcome(job, str(error), fatal=True)
    except Exception as error:
        if is_inapplicable(error):
            return Outcome(job, str(error), inapplicable=True)
        log.debug("%s failed", job, exc_info=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(job, f"{type(error).__name__}: {error} (in {frame.name}, {frame.filename}:{frame.lineno})")
    return Outcome(job)


def _peak_mb() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    # Linux reports KiB, macOS bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


class Serial:
    """Engine that runs one job after the other in this process."""

    def __init__(self, store: Store, device: str = "auto") -> None:
        self._store, self._device = store, device
        self._queue: deque[Job] = deque()

    def has_room(self, job: Job) -> bool:
        """Return whether no job is queued."""
        return not self._queue

    def submit(self, job: Job) -> None:
        """Queue the job."""
        self._queue.append(job)

    def wait(self) -> list[Outcome]:
        """Run the next job in the queue."""
        return [run_job(self._queue.popleft(), self._store, self._device)]

    def __enter__(self) -> Serial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.clear()


class Processes:
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
        self._cpu = _Pool(store, ["cpu"], workers or max(1, available_cpus() - device_processes))
        self._device = _Pool(store, devices, device_processes) if device_processes else self._cpu

    def _pool(self, job: Job) -> _Pool:
        return self._device if job.uses_device else self._cpu

    def has_room(self, job: Job) -> bool:
        """Return whether the job's pool has fewer than two jobs per worker."""
        return self._pool(job).has_room()

    def submit(self, job: Job) -> None:
        """Submit the job to its pool."""
        self._pool(job).submit(job)

    def wait(self) -> list[Outcome]:
        """Return the outcomes of finished jobs of both pools."""
        pools = list(dict.fromkeys([self._cpu, self._device]))
        running = [future for pool in pools for future in pool.running]
        done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
        return [outcome for pool in pools for outcome in pool.take(done)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in dict.fromkeys([self._cpu, self._device]):
            pool.close(interrupted=kind is not None)


#: Seconds to wait before each attempt to restart worker processes; a dead fork server takes a moment to disappear.
_PAUSES = (0.0, 0.1, 1.0)


class _Pool:
    """Pool of worker processes on some devices, and the jobs that they run."""

    def __init__(self, store: Store, devices: list[str], workers: int) -> None:
        self._store, self._devices, self._workers = store, devices, workers
        self.running: dict[concurrent.futures.Future[Outcome], Job] = {}
        self._executor = self._start()

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
                self.running[self._executor.submit(_run_in_worker, job, self._store)] = job
                return
            except (BrokenProcessPool, ConnectionError, EOFError):  # a worker or the fork server died
                log.debug("Worker processes are restarted.", exc_info=True)
            self._executor.shutdown(wait=False, cancel_futures=True)
            time.sleep(pause)
            self._executor = self._start()
        self.running[self._executor.submit(_run_in_worker, job, self._store)] = job

    def take(self, done: set[concurrent.futures.Future[Outcome]]) -> list[Outcome]:
        return [self._outcome(future, self.running.pop(future)) for future in done if future in self.running]

    def _outcome(self, future: concurrent.futures.Future[Outcome], job: Job) -> Outcome:
        try:
            return future.result()
        except (BrokenProcessPool, concurrent.futures.CancelledError):
            return Outcome(job, "a worker process died (killed, or out of memory)", died=True)

    def close(self, interrupted: bool) -> None:
        end_workers(self._executor, at_once=interrupted)  # on interruption, do not wait for a training to end


#: Maximum number of processes per GPU, and GiB of GPU memory per process.
_MAX_PER_GPU, _MEMORY_PER_PROCESS = 4, 16


def default_device_workers(devices: list[str]) -> int:
    """Return the default number of processes that use ``devices``.

    Several processes share a GPU if its memory and the CPUs of the machine suffice. While one fits a regression, solves
    for imputed pixels, reads images or launches many small kernels, the forward passes of another keep the GPU busy.

    Args:
        devices: The devices, as returned by :func:`xaibench.compute.device.devices_of`.

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


#: The device of this worker process.
_worker_device = "cpu"


def _run_in_worker(job: Job, store: Store) -> Outcome:
    return run_job(job, store, _worker_device)


def _start_worker(devices: Any, variables: dict[str, str]) -> None:
    global _worker_device
    os.environ.update(variables)
    _worker_device = devices.get()
    become_worker()
