"""Jobs that make a data set, train networks, explain them and score the maps, and how a job ends.

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
import itertools
import json
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from xaibench.kernels.compilation import kernels_enabled
from xaibench.registry.parameters import Frozen
from xaibench.runner.parts import DatasetPart, ExplainerPart, MetricPart, ModelPart

Stage = Literal["data", "train", "explain", "score"]
STAGES: tuple[Stage, ...] = ("data", "train", "explain", "score")

_MB = 1 << 20
#: MiB of a worker process that has loaded the library and not run a job.
_BASE_MB = 600.0


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
        """Jobs whose results this one reads. They run first, and if one fails, this one is not run."""

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """Jobs that run first, but may fail."""
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
    def memory_mb(self) -> float:
        """Estimated peak memory of a worker that runs the job, in MiB: its inputs twice, and its result."""
        return _BASE_MB + 4 * self.disk_mb + 2 * sum(each.disk_mb for each in self.needs)

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Return the subject of the job: ``dataset``, ``data_seed``, ``model``, ``explainer`` and ``metric``."""


def deciding_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that decide its key.

    Fields at their defaults are left out, so that a new field does not change the keys of older results. For the same
    reason a renamed field keeps its old name in the key, as ``key`` in its metadata.
    """
    return {
        f.metadata.get("key", f.name): value
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
        cut: If not 0, this job represents several jobs of at most ``cut`` samples each (:attr:`slices`).
        span: For one of these jobs: its first sample, and the one after its last.
        precision: Precision of the maps and of the model outputs in metrics; ``"own"`` is that of the network.
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
    span: tuple[int, int] | None = dataclasses.field(default=None, metadata={"key": "part"})
    precision: str = "own"

    @functools.cached_property
    def slices(self) -> tuple[ExplainJob, ...]:
        """The jobs that make the maps, in the order of the samples. More samples only add jobs."""
        if not self.cut:
            return (self,)
        if self.samples == "all" or self.samples <= self.cut:
            return (dataclasses.replace(self, cut=0),)
        starts = range(0, self.samples, self.cut)
        spans = [(start, min(start + self.cut, self.samples)) for start in starts]
        return tuple(dataclasses.replace(self, cut=0, samples=span[1], span=span) for span in spans)

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
        start, stop = self.span or (0, test if self.samples == "all" else self.samples)
        return max(0, min(test, stop) - start)

    @property
    def disk_mb(self) -> float:
        """The maps in float32, with an exponent and an image hash per map."""
        return self.amount * (4 * math.prod(self.data.image_shape[1:]) + 10) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples, and the maps in float64; also the other samples if the explainer is fitted."""
        read = 1 if self.explainer.is_fitted else self.data.sizes[2] / max(1, sum(self.data.sizes))
        return _BASE_MB + 2 * read * self.data.disk_mb + 6 * self.disk_mb

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
        span = f", samples {self.span[0]} to {self.span[1] - 1}" if self.span else ""
        return f"{self.explainer.name} for {network}{self.data}{span}"


#: Score jobs have at least one measurement of this share of all, so that a large suite has few jobs, and a small one
#: enough for all workers.
_SHARE = 160


