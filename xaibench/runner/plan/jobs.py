"""Suite -> jobs: frozen, hashable, and each with a key that names its result.

The jobs refer to one another (a score job has its explain job, that has its train jobs, and so on), so the graph is
in the objects themselves. The key of a job is a hash of its own parameters, of the revisions of the parts it uses and
of the keys of the jobs it needs: change a parameter and only what depends on it is computed again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from xaibench.core.frozen import Frozen
from xaibench.evaluation.protocol import REVISION as PROTOCOL_REVISION
from xaibench.runner.plan.part_facts import has_convolution, is_fitted, part_info, revision
from xaibench.runner.suites.suite_tables import Cell, NamedPart, Suite, Training

Stage = Literal["data", "train", "explain", "score"]
STAGES: tuple[Stage, ...] = ("data", "train", "explain", "score")


@dataclass(frozen=True)
class Job:
    """What all jobs share: a stage, the jobs it needs, and the key of its result."""

    stage: ClassVar[Stage]

    @property
    def uses_device(self) -> bool:
        """Whether a GPU would be used: the job trains or asks a network."""
        return False

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs that this one refers to: they come first."""
        return tuple(_jobs_in([getattr(self, f.name) for f in dataclasses.fields(self)]))

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that decides the result; the name under which the result is stored."""
        # A field at its default is left out, so that a new option leaves the old results their names.
        own = {f.name: _plain(value) for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}
        return hashlib.sha256(json.dumps([self.stage, own], sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class DataJob(Job):
    """Make or load one data set."""

    stage: ClassVar[Stage] = "data"
    name: str
    seed: int
    parameters: Frozen
    revision: str

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed})"


@dataclass(frozen=True)
class TrainJob(Job):
    """Train a few networks of one architecture on one data set, one for each seed, in one go."""

    stage: ClassVar[Stage] = "train"
    data: DataJob
    model: str
    seeds: tuple[int, ...]
    parameters: Frozen
    build: Frozen
    revision: str

    @property
    def uses_device(self) -> bool:
        """Always."""
        return True

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

    def __str__(self) -> str:
        return f"{self.trainings[0].model} (seed {self.seed})"


@dataclass(frozen=True)
class ExplainJob(Job):
    """One explainer's maps of one network (of none, for a control) on the first test samples of a data set.

    Attributes:
        samples: The first so many, or all.
        cut: Not a job itself, but as many as it takes for each to explain at most so many samples (:attr:`parts`);
            0 = one job.
        part: Of those jobs one, which explains the samples from the first number to before the second.
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

    @property
    def parts(self) -> tuple[ExplainJob, ...]:
        """The jobs that make the maps, in the order of the samples."""
        if not self.cut or self.samples == "all" or self.samples <= self.cut:
            return (dataclasses.replace(self, cut=0),)
        starts = range(0, self.samples, self.cut)
        spans = [(start, min(start + self.cut, self.samples)) for start in starts]
        return tuple(dataclasses.replace(self, cut=0, part=span) for span in spans)

    @property
    def uses_device(self) -> bool:
        """All but the controls, which know no network."""
        return self.network is not None

    def __str__(self) -> str:
        network = f"{self.network} on " if self.network else ""
        part = f", samples {self.part[0]} to {self.part[1] - 1}" if self.part else ""
        return f"{self.explainer.name} for {network}{self.data}{part}"


