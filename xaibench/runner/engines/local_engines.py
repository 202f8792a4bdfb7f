"""Where jobs run: in this process, or in several beside it. The results are the same; only the time differs.

An engine takes jobs that are ready and gives back outcomes as they come; which jobs are ready is the scheduler's
business (:mod:`xaibench.runner.engines.scheduling`). The engine over many machines is
:mod:`xaibench.runner.engines.ray_engine`.
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

from xaibench.core.compute.device import devices_of, memory_of
from xaibench.core.compute.host_work import available_cpus
from xaibench.runner.engines.worker_processes import become_worker, end_workers, worker_context
from xaibench.runner.plan.job_base import Job, Outcome
from xaibench.runner.store.result_store import Store, StoreError

log = logging.getLogger("xaibench")


class Engine(Protocol):
    """Runs jobs. Used as a context manager: leaving it stops what still runs."""

    def has_room(self, job: Job) -> bool:
        """Whether it is worth handing over this job now."""

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
    start, busy = time.perf_counter(), time.process_time()
    outcome = _outcome(job, store, device)
    return replace(
        outcome,
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - busy,
        peak_mb=_peak_mb(),
        worker=f"{platform.node()}:{os.getpid()}",
    )


def _outcome(job: Job, store: Store, device: str) -> Outcome:
    from xaibench.evaluation.apply import is_inapplicable
    from xaibench.runner.stages.execution import execute

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
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


class Serial:
    """One job after the other, in this process."""

    def __init__(self, store: Store, device: str = "auto") -> None:
        self._store, self._device = store, device
        self._queue: deque[Job] = deque()

    def has_room(self, job: Job) -> bool:
        """One at a time."""
        return not self._queue

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

    With a GPU there are two pools: a few processes for each GPU run the jobs that train or ask a network, the others
    run the rest (data, controls, scores) on the CPU. Each pool has a line of its own, so that neither waits for the
    other's jobs: maps are scored while others are still being made.

    Args:
        store: Where results go.
        device: As in :func:`xaibench.explain`.
        workers: Number of processes for the CPU; default one for each CPU that this process may use, less those that
            drive a GPU.
        device_workers: Number of processes that run what uses the device; default as :func:`default_drivers` says.
    """

    def __init__(
        self, store: Store, device: str = "auto", workers: int | None = None, device_workers: int | None = None
    ) -> None:
        if str(store.root).startswith("memory://"):
            raise StoreError(
                f"The store {store.root} lies in the memory of this process, which the worker processes do not share; "
                "choose a folder or an object store, or engine 'serial'."
            )
        devices = devices_of(device)
        drivers = device_workers if device_workers is not None else default_drivers(devices)
        self._cpu = _Pool(store, ["cpu"], workers or max(1, available_cpus() - drivers))
        self._device = _Pool(store, devices, drivers) if drivers else self._cpu

    def _pool(self, job: Job) -> _Pool:
        return self._device if job.uses_device else self._cpu

    def has_room(self, job: Job) -> bool:
        """Whether the job's pool has fewer than two jobs for each of its workers."""
        return self._pool(job).has_room()

    def submit(self, job: Job) -> None:
        """Hand the job to its pool."""
        self._pool(job).submit(job)

    def wait(self) -> list[Outcome]:
        """Outcomes of the jobs that have ended, in either pool."""
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


#: Seconds between the tries to start worker processes anew: a fork server takes a moment to be gone.
_PAUSES = (0.0, 0.1, 1.0)


class _Pool:
    """Worker processes that share out some devices, and what they run."""

    def __init__(self, store: Store, devices: list[str], workers: int) -> None:
        self._store, self._devices, self._workers = store, devices, workers
        self.running: dict[concurrent.futures.Future[Outcome], Job] = {}
        self._executor = self._start()

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        context = worker_context()
        devices: Any = context.SimpleQueue()  # each worker takes one as it starts
        for i in range(self._workers):
            devices.put(self._devices[i % len(self._devices)])
        return concurrent.futures.ProcessPoolExecutor(self._workers, context, _start_worker, (devices,))

    def has_room(self) -> bool:
        # A second job in line for each worker, so that none waits for the scheduler between two small jobs.
        return len(self.running) < 2 * self._workers

    def submit(self, job: Job) -> None:
        for pause in _PAUSES:
            try:
                self.running[self._executor.submit(_run_here, job, self._store)] = job
                return
            except (BrokenProcessPool, ConnectionError, EOFError):  # a worker died, or the fork server that starts them
                log.debug("worker processes are started anew", exc_info=True)
            self._executor.shutdown(wait=False, cancel_futures=True)
            time.sleep(pause)
            self._executor = self._start()
        self.running[self._executor.submit(_run_here, job, self._store)] = job

    def take(self, done: set[concurrent.futures.Future[Outcome]]) -> list[Outcome]:
        return [self._outcome(future, self.running.pop(future)) for future in done if future in self.running]

    def _outcome(self, future: concurrent.futures.Future[Outcome], job: Job) -> Outcome:
        try:
            return future.result()
        except (BrokenProcessPool, concurrent.futures.CancelledError):
            return Outcome(job, "a worker process died (killed, or out of memory)", died=True)

    def close(self, interrupted: bool) -> None:
        end_workers(self._executor, at_once=interrupted)  # which does not wait for a training to end


#: The most processes that share a GPU, and the GiB of its memory that each of them should find.
_SHARING, _MEMORY = 4, 16


def default_drivers(devices: list[str]) -> int:
    """How many processes share out some devices when nobody says.

    More than one for each GPU where it has the memory and the machine the CPUs: while one of them fits a regression,
    solves for imputed pixels, reads images or launches many small kernels, the passes of another keep the GPU busy.

    Args:
        devices: As :func:`xaibench.core.compute.device.devices_of` gives them.

    Returns:
        0 for the CPU, whose processes all do the same; else as many for each GPU, at least one.

    Example:
        >>> default_drivers(["cpu"])
        0
    """
    if devices == ["cpu"]:
        return 0
    each = min(_SHARING, available_cpus() // (2 * len(devices)), *(memory_of(device) // _MEMORY for device in devices))
    return len(devices) * max(1, int(each))


#: The device of this worker process.
_my_device = "cpu"


def _run_here(job: Job, store: Store) -> Outcome:
    return run_job(job, store, _my_device)


def _start_worker(devices: Any) -> None:
    """A worker keeps to one device, too."""
    global _my_device
    _my_device = devices.get()
    become_worker()
