"""Engine for Ray clusters: the scheduler stays in the run's own process, and Ray assigns jobs to machines.

Every job is a Ray task that declares its resources: one CPU, or a share of a GPU, and memory. If its machine or process
is lost, the job counts as died and the scheduler submits it again. Results are either complete in the store or absent,
so nothing is lost or counted twice. This is the only file that imports Ray.
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

from xaibench.runner.engines import Engine, keep_freed_memory, run_job
from xaibench.runner.plan.jobs import Job, Outcome
from xaibench.runner.store import Store, is_remote
from xaibench.tensors.workers import available_cpus

log = logging.getLogger("xaibench")

#: Seconds after which the resources of the cluster are counted again, because machines may join and leave.
_RECOUNT_INTERVAL = 10.0


class RayError(ValueError):
    """The cluster cannot be reached, or lacks the resources that the run requests."""


#: Make all GPUs visible to every task. By default Ray hides all but the assigned GPU. But torch lists the GPUs once per
#: process, and Ray reuses the process for the next task, which would then compute on the first task's GPU.
_ALL_GPUS = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}


def _run_on_node(job: Job, store: Store, device: str) -> Outcome:
    keep_freed_memory()
    assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return run_job(job, store, _torch_device(assigned[0]) if device == "cuda" else device)


def _torch_device(gpu: str) -> str:
    """Return the torch device of a Ray GPU id: its index among the visible GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"cuda:{visible.split(',').index(gpu) if visible else gpu}"


#: The Ray task. Ray does not retry it, because the scheduler does.
_run: Any = ray.remote(max_retries=0)(_run_on_node)


class Ray(Engine):
    """Engine that runs jobs on a Ray cluster.

    Args:
        store: The store for the results; every machine must reach it under this path or URL.
        device: ``"auto"`` (GPUs if the cluster has some), ``"cpu"`` or ``"cuda"``.
        workers: Maximum number of concurrent CPU jobs; by default two per CPU of the cluster, one of them waiting.
        address: Address of the cluster, or ``"auto"`` for the one that this machine belongs to; None starts a cluster
            on this machine.
        jobs_per_gpu: Number of jobs that share one GPU.

    Raises:
        RayError: If no cluster is found at the address, or ``device`` is ``"cuda"`` and it has no GPU.
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
        # Make the path absolute, because tasks run in their own folders.
        self._store = store if is_remote(store.root) else Store(Path(store.root).resolve())
        self._workers, self._jobs_per_gpu = workers, jobs_per_gpu
        self._running: dict[Any, Job] = {}
        self._on_gpu = 0
        self._oom_count: dict[str, int] = {}
        self._checked_hosts: set[str] = set()
        self._owns_connection = not ray.is_initialized()
        if self._owns_connection:
            _connect(address, workers)
        self._counted = 0.0
        self._count_resources()
        try:
            self._device = _device(device, self._gpus)
        except RayError:
            self.__exit__(None, None, None)
            raise

    def _count_resources(self) -> None:
        """Count the resources of the cluster, at most every few seconds."""
        if time.monotonic() - self._counted < _RECOUNT_INTERVAL:
            return
        self._counted = time.monotonic()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._cpus = int(sum(resources.get("CPU", 0) for resources in nodes))
        self._gpus = sum(resources.get("GPU", 0) for resources in nodes)
        self._most_memory = int(max((resources.get("memory", 0) for resources in nodes), default=0))

    def _takes_gpu(self, job: Job) -> bool:
        return job.uses_device and self._device != "cpu"

    def has_room(self, job: Job) -> bool:
        """Return whether fewer than two jobs per CPU (per GPU share) are submitted."""
        self._count_resources()
        if self._takes_gpu(job):
            return self._on_gpu < 2 * max(1, int(self._gpus * self._jobs_per_gpu))
        # A second job per CPU is queued, so that no CPU waits for the scheduler between two small jobs.
        return len(self._running) - self._on_gpu < (self._workers or 2 * max(1, self._cpus))

    def submit(self, job: Job) -> None:
        """Submit the job to Ray with the resources that it needs."""
        # The estimate is doubled after each out-of-memory error.
        memory = round(job.memory_mb * (1 << 20)) << self._oom_count.get(job.key, 0)
        # A request for more memory than the largest machine has would wait forever.
        options: dict[str, Any] = {"memory": min(memory, self._most_memory), "num_cpus": 1}
        if self._takes_gpu(job):
            # Do not also request a CPU, because CPU jobs could then keep the GPUs idle.
            options |= {"num_cpus": 0, "num_gpus": 1 / self._jobs_per_gpu, "runtime_env": _ALL_GPUS}
            self._on_gpu += 1
        device = self._device if job.uses_device else "cpu"
        self._running[_run.options(**options).remote(job, self._store, device)] = job

    def wait(self) -> list[Outcome]:
        """Return the outcomes of finished jobs of all machines."""
        refs = list(self._running)
        ray.wait(refs, num_returns=1)
        ended, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._outcome(ref, self._running.pop(ref)) for ref in ended]

    def _outcome(self, ref: Any, job: Job) -> Outcome:
        self._on_gpu -= self._takes_gpu(job)
        try:
            outcome = replace(ray.get(ref), job=job)
        except RayTaskError as error:  # for example, a package is missing on that machine
            return Outcome(job, str(error).strip().splitlines()[-1])
        except ray.exceptions.RayError as error:
            if isinstance(error, OutOfMemoryError):
                self._oom_count[job.key] = self._oom_count.get(job.key, 0) + 1
            reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
            return Outcome(job, f"its machine or process was lost ({type(error).__name__}: {reason})", died=True)
        return self._check_visible(outcome)

    def _check_visible(self, outcome: Outcome) -> Outcome:
        """Check, for the first result of each machine, that this machine sees it in the store."""
        host = outcome.worker.rpartition(":")[0]
        if outcome.error or host in self._checked_hosts or outcome.job.stage == "score":  # may be incomplete
            return outcome
        self._checked_hosts.add(host)
        if all(self._store.has(outcome.job.stage, key) for key in outcome.job.results):
            return outcome
        reason = f"Results that {host} wrote to {self._store.root} are not visible on this machine"
        return replace(outcome, error=f"{reason}; give a store that every machine reaches (--store).", fatal=True)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ref in self._running:
            ray.cancel(ref, force=True)
        self._running.clear()
        if self._owns_connection:
            ray.shutdown()


def _connect(address: str | None, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    try:
        host, _, port = (address or "").rpartition(":")
        if host and port.isdecimal() and "://" not in host:  # fail quickly; Ray itself would wait ten minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init("local", num_cpus=workers or available_cpus(), include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        raise RayError(
            f"There is no Ray cluster at {address!r} ({error}); start one with: ray start --head."
        ) from error


def _device(device: str, gpus: float) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise RayError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda' with engine 'ray'.")
    if device == "cuda" and not gpus:
        raise RayError("device is 'cuda', but no machine of the Ray cluster has a GPU; use 'auto' or 'cpu'.")
    return "cuda" if gpus and device != "cpu" else "cpu"
