"""Jobs that make a data set, train networks and explain them. Score jobs are in :mod:`.score_jobs`."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from xaibench.component.parameters import Frozen
from xaibench.runner.parts import DatasetPart, ExplainerPart, ModelPart
from xaibench.runner.plan.job_base import BASE_MB, Job, Keyed, Stage, hash_json

_MB = 1 << 20


@dataclass(frozen=True, eq=False)
class DataJob(Job):
    """Make or load one data set.

    Attributes:
        name: Name of the data set.
        seed: Seed of the data set.
        parameters: Parameters of the data set.
        revision: Revision of the data set.
        network: Name, parameters and revision of the network that the set is made for, if any.
    """

    stage: ClassVar[Stage] = "data"
    name: str
    seed: int
    parameters: Frozen
    revision: str
    network: tuple[str, Frozen, str] | None = None

    @functools.cached_property
    def dataset(self) -> DatasetPart:
        """The data set with its parameters."""
        return DatasetPart.of(self.name, self.parameters)

    @property
    def needs(self) -> tuple[Job, ...]:
        """No other job."""
        return ()

    @property
    def fit_key(self) -> str:
        """Key of the training and validation samples; those of the test are under the key of the job."""
        return f"{self.key}-fit"

    @property
    def results(self) -> tuple[str, ...]:
        """Two keys, so that the test samples can be read without the others."""
        return (self.key, self.fit_key)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)``, or ``(C, D, H, W)`` of volumes."""
        return self.dataset.image_shape

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of training, validation and test samples."""
        return self.dataset.split_sizes(self.seed)

    @property
    def disk_mb(self) -> float:
        """Images, masks and targets; only the targets of a set on disk."""
        channels, *sides = self.image_shape
        pixels = math.prod(sides) if self.dataset.has_n_samples else 0
        return sum(self.sizes) * (4 * channels * pixels + pixels + 8) / _MB

    @property
    def memory_mb(self) -> float:
        """The samples while they are made and written."""
        return BASE_MB + 3 * self.disk_mb

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        return {"dataset": self.name, "data_seed": self.seed, "model": "", "explainer": "", "metric": ""}

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed})"


@dataclass(frozen=True, eq=False)
class TrainJob(Job):
    """Train networks of one architecture on one data set together, one per seed, or take the published ones.

    Each network has its own result, under the key of the job that would train it alone.

    Attributes:
        data: The data set.
        model: Name of the architecture.
        seeds: Training seeds.
        parameters: Parameters of the training.
        build: Parameters of the architecture.
        revision: Revision of the architecture and of the training.
        published: Take the published networks of these trainings (:mod:`xaibench.runner.published_networks`).
    """

    stage: ClassVar[Stage] = "train"
    data: DataJob
    model: str
    seeds: tuple[int, ...]
    parameters: Frozen
    build: Frozen
    revision: str
    published: bool = False

    @property
    def uses_kernels(self) -> bool:
        """Whether it trains."""
        return not self.published

    @property
    def published_keys(self) -> tuple[str, ...]:
        """The key of each training among the published networks, with or without compiled kernels."""
        alone = dataclasses.replace(self, published=False)
        return tuple(dataclasses.replace(alone, seeds=(seed,))._make_key(kernels=True) for seed in self.seeds)

    @property
    def needs(self) -> tuple[Job, ...]:
        """The job of its data."""
        return (self.data,)

    @property
    def results(self) -> tuple[str, ...]:
        """A key per seed."""
        return tuple(map(self.result, self.seeds))

    def result(self, seed: int) -> str:
        """Return the key of the training with one seed."""
        return self.key if self.seeds == (seed,) else dataclasses.replace(self, seeds=(seed,)).key

    @property
    def uses_device(self) -> bool:
        """True: training uses the device."""
        return True

    @property
    def passes(self) -> int:
        """Three per sample and epoch; one per sample if only the head is trained."""
        method = "none" if self.published else self.parameters.get("method", "fit")
        per_network = {"none": 0, "head": sum(self.data.sizes)}
        return len(self.seeds) * per_network.get(method, 3 * int(self.parameters["epochs"]) * self.data.sizes[0])

    @property
    def disk_mb(self) -> float:
        """The weights of all networks."""
        facts = ModelPart.of(self.model, self.build).facts(self.data.dataset)
        return len(self.seeds) * facts.weights * 4 / _MB

    @property
    def memory_mb(self) -> float:
        """The samples, and the weights with the state of Adam."""
        return BASE_MB + 2 * self.data.disk_mb + 4 * self.disk_mb

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        return self.data.about() | {"model": self.model}

    def __str__(self) -> str:
        return f"{self.model} on {self.data}, seeds {', '.join(map(str, self.seeds))}"


@dataclass(frozen=True, eq=False)
class Network(Keyed):
    """A network that a train job will train.

    Attributes:
        trainings: The train jobs to choose from.
        seed: Training seed, or ``"best"`` for the lowest validation loss in ``trainings``.
    """

    trainings: tuple[TrainJob, ...]
    seed: int | Literal["best"]

    def as_json(self) -> list[Any]:
        """Return everything that decides the network, for the keys of the jobs that need it."""
        return [[training.result(seed) for training, seed in self.candidates], self.seed]

    @functools.cached_property
    def key(self) -> str:
        """Hash of what decides the network."""
        return hash_json(self.as_json())

    @functools.cached_property
    def candidates(self) -> tuple[tuple[TrainJob, int], ...]:
        """The job and seed of each training that can be chosen."""
        every = self.trainings
        return tuple((job, seed) for job in every for seed in job.seeds if self.seed in ("best", seed))

    @property
    def model(self) -> str:
        """Name of the architecture."""
        return self.trainings[0].model

    def __str__(self) -> str:
        return f"{self.model} (seed {self.seed})"


@dataclass(frozen=True, eq=False)
class ExplainJob(Job):
    """Explain the first test samples of a data set with one explainer.

    Attributes:
        data: The data set.
        network: The explained network; None for a control.
        explainer: The explainer.
        samples: Number of samples, or ``"all"``.
        output: The explained output of the network.
        explain_seed: Seed of the explainer.
        revision: Revision of the explainer.
        cut: If not 0, this job represents several jobs of at most ``cut`` samples each (:attr:`parts`).
        part: For one of these jobs: its first sample, and the one after its last.
        precision: Precision of the maps and of the model outputs in metrics; ``"own"`` is that of the network.
        fit_from: Job of another explainer with the same fit to the same network, which leaves its fit in the store.
        shares_fit: Whether there are such explainers. Neither ``fit_from`` nor this affects the maps.
    """

    stage: ClassVar[Stage] = "explain"
    data: DataJob
    network: Network | None
    explainer: ExplainerPart
    samples: int | Literal["all"]
    output: str
    explain_seed: int
    revision: str
    cut: int = 0
    part: tuple[int, int] | None = None
    precision: str = "own"
    fit_from: ExplainJob | None = dataclasses.field(default=None, compare=False)
    shares_fit: bool = dataclasses.field(default=False, compare=False)

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """The job whose fit is used."""
        return (self.fit_from,) if self.fit_from else ()

    @property
    def fit_key(self) -> str:
        """Hash of everything that decides the fit; equal for all jobs that can share it."""
        shared = self.explainer.fit_settings
        network = self.network.as_json() if self.network else None
        return hash_json([self.data.key, network, self.precision, shared])

    @functools.cached_property
    def parts(self) -> tuple[ExplainJob, ...]:
        """The jobs that make the maps, in the order of the samples. More samples only add jobs."""
        if not self.cut:
            return (self,)
        if self.samples == "all" or self.samples <= self.cut:
            return (dataclasses.replace(self, cut=0),)
        starts = range(0, self.samples, self.cut)
        spans = [(start, min(start + self.cut, self.samples)) for start in starts]
        return tuple(dataclasses.replace(self, cut=0, samples=span[1], part=span) for span in spans)

    @functools.cached_property
    def needs(self) -> tuple[Job, ...]:
        """The data, and the trainings from which the network is chosen."""
        return (self.data, *(self.network.trainings if self.network else ()))

    @property
    def uses_device(self) -> bool:
        """Whether there is a network; controls use none."""
        return self.network is not None

    @property
    def amount(self) -> int:
        """Explained samples."""
        test = max(1, self.data.sizes[2])
        start, stop = self.part or (0, test if self.samples == "all" else self.samples)
        return max(0, min(test, stop) - start)

    @property
    def disk_mb(self) -> float:
        """The maps in float32, with an exponent and an image hash per map."""
        return self.amount * (4 * math.prod(self.data.image_shape[1:]) + 10) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples and the maps; also the other samples if the explainer is fitted."""
        fitted = 2 if self.explainer.is_fitted else 0
        return self.held_mb + fitted * self.data.disk_mb

    @property
    def held_mb(self) -> float:
        """Memory of a worker with the test samples and the maps, in MiB."""
        test = self.data.sizes[2] / max(1, sum(self.data.sizes))
        return BASE_MB + 2 * test * self.data.disk_mb + 6 * self.disk_mb  # float64 in memory

    @property
    def passes(self) -> int:
        """Number of passes that the explainer declares; 0 if unknown, for a control, or if the budget is too small."""
        return self.amount * self.explainer.declared_passes(self.data.image_shape) if self.network else 0

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        model = self.network.model if self.network else ""
        return self.data.about() | {"model": model, "explainer": self.explainer.name}

    def __str__(self) -> str:
        network = f"{self.network} on " if self.network else ""
        part = f", samples {self.part[0]} to {self.part[1] - 1}" if self.part else ""
        return f"{self.explainer.name} for {network}{self.data}{part}"
