"""Plan the jobs of a suite."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xaibench.benchmarks.xai_tris.photo_backgrounds import hash_photographs
from xaibench.evaluation.protocol import CONSTANT_MAP_REVISION, resolve_protocol, resolve_sign, scores_constant_maps
from xaibench.evaluation.protocol import REVISION as PROTOCOL_REVISION
from xaibench.registry.info import truth_of
from xaibench.registry.parameters import Frozen
from xaibench.runner.parts import DatasetPart, MetricPart, ModelPart
from xaibench.runner.plan.checks import check_parts
from xaibench.runner.plan.jobs import STAGES, DataJob, ExplainJob, Job, Measurement, Network, TrainJob, score_jobs
from xaibench.runner.published_networks import is_published
from xaibench.runner.suites.schema import Cell, Suite, Training

#: Increased whenever the same training gives other weights.
TRAINING_REVISION = 2


@dataclass(frozen=True)
class CellPlan:
    """The jobs of one data set with one architecture.

    Attributes:
        data: The data set.
        model: Name of the architecture.
        trainings: All train jobs.
        scores: Explained networks with the scores of their maps.
        label: Name of the set in tables; empty = its own name.
    """

    data: DataJob
    model: str
    trainings: tuple[TrainJob, ...]
    scores: tuple[tuple[Network, Measurement], ...]
    label: str = ""

    @property
    def networks(self) -> tuple[Network, ...]:
        """The explained networks."""
        return tuple(dict.fromkeys(network for network, _ in self.scores))

    @property
    def dataset_name(self) -> str:
        """The name of the data set in all tables: the label of the cell if it has one."""
        return self.label or self.data.name

    @property
    def subset_and_variant(self) -> tuple[str, str]:
        """Subset and variant; of a data set without subsets, its name in tables and "-"."""
        info = self.data.dataset.info
        return self.label or info.subset or self.data.name, info.variant or "-"

    @property
    def names(self) -> dict[str, Any]:
        """The columns that all rows of the cell share in the tables of a run folder."""
        subset, variant = self.subset_and_variant
        names = {"dataset": self.dataset_name, "subset": subset, "variant": variant, "model": self.model}
        return names | {"data_seed": self.data.seed}

    @property
    def key(self) -> tuple[str, str, str]:
        """Subset, variant and model."""
        return (*self.subset_and_variant, self.model)

    def truth_of(self, score: Measurement) -> str:
        """Return the kind of truth that scores refer to (:mod:`xaibench.core.truth_kinds`)."""
        return truth_of(score.metric.info, self.data.dataset.info)


@dataclass(frozen=True)
class Plan:
    """All jobs of a suite.

    Attributes:
        suite: The suite.
        cells: The cells, in the order of the suite.
        jobs: Every job once, after the jobs that it needs.
    """

    suite: Suite
    cells: tuple[CellPlan, ...]
    jobs: tuple[Job, ...]


def make_plan(suite: Suite, *, train: bool = False) -> Plan:
    """Check the parts of a suite, and plan its jobs.

    Args:
        suite: The suite.
        train: Train every network instead of taking published ones.

    Returns:
        The plan.

    Raises:
        UnknownNameError: If a data set, model, explainer or metric is unknown; names the nearest.
        SuiteError: If a part does not accept a parameter; names the table and the parameter.
    """
    check_parts(suite)
    hash_photographs.cache_clear()  # listed once per plan; the folder may have changed since the last one
    cells = tuple(
        _plan_cell(suite, cell, dataset, model, data_seed, varied, train=train)
        for cell in suite.cells
        for dataset in cell.datasets
        for data_seed in suite.data.seeds
        for varied in suite.data.variations
        for model in cell.models
    )
    jobs: dict[Job, None] = {}
    for cell_plan in cells:
        explained = {score.explain.key: score.explain.slices for _, score in cell_plan.scores}
        for job in (*cell_plan.trainings, *itertools.chain(*explained.values())):
            jobs |= dict.fromkeys((*job.needs, job))
    jobs |= dict.fromkeys(score_jobs(each for cell_plan in cells for _, each in cell_plan.scores))
    return Plan(suite, cells, tuple(sorted(jobs, key=lambda job: STAGES.index(job.stage))))


def _plan_cell(
    suite: Suite, cell: Cell, dataset: str, model: str, data_seed: int, varied: Frozen, *, train: bool
) -> CellPlan:
    made = DatasetPart.of(dataset, Frozen.keywords(suite.data.parameters, cell.data, varied))
    training = suite.training_of(cell)
    network = ModelPart.of(model, cell.build).trained_by(training.method)
    source = network.source  # the cells of a mosaic use copies of one network
    of_set = (source.use, source.parameters, source.revision) if "network" in made.accepted else None
    data = DataJob(dataset, data_seed, made.parameters, made.revision_of_files, network=of_set)
    parameters = Frozen(
        {name: getattr(training, name) for name in ("batch_size", "epochs", "loss", "lr", "method")}
        # The default precision is left out, so that the keys of older results stay valid.
        | ({"precision": training.precision} if training.precision != Training.precision else {})
    )
    revised = f"{network.revision}.{TRAINING_REVISION}"
    trainings: tuple[TrainJob, ...] = ()
    for i in range(0, len(training.seeds), training.stack):
        seeds = training.seeds[i : i + training.stack]
        job = TrainJob(data, model, seeds, parameters, network.parameters, revised)
        published = not train and all(map(is_published, job.published_keys))
        trainings += (dataclasses.replace(job, published=published),)
    networks = [Network(trainings, "best")]
    if suite.explaining.trainings == "all":
        networks = [Network((job,), seed) for job in trainings for seed in job.seeds]
    scores = [(network, score) for network in networks for score in _measurements(suite, cell, data, network)]
    return CellPlan(data, model, trainings, tuple(scores), cell.label)


def _explain_jobs(suite: Suite, cell: Cell, data: DataJob, network: Network) -> Iterator[ExplainJob]:
    """Yield a job per explainer that supports the network."""
    how, training = suite.explaining, network.trainings[0]
    model = ModelPart.of(training.model, training.build)
    for each in suite.explainers_of(cell):
        if each.info.needs_convolution and not model.facts(data.dataset).has_convolution:
            continue
        if each.info.reference and not data.dataset.info.known_distribution:
            continue
        # The maps of a control do not depend on the network, so they are made and scored once per data set.
        explained = None if each.info.control else network
        # A fitted explainer would be fitted again in each slice; a control takes no time.
        cut = how.samples_per_job if explained and not each.is_fitted else 0
        settings = (how.samples, how.output, how.seed, each.revision, cut)
        yield ExplainJob(data, explained, each, *settings, precision=how.precision)


def _measurements(suite: Suite, cell: Cell, data: DataJob, network: Network) -> list[Measurement]:
    """Return the scores of each explainer by each metric."""
    training = network.trainings[0]
    is_blind = ModelPart.of(training.model, training.build).is_blind
    metrics = [
        # The softmax of independent labels is not what the network answers.
        dataclasses.replace(metric, parameters=Frozen({"output": "sigmoid"} | dict(metric.parameters)))
        if suite.explaining.output == "sigmoid" and metric.needs_model and "output" in metric.accepted
        else metric
        for metric in suite.metrics_of(cell)
    ]
    prepared = []
    for metric in metrics:
        behind = underlying_metric(suite, metric)
        # A blind network can only use the pixels that it reads, so they are the masks of a metric of its use.
        blind = (training.model, training.build) if is_blind and metric.info.own_truth == "use" else None
        raw = behind and (None, behind, *_settings(suite, behind))
        prepared.append((raw, (network if metric.needs_model else None, metric, *_settings(suite, metric)), blind))
    return [
        Measurement(explain, *settings, Measurement(explain, *raw) if raw else None, blind)
        for explain in _explain_jobs(suite, cell, data, network)
        for raw, settings, blind in prepared
    ]


def _settings(suite: Suite, metric: MetricPart) -> tuple[str, str, str | None]:
    """Return protocol, revision and sign of the scores of a metric."""
    info, how = metric.info, suite.explaining
    protocol, _ = resolve_protocol(info, metric.parameters, how.protocol)
    revision = f"{metric.revision}.{PROTOCOL_REVISION}"
    if scores_constant_maps(info):
        revision += f".{CONSTANT_MAP_REVISION}"
    return protocol, revision, how.sign if resolve_sign(info, protocol, how.sign) else None


def underlying_metric(suite: Suite, metric: MetricPart) -> MetricPart | None:
    """Return the metric that a metric of a suite relates to chance; None if it has its own scores.

    It is that of the suite if it has the same parameters under the suite's protocol. Otherwise it is scored too, but
    not shown.
    """
    if not metric.info.skill_of:
        return None
    plain = MetricPart.of(metric.info.skill_of)
    shared = {name: value for name, value in metric.parameters.items() if name in plain.accepted}
    wanted = MetricPart.of(plain.use, Frozen(shared | dict(metric.info.skill_parameters)))

    def resolved(other: MetricPart) -> tuple[str, Frozen]:
        protocol, parameters = resolve_protocol(plain.info, other.parameters, suite.explaining.protocol)
        return protocol, Frozen(parameters)

    for other in suite.metrics:
        if other.use == plain.use and resolved(other) == resolved(wanted):
            return other
    return wanted
