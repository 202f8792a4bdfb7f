"""Check the parts of a suite before anything runs: parts are built with their parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from xaibench.core.checks import ParameterError, check_names
from xaibench.core.truth_kinds import TRUTHS
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.registry.component import Component, registry
from xaibench.registry.info import truth_of
from xaibench.registry.parameters import Frozen, annotations_of, check_types, has_any_parameter
from xaibench.runner.parts import DatasetPart, ExplainerPart, MetricPart, ModelPart
from xaibench.runner.suites.schema import Cell, Suite, SuiteError, errors_of

#: Parameters that the jobs set, and where a suite states them instead.
_SET_BY_JOBS = {
    "explainer": {
        **dict.fromkeys(("explainer", "model", "images", "targets"), "the jobs set it"),
        "output": "it is stated once, as output in [explaining]",
        "device": "it is stated as --device",
        "progress": "the run has its own progress bars",
    },
    "metric": {
        **dict.fromkeys(("maps", "masks", "model", "images", "targets", "explainer"), "the jobs set it"),
        "reduction": "the scores of all samples are kept",
        **dict.fromkeys(("parts", "behind"), "the data set gives them"),
    },
    "dataset": {
        "seed": "it is stated as seeds in [data]",
        "name": "it is stated as datasets",
        "network": "it is that of the cell",
    },
    "model": {
        **dict.fromkeys(("in_shape", "num_classes"), "the data set decides it"),
        "seed": "it is stated as seeds in [training]",
        "name": "it is stated as models",
    },
}

#: Samples of the small form in which a generated set is built.
_FEW = 200

#: Largest number of trainings and maps jobs of a suite; the largest built-in suite has fewer than 20,000.
MAX_JOBS = 200_000


def check_parts(suite: Suite) -> None:
    """Build the parts of a suite as its jobs will, so that wrong parameters are found before anything runs.

    Registered data sets, explainers and metrics without parameters are not built, since they cannot be wrong. Annotated
    sets are not opened, and pretrained weights are not loaded. Wrong outputs of a user's own model are found in its
    jobs.

    Raises:
        UnknownNameError: If a part is unknown; names the nearest.
        SuiteError: If a part does not accept a parameter or its value.
    """
    count, how = 0, suite.explaining
    slices = -(-int(how.samples) // how.samples_per_job) if how.samples_per_job else 1
    for cell in suite.cells:  # count jobs of training and explaining; shared ones are counted repeatedly
        trainings = len(suite.training_of(cell).seeds)
        maps = (trainings if how.trainings == "all" else 1) * len(suite.explainers_of(cell)) * slices
        sets = len(cell.datasets) * len(suite.data.seeds) * len(suite.data.variations)
        count += sets * len(cell.models) * (trainings + maps)
    if count > MAX_JOBS:
        raise SuiteError(
            f"The suite has {count:,} jobs; expected at most {MAX_JOBS:,}; use fewer seeds, cells or explainers, or "
            "larger samples_per_job.",
            suite=suite.source,
        )
    for explainer in suite.explainers:
        _check_explainer(explainer, suite)
    for metric in suite.metrics:
        with errors_of(suite.source, metric.table):
            _check_parameters(metric)
            if metric.parameters or metric.use not in registry("metric"):
                AppliedMetric(metric.use, metric.parameters, protocol=suite.explaining.protocol)
    for cell in suite.cells:
        for model in cell.models:
            with errors_of(suite.source, cell.table, "models"):
                _ = ModelPart.of(model, cell.build).is_blind
        for dataset in cell.datasets:
            made = DatasetPart.of(dataset, Frozen.keywords(suite.data.parameters, cell.data))
            _check_dataset(made, cell, suite)
            for varied in suite.data.variations if suite.data.alphas else ():
                with errors_of(suite.source, "[data] alphas"):
                    check_names(made.use, varied, made.accepted)
                    _build_dataset(DatasetPart.of(dataset, Frozen.keywords(made.parameters, varied)))
            for metric in suite.metrics_of(cell):
                _check_truth(metric, made, cell, suite)
            for explainer in suite.explainers_of(cell):
                with errors_of(suite.source, explainer.table, "budget"):
                    explainer.passes_in_budget(made.image_shape)  # an error if the budget is too small
            for model in cell.models:
                _check_model(model, made, cell, suite)


def _check_explainer(part: ExplainerPart, suite: Suite) -> None:
    with errors_of(suite.source, part.table):
        _check_parameters(part, annotations_of(AppliedExplainer.takes()))
        if part.parameters.get("seed", 0) < 0:
            raise ParameterError(f"seed is {part.parameters['seed']}; expected 0 or more.", parameter="seed")
        if part.parameters or part.use not in registry("explainer"):
            _ = part.applied


def _check_dataset(part: DatasetPart, cell: Cell, suite: Suite) -> None:
    with errors_of(suite.source, cell.table, "datasets"):
        _ = part.info
    for table, parameters in ((f"{cell.table} data", cell.data), ("[data] parameters", suite.data.parameters)):
        with errors_of(suite.source, table):
            _check_parameters(part, names=parameters)
            if not has_any_parameter(part.target):
                check_names(part.use, parameters, part.accepted)
    with errors_of(suite.source, f"{cell.table} data" if cell.data else "[data] parameters"):
        _build_dataset(part)


@functools.cache
def _build_dataset(part: DatasetPart) -> None:
    """Generate a small form of a data set. Sets on disk are not read."""
    from xaibench.data import load

    stated = part.parameters.get("n_samples")
    small = {**part.parameters, "n_samples": _FEW if stated is None else min(stated, _FEW)}
    if part.is_generated and (small != {"n_samples": _FEW} or part.use not in registry("dataset")):
        load(part.use, **small)


def _check_truth(metric: MetricPart, dataset: DatasetPart, cell: Cell, suite: Suite) -> None:
    """Raise an error if a metric needs masks of another kind of truth than the data set and the networks have."""
    truth, masks = metric.info.own_truth, truth_of(None, dataset.info)
    # The masks of blind networks are the pixels that they read.
    has_use = truth == "use" and all(ModelPart.of(model).is_blind for model in cell.models)
    if metric.info.kind == "ground-truth" and truth not in (None, masks) and not has_use:
        question, source = TRUTHS[truth].question, TRUTHS[masks].source
        raise SuiteError(
            f"{metric.use} asks {question!r}, which the masks of {dataset.use} cannot answer ({source}) Leave the "
            "metric or the data set out.",
            suite=suite.source,
            table=metric.table,
        )


def _check_model(name: str, dataset: DatasetPart, cell: Cell, suite: Suite) -> None:
    part = ModelPart.of(name, cell.build)
    with errors_of(suite.source, f"{cell.table} build" if cell.build else cell.table):
        _check_parameters(part)
        try:
            part.trained_by(suite.training_of(cell).method).facts(dataset)
        except ValueError as error:
            if len(dataset.info.classes) > 1:
                raise
            only = ", ".join(dataset.info.classes) or "none"
            raise ValueError(f"{error} Classes of {dataset.use}: {only}. {dataset.info.how_to_get}".rstrip()) from error


def _check_parameters(
    part: Component, more: Mapping[str, Any] | None = None, names: Iterable[str] | None = None
) -> None:
    """Check that the jobs do not set the parameters themselves, and the types of the values.

    Raises:
        ParameterError: If one of them does not hold.
    """
    parameters = dict(part.parameters) if names is None else {name: part.parameters[name] for name in names}
    for name in parameters:
        if reason := _SET_BY_JOBS[part.kind].get(name):
            raise ParameterError(
                f"{name} is not a parameter that a suite can give {part.use}: {reason}. Leave it out.", parameter=name
            )
    check_types(parameters, {**(more or {}), **annotations_of(part.target)})