@dataclass(frozen=True)
class ScoreJob(Job):
    """One metric over the maps of one explain job; ``network`` only for a metric that asks the model."""

    stage: ClassVar[Stage] = "score"
    explain: ExplainJob
    network: Network | None
    metric: NamedPart
    protocol: str
    revision: str

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs of the maps, and of the network where one is asked."""
        return (*self.explain.parts, *_jobs_in(self.network))

    @property
    def uses_device(self) -> bool:
        """Only a metric that asks the model."""
        return self.network is not None

    def __str__(self) -> str:
        return f"{self.metric.name} of {self.explain}"


@dataclass(frozen=True)
class CellPlan:
    """One data set with one architecture: all its trainings, and the scores of every explained network.

    ``label`` names the set in tables; empty = its own name.
    """

    data: DataJob
    model: str
    trainings: tuple[TrainJob, ...]
    scores: tuple[tuple[Network, ScoreJob], ...]
    label: str = ""

    @property
    def networks(self) -> tuple[Network, ...]:
        """The explained networks."""
        return tuple(dict.fromkeys(network for network, _ in self.scores))


@dataclass(frozen=True)
class Plan:
    """All jobs of a suite.

    Attributes:
        cells: In the order of the suite.
        jobs: Every job once, each after those it needs.
    """

    suite: Suite
    cells: tuple[CellPlan, ...]
    jobs: tuple[Job, ...]


def make_plan(suite: Suite) -> Plan:
    """All jobs of ``suite``.

    Raises:
        UnknownNameError: If a data set, model, explainer or metric is not known (did you mean).
    """
    cells = tuple(
        _plan_cell(suite, cell, dataset, model, data_seed)
        for cell in suite.cells
        for dataset in cell.datasets
        for data_seed in suite.data.seeds
        for model in cell.models
    )
    jobs: dict[Job, None] = {}
    for cell_plan in cells:
        for job in (*cell_plan.trainings, *(score for _, score in cell_plan.scores)):
            _add(job, jobs)
    return Plan(suite, cells, tuple(sorted(jobs, key=lambda job: STAGES.index(job.stage))))


def _add(job: Job, jobs: dict[Job, None]) -> None:
    if job not in jobs:
        for need in job.needs:
            _add(need, jobs)
        jobs[job] = None


def _plan_cell(suite: Suite, cell: Cell, dataset: str, model: str, data_seed: int) -> CellPlan:
    made = Frozen.keywords(suite.data.parameters, cell.data)
    data = DataJob(dataset, data_seed, made, revision("dataset", dataset))
    training = _training(suite, cell)
    stacks = [training.seeds[i : i + training.stack] for i in range(0, len(training.seeds), training.stack)]
    parameters = Frozen({name: getattr(training, name) for name in ("batch_size", "epochs", "loss", "lr", "method")})
    trainings = tuple(
        TrainJob(data, model, seeds, parameters, cell.build, revision("model", model)) for seeds in stacks
    )
    networks = [Network(trainings, "best")]
    if suite.explaining.trainings == "all":
        networks = [Network((job,), seed) for job in trainings for seed in job.seeds]
    scores = tuple(
        (network, score)
        for network in networks
        for explainer in suite.explainers
        for score in _plan_scores(suite, data, network, explainer)
    )
    return CellPlan(data, model, trainings, scores, cell.label)


def _training(suite: Suite, cell: Cell) -> Training:
    return dataclasses.replace(suite.training, **dict(cell.training))


def _plan_scores(suite: Suite, data: DataJob, network: Network, explainer: NamedPart) -> Iterator[ScoreJob]:
    info = part_info("explainer", explainer.use)
    if getattr(info, "needs_convolution", False) and not has_convolution(network.trainings[0].model, data.name):
        return
    # A control's maps are the same for every network of the data set, so they are made and scored once.
    explained = None if getattr(info, "control", False) else network
    how = suite.explaining
    revised = revision("explainer", explainer.use)
    # What is fitted first would be fitted for each part; a control takes no time.
    cut = how.samples_per_job if explained and not is_fitted(explainer.use) else 0
    explain = ExplainJob(data, explained, explainer, how.samples, how.output, how.seed, revised, cut)
    for metric in suite.metrics:
        kind = getattr(part_info("metric", metric.use), "kind", "ground-truth")
        asked = network if kind in ("model", "explainer") else None
        scored = f"{revision('metric', metric.use)}.{PROTOCOL_REVISION}"
        yield ScoreJob(explain, asked, metric, how.protocol, scored)


def _jobs_in(value: Any) -> Iterator[Job]:
    if isinstance(value, Job):
        yield value
    elif isinstance(value, Network):
        yield from value.trainings
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jobs_in(item)


def _plain(value: Any) -> Any:
    """A field of a job as JSON: other jobs by their key, parts and parameters as lists."""
    if isinstance(value, Job):
        return value.key
    if isinstance(value, Network):
        return [_plain(value.trainings), value.seed]
    if isinstance(value, NamedPart):  # its name in the suite decides nothing
        return [value.use, value.parameters.as_json()]
    if isinstance(value, Frozen):
        return value.as_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
