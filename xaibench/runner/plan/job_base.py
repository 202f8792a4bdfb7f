"""What the jobs of a run have in common: frozen, hashable, and each with a key that names its result.

The jobs refer to one another (a score job has its explain job, that has its train jobs, and so on), so the graph is
in the objects themselves. The key of a job is a hash of its own parameters, of the revisions of the parts it uses and
of the keys of the jobs it needs: change a parameter and only what depends on it is computed again.

A job also says what can be known of it before it runs: its amount of work, its disk and memory, and what it is about.
Jobs of one *kind* cost in proportion to their *amount*, so that a small job of a kind tells what a large one will cost.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

Stage = Literal["data", "train", "explain", "score"]
STAGES: tuple[Stage, ...] = ("data", "train", "explain", "score")

#: Samples of the small form of a data set. Two batches of 512 to train on, and some to explain.
SMALL_SAMPLES = 1300

#: Samples of each split of the small form of a set on disk, or as many as it has classes.
SMALL_ON_DISK = 16

#: MiB of a worker process that has loaded the library and done nothing yet.
BASE_MB = 600.0

#: Perturbations of an explainer that would take long with all of its own (its time grows with their number).
SMALL_PERTURBATIONS = 3

#: Passes of a budget that count as one of these: with fewer than thrice as many, some explainers cannot do.
PASSES_OF_A_PERTURBATION = 50


@dataclass(frozen=True)
class Job(ABC):
    """What all jobs share: a stage, the jobs it needs, the key of its result, and what can be said of it beforehand."""

    stage: ClassVar[Stage]

    @property
    @abstractmethod
    def needs(self) -> tuple[Job, ...]:
        """The jobs whose results this one reads: they come first."""

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """Jobs that it waits for without needing them: what they leave behind spares it work."""
        return ()

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that decides the result; the name under which the result is stored."""
        # A field at its default is left out, so that a new option leaves the old results their names.
        deciding = [f for f in dataclasses.fields(self) if f.compare]
        own = {f.name: _plain(value) for f in deciding if (value := getattr(self, f.name)) != f.default}
        return hashlib.sha256(json.dumps([self.stage, own], sort_keys=True).encode()).hexdigest()[:20]

    @property
    def results(self) -> tuple[str, ...]:
        """The keys under which the job keeps its results: one, but for a job that does several things in one go."""
        return (self.key,)

    @property
    def uses_device(self) -> bool:
        """Whether a GPU would be used: the job trains or asks a network."""
        return False

    def kind(self, device: str = "cpu") -> str:
        """Name of all that decides what a unit of the job's work costs on one machine.

        Example:
            >>> from xaibench.core.frozen import Frozen
            >>> from xaibench.runner.plan.jobs import DataJob
            >>> DataJob("pet", 0, Frozen(), "1").kind()
            '["data", "pet", "cpu"]'
        """
        return json.dumps([self.stage, *self._alike(), device if self.uses_device else "cpu"])

    @abstractmethod
    def _alike(self) -> list[Any]:
        """What jobs of one kind have in common, as JSON."""

    @property
    @abstractmethod
    def can_be_small(self) -> bool:
        """Whether :meth:`small` makes it so: an annotated set lies on disk as it is."""

    @property
    @abstractmethod
    def amount(self) -> int:
        """How many units of work."""

    @property
    @abstractmethod
    def disk_mb(self) -> float:
        """MiB of the job's result in the store."""

    @property
    @abstractmethod
    def memory_mb(self) -> float:
        """MiB that a worker holds at most while it runs the job: an estimate of what it reads, makes and writes."""

    @abstractmethod
    def about(self) -> dict[str, object]:
        """What the job is about, in words: ``dataset``, ``data_seed``, ``model``, ``explainer``, ``metric``."""

    @abstractmethod
    def small(self, size: int, perturbations: int | None = None) -> Self:
        """So many epochs or samples of it, on a small data set, its explainer with so many perturbations."""

    @property
    def perturbations(self) -> int:
        """What the time of an explain job grows with beside its samples: the stated ``n_samples`` or ``budget``."""
        return 1

    @property
    def passes(self) -> int:
        """Those for an image of an explain job with a budget, where its explainer states them; else 0."""
        return 0

    @property
    def asked(self) -> str:
        """Name of what decides a pass's cost: the network and its images; empty for a job that explains nothing."""
        return ""


def _plain(value: Any) -> Any:
    """A field of a job as JSON: other jobs by their key, what knows its JSON by that."""
    if isinstance(value, Job):
        return value.key
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
