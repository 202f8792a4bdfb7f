"""The base class of all jobs of a run, and how a job ends.

Jobs are frozen, and equal if their keys are. They refer to the jobs that they need (a score job has its explain job,
which has its train jobs, and so on), so the objects themselves are the graph. The *key* of a job names its result. It
is a hash of the job's own parameters, of the revisions of its parts and of the keys of the jobs it needs: if a
parameter changes, only the results that depend on it are computed again.

A job also estimates its work, disk and memory before it runs. The time of jobs of one *kind* is proportional to their
*amount*, so the cost of a large job follows from that of a small one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from xaibench.kernels.compilation import kernels_enabled

Stage = Literal["data", "train", "explain", "score"]
STAGES: tuple[Stage, ...] = ("data", "train", "explain", "score")

#: Samples of the small form of a generated data set: two batches of 512 for training, and some to explain.
SMALL_SAMPLES = 1300

#: Samples per split of the small form of a set on disk; at least one per class.
SMALL_ON_DISK = 16

#: MiB of a worker process that has loaded the library and not run a job.
BASE_MB = 600.0

#: Perturbations of an explainer in a trial, if it has more.
SMALL_PERTURBATIONS = 3

#: Passes of a budget that count as one perturbation. Some explainers need at least three times as many passes.
PASSES_OF_A_PERTURBATION = 50


@dataclass(frozen=True, eq=False)
class Job(ABC):
    """A job: its stage, the jobs that it needs, the key of its result, and estimates of its cost."""

    stage: ClassVar[Stage]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    @abstractmethod
    def needs(self) -> tuple[Job, ...]:
        """Jobs whose results this one reads. They run first."""

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """Jobs that this one waits for but does not need: what they leave in the store saves work."""
        return ()

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything that decides the result; the name of the result in the store."""
        return self._make_key(kernels=kernels_enabled())

    def _make_key(self, *, kernels: bool) -> str:
        # Fields at their defaults are left out, so that a new field does not change the keys of older results.
        deciding = [f for f in dataclasses.fields(self) if f.compare]
        own = {f.name: _to_json(value) for f in deciding if (value := getattr(self, f.name)) != f.default}
        if self.uses_kernels and not kernels:  # plain versions agree with kernels up to rounding only
            own["kernels"] = False
        return hashlib.sha256(json.dumps([self.stage, own], sort_keys=True).encode()).hexdigest()[:20]

    @property
    def results(self) -> tuple[str, ...]:
        """Keys of the results of the job: one, except for a job that trains several networks."""
        return (self.key,)

    @property
    def uses_kernels(self) -> bool:
        """Whether the result can depend on whether kernels are compiled."""
        return True

    @property
    def uses_device(self) -> bool:
        """Whether the job can use a GPU, because it trains or evaluates a network."""
        return False

    def kind(self, device: str = "cpu") -> str:
        """Return a name for everything that decides the cost per unit of work on one machine.

        Args:
            device: ``"cpu"`` or ``"cuda"``.

        Example:
            >>> from xaibench.component.parameters import Frozen
            >>> from xaibench.runner.plan.jobs import DataJob
            >>> DataJob("pet", 0, Frozen(), "1").kind()
            '["data", "pet", "cpu"]'
        """
        return json.dumps([self.stage, *self._kind_fields(), device if self.uses_device else "cpu"])

    @abstractmethod
    def _kind_fields(self) -> list[Any]:
        """Return what jobs of one kind have in common, as JSON."""

    @property
    @abstractmethod
    def can_be_small(self) -> bool:
        """Whether :meth:`small` can make the data set small; an annotated set on disk has a fixed size."""

    @property
    @abstractmethod
    def amount(self) -> int:
        """Number of units of work."""

    @property
    @abstractmethod
    def disk_mb(self) -> float:
        """MiB of the result in the store."""

    @property
    @abstractmethod
    def memory_mb(self) -> float:
        """Estimated peak memory of a worker that runs the job, in MiB."""

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Return the subject of the job: ``dataset``, ``data_seed``, ``model``, ``explainer`` and ``metric``."""

    @abstractmethod
    def small(self, size: int, perturbations: int | None = None) -> Self:
        """Return a small form of the job, to measure its cost.

        Args:
            size: Number of epochs or samples.
            perturbations: Number of perturbations of the explainer; None = its own.
        """

    @property
    def perturbations(self) -> int:
        """Number of perturbations of an explain job, to which its time per sample is proportional; otherwise 1."""
        return 1

    @property
    def passes(self) -> int:
        """Passes per image of an explain job with a budget, if its explainer states them; otherwise 0."""
        return 0

    @property
    def declared_passes(self) -> int:
        """Passes per image that the explainer of an explain job declares, with or without a budget; 0 if unknown."""
        return 0

    @property
    def asked(self) -> str:
        """The settings that decide the cost of a pass; empty for a job that does not explain."""
        return ""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        job: The job.
        error: The error message; empty if the result is in the store.
        fatal: True if no other job can succeed either (the disk is full).
        inapplicable: True if the explainer does not support the network. ``error`` is its message, and the job has not
            failed.
        died: True if the process of this job died, because of this or another job, so that a retry may succeed.
        seconds: Wall time.
        cpu_seconds: Processor time of the thread of the job and of the threads that it started.
        peak_mb: Largest memory of its process so far, in MiB; 0 if the system does not report it.
        worker: Machine and process that ran the job.
    """

    job: Job
    error: str = ""
    fatal: bool = False
    inapplicable: bool = False
    died: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    worker: str = ""


def _to_json(value: Any) -> Any:
    if isinstance(value, Job):
        return value.key
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value
