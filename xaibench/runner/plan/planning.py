"""From a suite to its jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from xaibench.core.frozen import Frozen
from xaibench.evaluation.protocol import REVISION as PROTOCOL_REVISION
from xaibench.runner.plan.job_base import STAGES, Job
from xaibench.runner.plan.jobs import DataJob, ExplainJob, Network, TrainJob
from xaibench.runner.plan.part_facts import (
    asked_network,
    asks_once,
    built_with,
    is_blind,
    is_fitted,
    is_of_use,
    is_reference,
    knows_distribution,
    metric_kind,
    network_facts,
    part_info,
    revision,
    shared_fit,
    shared_parameters,
    skill_of,
)
from xaibench.runner.plan.plan_checks import check_parts
from xaibench.runner.plan.score_jobs import ScoreJob
from xaibench.runner.suites.suite_tables import Cell, NamedPart, Suite, Training

#: Bumped whenever the same training comes to other weights.
TRAINING_REVISION = 2


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
        SuiteError: If a part does not take its parameters; says which, and on which line of the file.
    """
    check_parts(suite)
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
    training = suite.training_of(cell)
    build = built_with(model, cell.build, training.method)
    asked = asked_network(dataset, model, build)
    data = DataJob(dataset, data_seed, made, revision("dataset", dataset), network=asked)
    stacks = [training.seeds[i : i + training.stack] for i in range(0, len(training.seeds), training.stack)]
    parameters = Frozen(
        {name: getattr(training, name) for name in ("batch_size", "epochs", "loss", "lr", "method")}
        # A default that came later is left out, so that older results keep their names.
        | ({"precision": training.precision} if training.precision != Training.precision else {})
    )
    revised = f"{revision('model', model)}.{TRAINING_REVISION}"
    trainings = tuple(TrainJob(data, model, seeds, parameters, build, revised) for seeds in stacks)
    networks = [Network(trainings, "best")]
    if suite.explaining.trainings == "all":
        networks = [Network((job,), seed) for job in trainings for seed in job.seeds]
    scores = tuple((network, score) for network in networks for score in _score_jobs(suite, cell, data, network))
    return CellPlan(data, model, trainings, scores, cell.label)


def _explain_jobs(suite: Suite, cell: Cell, data: DataJob, network: Network) -> list[ExplainJob]:
    """A job for each explainer that suits the network; those that are fitted alike hand the fit on, one to the next."""
    jobs: list[ExplainJob] = []
    last: dict[str, int] = {}  # of each way of fitting, the place of the last job that fits so
    for explainer in suite.explainers_of(cell):
        if (job := _explain_job(suite, data, network, explainer)) is None:
            continue
        shared = shared_fit(explainer.use, explainer.parameters) if job.network else ""
        if shared and shared in last:
            jobs[last[shared]] = dataclasses.replace(jobs[last[shared]], leaves_fit=True)
            job = dataclasses.replace(job, fit_from=jobs[last[shared]])
        if shared:
            last[shared] = len(jobs)
        jobs.append(job)
    return jobs


def _explain_job(suite: Suite, data: DataJob, network: Network, explainer: NamedPart) -> ExplainJob | None:
    info = part_info("explainer", explainer.use)
    if getattr(info, "needs_convolution", False) and not _convolves(network):
        return None
    if is_reference(explainer.use) and not knows_distribution(data.name):
        return None
    # A control's maps are the same for every network of the data set, so they are made and scored once.
    explained = None if getattr(info, "control", False) else network
    how = suite.explaining
    revised = revision("explainer", explainer.use)
    # What is fitted first would be fitted for each part; a control takes no time.
    cut = how.samples_per_job if explained and not is_fitted(explainer.use) else 0
    return ExplainJob(
        data, explained, explainer, how.samples, how.output, how.seed, revised, cut, precision=how.precision
    )


def _score_jobs(suite: Suite, cell: Cell, data: DataJob, network: Network) -> list[ScoreJob]:
    """A job for each explainer and metric; those that ask the network the same hand the answers on, one to the next."""
    jobs: list[ScoreJob] = []
    last: dict[str, int] = {}  # of what is asked, the place of the last job that asks it
    for explain in _explain_jobs(suite, cell, data, network):
        for job in _plan_scores(suite, cell, network, explain):
            if asks_once(job.metric.use):
                asked = job.answers_key
                if asked in last:
                    jobs[last[asked]] = dataclasses.replace(jobs[last[asked]], leaves_answers=True)
                    job = dataclasses.replace(job, answers_from=jobs[last[asked]])
                last[asked] = len(jobs)
            jobs.append(job)
    return jobs


def _plan_scores(suite: Suite, cell: Cell, network: Network, explain: ExplainJob) -> Iterator[ScoreJob]:
    for metric in suite.metrics_of(cell):
        asked = network if metric_kind(metric.use) in ("model", "explainer") else None
        # The data set's masks say what the data tell; what a blind network can use are the pixels that it reads.
        training = network.trainings[0]
        blind = (training.model, training.build) if is_of_use(metric.use) and is_blind(training.model) else None
        yield _score_job(suite, explain, asked, metric, blind)


def _score_job(
    suite: Suite,
    explain: ExplainJob,
    asked: Network | None,
    metric: NamedPart,
    blind: tuple[str, Frozen] | None = None,
) -> ScoreJob:
    """The job of a metric; that of one that reads another against chance stands behind that of the other.

    The other is the suite's own where it has the same parameters; else it is scored too, and not shown.
    """
    revised = f"{revision('metric', metric.use)}.{PROTOCOL_REVISION}"
    raw = None
    if use := skill_of(metric.use):
        parameters = shared_parameters("metric", use, metric.parameters)
        same = [part for part in suite.metrics if (part.use, part.parameters) == (use, parameters)]
        raw = _score_job(suite, explain, None, next(iter(same), NamedPart(use, use, parameters)))
    return ScoreJob(explain, asked, metric, suite.explaining.protocol, revised, raw, blind)


def _convolves(network: Network) -> bool:
    training = network.trainings[0]
    return network_facts(training.model, training.data.name, training.data.parameters, training.build).convolution
