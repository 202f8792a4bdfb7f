"""Three of the four kinds of jobs: make a data set, train networks, explain. The last is in :mod:`.score_jobs`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from xaibench.core.frozen import Frozen
from xaibench.runner.plan import part_facts
from xaibench.runner.plan.job_base import BASE_MB, PASSES_OF_A_PERTURBATION, SMALL_ON_DISK, SMALL_SAMPLES, Job, Stage
from xaibench.runner.suites.suite_tables import NamedPart

_MB = 1 << 20


@dataclass(frozen=True)
class DataJob(Job):
    """Make or load one data set; of one on disk only a ``few`` samples of each split, where jobs are tried.

    A set that is made for a network has that one's name, parameters and revision.
    """

    stage: ClassVar[Stage] = "data"
    name: str
    seed: int
    parameters: Frozen
    revision: str
    few: int = 0
    network: tuple[str, Frozen, str] | None = None

    @property
    def needs(self) -> tuple[Job, ...]:
        """None."""
        return ()

    def _alike(self) -> list[Any]:
        return [self.name]

    @property
    def can_be_small(self) -> bool:
        """Whether its data set can be made small."""
        return part_facts.takes_n_samples(self.name)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """``(C, H, W)``."""
        return part_facts.image_shape(self.name, self.parameters)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Samples of the training, validation and test split."""
        return (self.few,) * 3 if self.few else part_facts.split_sizes(self.name, self.parameters, self.seed)

    @property
    def amount(self) -> int:
        """Samples."""
        return sum(self.sizes)

    @property
    def disk_mb(self) -> float:
        """Images, masks and targets; of a set that lies on disk, the targets alone."""
        channels, height, width = self.image_shape
        pixels = height * width if self.can_be_small else 0
        return self.amount * (4 * channels * pixels + pixels + 8) / _MB

    @property
    def memory_mb(self) -> float:
        """The samples as they are made and written."""
        return BASE_MB + 3 * self.disk_mb

    def about(self) -> dict[str, object]:
        """See :meth:`Job.about`."""
        return {"dataset": self.name, "data_seed": self.seed, "model": "", "explainer": "", "metric": ""}

    def small(self, size: int = SMALL_SAMPLES, perturbations: int | None = None) -> Self:
        """A set of ``SMALL_SAMPLES``, whatever ``size``, where such can be made; else a few samples of it."""
        if not self.can_be_small:
            return dataclasses.replace(self, few=SMALL_ON_DISK)
        return dataclasses.replace(self, parameters=Frozen.keywords(self.parameters, {"n_samples": SMALL_SAMPLES}))

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed})"


@dataclass(frozen=True)
class TrainJob(Job):
    """Train a few networks of one architecture on one data set, one for each seed, in one go.

    Each has a result of its own, under the key of the job that would train it alone.
    """

    stage: ClassVar[Stage] = "train"
    data: DataJob
    model: str
    seeds: tuple[int, ...]
    parameters: Frozen
    build: Frozen
    revision: str

    @property
    def needs(self) -> tuple[Job, ...]:
        """The data."""
        return (self.data,)

    @property
    def results(self) -> tuple[str, ...]:
        """A key for each seed."""
        return tuple(self.result(seed) for seed in self.seeds)

    def result(self, seed: int) -> str:
        """The key of one training."""
        return self.key if self.seeds == (seed,) else dataclasses.replace(self, seeds=(seed,)).key

    @property
    def uses_device(self) -> bool:
        """Always."""
        return True

    def _alike(self) -> list[Any]:
        shape, parameters = self.data.image_shape, self.parameters
        how = [parameters.get(name) for name in ("batch_size", "method", "precision")] + [self.build.as_json()]
        return [self.model, shape, len(self.seeds), *how]

    @property
    def can_be_small(self) -> bool:
        """Whether its data set can be made small."""
        return self.data.can_be_small

    @property
    def amount(self) -> int:
        """Samples that go through the network to train it: in all epochs, or once where only a head learns."""
        train, val, test = self.data.sizes
        often = {"head": train + val + test, "none": val + test}.get(self.parameters.get("method", "fit"))
        return max(1, often or int(self.parameters["epochs"]) * train)

    @property
    def disk_mb(self) -> float:
        """The weights of all networks."""
        facts = part_facts.network_facts(self.model, self.data.name, self.data.parameters, self.build)
        return len(self.seeds) * facts.weights * 4 / _MB

    @property
    def memory_mb(self) -> float:
        """The samples, and the weights with what Adam keeps of each."""
        return BASE_MB + 2 * self.data.disk_mb + 4 * self.disk_mb

    def about(self) -> dict[str, object]:
        """See :meth:`Job.about`."""
        return self.data.about() | {"model": self.model}

    def small(self, size: int, perturbations: int | None = None) -> Self:
        """So many epochs on a small data set; as many as there are where only a head learns, which takes no time."""
        if self.parameters.get("method", "fit") in ("head", "none"):
            return dataclasses.replace(self, data=self.data.small())
        parameters = Frozen.keywords(self.parameters, {"epochs": size})
        return dataclasses.replace(self, data=self.data.small(), parameters=parameters)

    def __str__(self) -> str:
        return f"{self.model} on {self.data}, seeds {', '.join(map(str, self.seeds))}"


