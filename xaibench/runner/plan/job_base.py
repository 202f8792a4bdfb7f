"""The base class of all jobs of a run, and how a job ends.

Jobs are frozen, and equal if their keys are. They refer to the jobs that they need (an explain job has its train jobs,
and so on), so the objects themselves are the graph. The *key* of a job names its result. It is a hash of the job's own
parameters, of the revisions of its parts and of the keys of the jobs it needs: if a parameter changes, only the results
that depend on it are computed again.

A job also estimates its disk and memory before it runs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from xaibench.kernels.compilation import kernels_enabled

Stage = Literal["data", "train", "explain", "score"]
STAGES: tuple[Stage, ...] = ("data", "train", "explain", "score")

#: MiB of a worker process that has loaded the library and not run a job.
BASE_MB = 600.0


class Keyed(ABC):
    """Equal if the keys are equal, which decide the results."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Hash of everything that decides the result."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def as_json(self) -> Any:
        """Return the key, which stands for the job in the keys of other jobs."""
        return self.key


@dataclass(frozen=True, eq=False)
class Job(Keyed):
    """A job: its stage, the jobs that it needs, the key of its result, and estimates of its cost."""

    stage: ClassVar[Stage]

    @property
    @abstractmethod
    def needs(self) -> tuple[Job, ...]:
        """Jobs whose results this one reads. They run first."""

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """Jobs that this one waits for although it also runs without their results."""
        return ()

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything that decides the result; the name of the result in the store."""
        return self._make_key(kernels=kernels_enabled())

    def _make_key(self, *, kernels: bool) -> str:
        fields = deciding_fields(self)
        if self.uses_kernels and not kernels:  # plain versions agree with kernels up to rounding only
            fields["kernels"] = False
        return hash_json([self.stage, fields])

    @property
    def results(self) -> tuple[str, ...]:
        """Keys of the results of the job: one, except for a job that trains several networks."""
        return (self.key,)

    @property
    def uses_kernels(self) -> bool:
        """Whether the result can depend on whether kernels are compiled; data sets are made of plain arithmetic."""
        return self.stage != "data"

    @property
    def uses_device(self) -> bool:
        """Whether the job can use a GPU, because it trains or evaluates a network."""
        return False

    @property
    def passes(self) -> int:
        """Passes of an image through a network, as far as they are known; a training step counts as three."""
        return 0

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


def deciding_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that decide its key.

    Fields at their defaults are left out, so that a new field does not change the keys of older results.
    """
    return {
        f.name: value
        for f in dataclasses.fields(record)
        if f.compare and (value := getattr(record, f.name)) != f.default
    }


def hash_json(value: Any) -> str:
    """Return the hash of a value that names a result: JSON, and objects with a method ``as_json``."""
    text = json.dumps(value, sort_keys=True, default=operator.methodcaller("as_json"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


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
        spent: Seconds per explainer and metric of a score job.
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
    spent: Mapping[tuple[str, str], float] = field(default_factory=dict)
