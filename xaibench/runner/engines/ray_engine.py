"""Jobs on the machines of a Ray cluster: the scheduler stays in the run's own process, Ray finds a place for each job.

Every job is one Ray task that declares what it takes: one CPU, or a share of a GPU, and memory. A job whose machine or
process is lost counts as died and is handed over again by the scheduler; results are in the store or they are not, so
nothing is lost and nothing counted twice. This is the only file that imports Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayTaskError

from xaibench.core.compute.host_work import available_cpus
from xaibench.runner.engines.freed_memory import keep_freed_memory
from xaibench.runner.engines.local_engines import run_job
from xaibench.runner.plan.job_base import Job, Outcome
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import is_remote

log = logging.getLogger("xaibench")

#: Seconds after which the machines of the cluster are counted anew: they come and go.
_RECOUNT = 10.0


class RayError(ValueError):
    """A cluster that cannot be reached, or that has not what the run asks for."""


#: Ray would show a task the GPU that it was given, and no other. But torch looks once in the life of a process at what
#: there is, and Ray keeps the process for the next task: that would compute on the first one's GPU. So all are seen.
_ALL_GPUS = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}


def _run_there(job: Job, store: Store, device: str) -> Outcome:
    keep_freed_memory()
    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return run_job(job, store, _seen_as(given[0]) if device == "cuda" else device)


def _seen_as(gpu: str) -> str:
    """What torch calls the GPU that Ray calls so: its place among those that the process sees."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"cuda:{seen.split(',').index(gpu) if seen else gpu}"


#: As a task. The scheduler decides what is tried again.
_run: Any = ray.remote(max_retries=0)(_run_there)


class Ray:
    """Runs jobs on a Ray cluster.

    Args:
        store: Where results go; every machine must reach it under this name.
        device: ``"auto"`` (GPUs where the cluster has some), ``"cpu"`` or ``"cuda"``.
        workers: The most jobs to run at a time on CPUs; default as many as the cluster has CPUs, now or later.
        address: Of the cluster, ``"auto"`` for the one that this machine is part of; None starts one on this machine.
        jobs_per_gpu: Jobs that share one GPU.

    Raises:
        RayError: If there is no cluster at the address, or it has no GPU and one is asked for.
    """

    def __init__(
        self,
        store: Store,
        device: str = "auto",
        workers: int | None = None,
        *,
        address: str | None = None,
        jobs_per_gpu: int = 1,
    ) -> None:
        # Tasks run in folders of their own.
        self._store = store if is_remote(store.root) else Store(Path(store.root).resolve())
        self._workers, self._jobs_per_gpu = workers, jobs_per_gpu
        self._running: dict[Any, Job] = {}
        self._on_gpu = 0
        self._grown: dict[str, int] = {}
        self._seen: set[str] = set()
        self._own = not ray.is_initialized()
        if self._own:
            _connect(address, workers)
        self._counted = 0.0
        self._count()
        try:
            self._device = _device(device, self._gpus)
        except RayError:
            self.__exit__(None, None, None)
            raise

    def _count(self) -> None:
        """How much of everything the cluster has."""
        if time.monotonic() - self._counted < _RECOUNT:
            return
        self._counted = time.monotonic()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._cpus = int(sum(resources.get("CPU", 0) for resources in nodes))
        self._gpus = sum(resources.get("GPU", 0) for resources in nodes)
        self._most_memory = int(max((resources.get("memory", 0) for resources in nodes), default=0))

    def _takes_gpu(self, job: Job) -> bool:
        return job.uses_device and self._device != "cpu"

    def has_room(self, job: Job) -> bool:
        """Whether fewer than two jobs for each CPU (GPU share) are under way."""
        self._count()
        if self._takes_gpu(job):
            return self._on_gpu < 2 * max(1, int(self._gpus * self._jobs_per_gpu))
        # A second job in line for each CPU, so that none waits for the scheduler between two small jobs.
        return len(self._running) - self._on_gpu < (self._workers or 2 * max(1, self._cpus))

    def submit(self, job: Job) -> None:
        """Hand the job to Ray with what it takes."""
        memory = round(job.memory_mb * (1 << 20)) << self._grown.get(job.key, 0)
        # More than the largest machine has would wait for ever.
        options: dict[str, Any] = {"memory": min(memory, self._most_memory), "num_cpus": 1}
        if self._takes_gpu(job):
            # No CPU beside the GPU: else jobs that need CPUs alone could keep the GPUs idle.
            options |= {"num_cpus": 0, "num_gpus": 1 / self._jobs_per_gpu, "runtime_env": _ALL_GPUS}
            self._on_gpu += 1
        device = self._device if job.uses_device else "cpu"
        self._running[_run.options(**options).remote(job, self._store, device)] = job

    def wait(self) -> list[Outcome]:
        """Outcomes of the jobs that have ended, wherever they ran."""
        refs = list(self._running)
        ray.wait(refs, num_returns=1)
        ended, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._outcome(ref, self._running.pop(ref)) for ref in ended]

    def _outcome(self, ref: Any, job: Job) -> Outcome:
        self._on_gpu -= self._takes_gpu(job)
        try:
            outcome = replace(ray.get(ref), job=job)
        except RayTaskError as error:  # such as a package that is missing there
            return Outcome(job, str(error).strip().splitlines()[-1])
        except ray.exceptions.RayError as error:
            if isinstance(error, OutOfMemoryError):
                self._grown[job.key] = self._grown.get(job.key, 0) + 1
            reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
            return Outcome(job, f"its machine or process was lost ({type(error).__name__}: {reason})", died=True)
        return self._seen_here(outcome)

    def _seen_here(self, outcome: Outcome) -> Outcome:
        """At the first result of each machine: is it where this one looks?"""
        host = outcome.worker.rpartition(":")[0]
        if outcome.error or host in self._seen:
            return outcome
        self._seen.add(host)
        if all(self._store.has(outcome.job.stage, key) for key in outcome.job.results):
            return outcome
        reason = f"what {host} wrote to {self._store.root} is not to be seen here"
        return replace(outcome, error=f"{reason}; give a store that every machine reaches (--store).", fatal=True)

    def __enter__(self) -> Ray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ref in self._running:
            ray.cancel(ref, force=True)
        self._running.clear()
        if self._own:
            ray.shutdown()


def _connect(address: str | None, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    try:
        _knock(address)
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init("local", num_cpus=workers or available_cpus(), include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        raise RayError(
            f"There is no Ray cluster at {address!r} ({error}); start one with: ray start --head."
        ) from error


def _knock(address: str | None) -> None:
    """Whether somebody listens at ``HOST:PORT``, which Ray itself would wait ten minutes for."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def _device(device: str, gpus: float) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise RayError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda' with engine 'ray'.")
    if device == "cuda" and not gpus:
        raise RayError("device is 'cuda', but no machine of the Ray cluster has a GPU; take 'auto' or 'cpu'.")
    return "cuda" if gpus and device != "cpu" else "cpu"