@dataclass(frozen=True, eq=False)
class Measurement(Keyed):
    """The scores of one explain job by one metric.

    Attributes:
        explain: The job of the maps.
        network: The network, for a metric that evaluates the model.
        metric: The metric.
        protocol: Protocol that decides the scores (:func:`xaibench.evaluation.protocol.resolve_protocol`).
        revision: Revision of the metric, of the protocols and of the scores of constant maps.
        sign: Whether maps are compared by magnitude or signed, if the metric depends on it; None passes them unchanged
            (:func:`xaibench.evaluation.protocol.resolve_sign`).
        raw: For a metric that relates another one to chance: the measurement by the other metric.
        blind: Model and parameters of a network that reads only some pixels, for a metric of the pixels that a network
            uses. The pixels that it reads replace the masks of the data set.
    """

    explain: ExplainJob
    network: Network | None
    metric: MetricPart
    protocol: str
    revision: str
    sign: str | None = None
    raw: Measurement | None = None
    blind: tuple[str, Frozen] | None = None

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything that decides the scores."""
        network, raw = self.network and self.network.key, self.raw and self.raw.key
        settings = [self.metric.key, self.protocol, self.revision, self.blind, self.sign]
        return hash_json([self.explain.key, network, raw, *settings])


@dataclass(frozen=True, eq=False)
class ScoreJob(Job):
    """Score maps of one data set and network with the metrics of the suite.

    The maps of explainers that failed are left out. The result is complete if it has every measurement.

    Attributes:
        measurements: The scores to compute.
    """

    stage: ClassVar[Stage] = "score"
    measurements: tuple[Measurement, ...]

    @functools.cached_property
    def group(self) -> str:
        """Hash of the data and the network: first half of the key, by which results of an earlier suite are found."""
        first = self.measurements[0]
        return hash_json([first.explain.data.key, self.network and self.network.as_json()])

    @functools.cached_property
    def key(self) -> str:
        """Key of the results in the store: the group and a hash of all measurements."""
        return f"{self.group}-{self._make_key(kernels=True)}"

    @property
    def network(self) -> Network | None:
        """The network that made or evaluates the maps; None for maps of controls that are only compared with masks."""
        return self.measurements[0].network or self.measurements[0].explain.network

    @functools.cached_property
    def explains(self) -> tuple[ExplainJob, ...]:
        """The explain jobs of the maps."""
        return tuple(dict.fromkeys(map(operator.attrgetter("explain"), self.measurements)))

    @functools.cached_property
    def needs(self) -> tuple[Job, ...]:
        """The data, and the trainings if a metric evaluates the network."""
        network = self.measurements[0].network
        return (self.explains[0].data, *(network.trainings if network else ()))

    @functools.cached_property
    def waits_for(self) -> tuple[Job, ...]:
        """The jobs of the maps."""
        return tuple(itertools.chain.from_iterable(explain.slices for explain in self.explains))

    @property
    def uses_device(self) -> bool:
        """Whether the metrics evaluate the model."""
        return self.measurements[0].network is not None

    @property
    def disk_mb(self) -> float:
        """A Parquet file of four short columns."""
        return sum(200 + 15 * each.explain.amount for each in self.measurements) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples and the maps of one explainer."""
        return max(explain.memory_mb for explain in self.explains)

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        return self.explains[0].data.about() | {"model": self.network.model if self.network else ""}

    def __str__(self) -> str:
        metrics = dict.fromkeys(each.metric.name for each in self.measurements)
        explainers = dict.fromkeys(each.explainer.name for each in self.explains)
        network = f"{self.network} on " if self.network else ""
        return f"{', '.join(metrics)} of {', '.join(explainers)} for {network}{self.explains[0].data}"


def score_jobs(measurements: Iterable[Measurement]) -> Iterator[ScoreJob]:
    """Divide measurements into jobs. A job has one data set and network, and only metrics that evaluate it or none.

    Measurements that share work stay together: a metric and its relation to chance, and a metric whose model outputs
    do not depend on the map.
    """
    groups: dict[Any, dict[Any, list[Measurement]]] = {}
    every = list(dict.fromkeys(measurements))
    for each in every:
        network = each.network or each.explain.network
        group = (each.explain.data.key, network and network.key, each.network is None)
        info = each.metric.info
        shared = each.metric.key if info.shared_scores else (each.explain.key, info.skill_of or each.metric.use)
        groups.setdefault(group, {}).setdefault(shared, []).append(each)
    for units in groups.values():
        jobs: list[list[Measurement]] = [[]]
        for unit in units.values():
            if len(jobs[-1]) * _SHARE >= len(every):
                jobs.append([])
            jobs[-1] += unit
        yield from map(ScoreJob, map(tuple, jobs))