@dataclass(frozen=True)
class Network:
    """A trained network, named before it exists.

    Attributes:
        trainings: The train jobs to choose from.
        seed: Training seed, or ``"best"`` for the lowest validation loss among all of ``trainings``.
    """

    trainings: tuple[TrainJob, ...]
    seed: int | Literal["best"]

    def as_json(self) -> list[Any]:
        """What decides it, for the keys of the jobs that it is given to."""
        return [[training.result(seed) for training, seed in self.candidates], self.seed]

    @functools.cached_property
    def candidates(self) -> tuple[tuple[TrainJob, int], ...]:
        """The trainings that it may be: the job and the seed of each."""
        found = ((training, seed) for training in self.trainings for seed in training.seeds)
        return tuple(one for one in found if self.seed in ("best", one[1]))

    @property
    def model(self) -> str:
        """Its architecture."""
        return self.trainings[0].model

    def small(self) -> Network:
        """One network after one epoch."""
        training = self.trainings[0].small(1)
        return Network((training,), training.seeds[0])

    def __str__(self) -> str:
        return f"{self.model} (seed {self.seed})"


@dataclass(frozen=True)
class ExplainJob(Job):
    """One explainer's maps of one network (of none, for a control) on the first test samples of a data set.

    Attributes:
        samples: The first so many, or all.
        cut: Not a job itself, but as many as it takes for each to explain at most so many samples (:attr:`parts`);
            0 = one job.
        precision: In what maps are made, and in what the metrics that score them ask the model; ``"own"`` is that of
            the network.
        part: Of those jobs one, which explains the samples from the first number to before the second.
        fit_from: The job of another explainer that is fitted as this one is, to the same network, and leaves its fit.
        leaves_fit: Whether a job after this one takes its fit. Neither decides the maps.
    """

    stage: ClassVar[Stage] = "explain"
    data: DataJob
    network: Network | None
    explainer: NamedPart
    samples: int | Literal["all"]
    output: str
    explain_seed: int
    revision: str
    cut: int = 0
    part: tuple[int, int] | None = None
    precision: str = "own"
    fit_from: ExplainJob | None = dataclasses.field(default=None, compare=False)
    leaves_fit: bool = dataclasses.field(default=False, compare=False)

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """The job whose fit it takes."""
        return (self.fit_from,) if self.fit_from else ()

    @property
    def fit_key(self) -> str:
        """Hash of all that decides how the explainer is fitted; the same for all that can share it."""
        shared = part_facts.shared_fit(self.explainer.use, self.explainer.parameters)
        network = self.network.as_json() if self.network else None
        return hashlib.sha256(json.dumps([self.data.key, network, self.precision, shared]).encode()).hexdigest()[:20]

    @property
    def parts(self) -> tuple[ExplainJob, ...]:
        """The jobs that make the maps, in the order of the samples; of more samples the first jobs are the same."""
        if not self.cut or self.samples == "all" or self.samples <= self.cut:
            return (dataclasses.replace(self, cut=0),)
        starts = range(0, self.samples, self.cut)
        spans = [(start, min(start + self.cut, self.samples)) for start in starts]
        return tuple(dataclasses.replace(self, cut=0, samples=span[1], part=span) for span in spans)

    @property
    def needs(self) -> tuple[Job, ...]:
        """The data, and the trainings that the network is chosen from."""
        return (self.data, *(self.network.trainings if self.network else ()))

    @property
    def uses_device(self) -> bool:
        """All but the controls, which know no network."""
        return self.network is not None

    def _alike(self) -> list[Any]:
        own = [self.explainer.use, self.explainer.parameters.as_json(), self.data.image_shape]
        return [*own, *([self.network.model, self.precision] if self.network else [""]), self.output]

    @property
    def can_be_small(self) -> bool:
        """Whether its data set can be made small."""
        return self.data.can_be_small

    @property
    def amount(self) -> int:
        """Samples explained."""
        test = max(1, self.data.sizes[2])
        start, stop = self.part or (0, test if self.samples == "all" else self.samples)
        return max(0, min(test, stop) - start)

    @property
    def disk_mb(self) -> float:
        """The maps in float32, and of each its power of two and the hash of its image."""
        _, height, width = self.data.image_shape
        return self.amount * (4 * height * width + 10) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples and the maps; the other samples too where the explainer learns from them."""
        fitted = 2 if part_facts.is_fitted(self.explainer.use) else 0
        return self.held_mb + fitted * self.data.disk_mb

    @property
    def held_mb(self) -> float:
        """MiB of a worker with the test samples and the maps."""
        test = self.data.sizes[2] / max(1, self.data.amount)
        return BASE_MB + 2 * test * self.data.disk_mb + 6 * self.disk_mb  # float64 in memory

    @property
    def perturbations(self) -> int:
        """As the suite states it; of a budget so many of :data:`PASSES_OF_A_PERTURBATION`; else 1."""
        stated = self.explainer.parameters
        if budget := stated.get("budget"):
            return -(-int(budget) // PASSES_OF_A_PERTURBATION)
        return int(stated.get("n_samples", 1))

    @property
    def passes(self) -> int:
        """See :attr:`Job.passes`."""
        return part_facts.passes_in_budget(self.explainer.use, self.explainer.parameters, self.data.image_shape)

    @property
    def asked(self) -> str:
        """See :attr:`Job.asked`."""
        return json.dumps([self.data.image_shape, self.network and self.network.model, self.precision])

    def about(self) -> dict[str, object]:
        """See :meth:`Job.about`."""
        model = self.network.model if self.network else ""
        return self.data.about() | {"model": model, "explainer": self.explainer.name}

    def small(self, size: int, perturbations: int | None = None) -> Self:
        """So many samples."""
        few = {} if perturbations is None else {"n_samples": perturbations}
        if perturbations is not None and "budget" in self.explainer.parameters:
            few = {"budget": perturbations * PASSES_OF_A_PERTURBATION}
        explainer = dataclasses.replace(self.explainer, parameters=Frozen.keywords(self.explainer.parameters, few))
        data, network = self.data.small(), self.network.small() if self.network else None
        return dataclasses.replace(
            self,
            data=data,
            network=network,
            explainer=explainer,
            samples=size,
            cut=0,
            part=None,
            fit_from=None,
            leaves_fit=False,
        )

    def __str__(self) -> str:
        network = f"{self.network} on " if self.network else ""
        part = f", samples {self.part[0]} to {self.part[1] - 1}" if self.part else ""
        return f"{self.explainer.name} for {network}{self.data}{part}"
