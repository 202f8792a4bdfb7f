"""Check the parts of a suite before anything runs: every part is built with its parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from xaibench.component.info import truth_of
from xaibench.component.parameters import Frozen, annotations_of, check_types, has_any_parameter
from xaibench.component.registry import UnknownNameError
from xaibench.core.checks import ParameterError, check_names
from xaibench.core.truth_kinds import TRUTHS
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.runner.parts import DatasetPart, Part, find_part
from xaibench.runner.suites.entry_locations import Place
from xaibench.runner.suites.schema import Cell, NamedPart, Suite, SuiteError

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


def check_parts(suite: Suite) -> None:
    """Build every part of a suite as its jobs will, so that wrong parameters are found before anything runs.

    Annotated sets are not opened, and pretrained weights are not loaded. Wrong outputs of a user's own model are found
    in its jobs.

    Raises:
        UnknownNameError: If a part is unknown; names the nearest.
        SuiteError: If a part does not accept a parameter or its value.
    """
    for part in suite.explainers:
        _check_explainer(part, suite)
    for part in suite.metrics:
        _check_metric(part, suite)
    for cell in suite.cells:
        for dataset in cell.datasets:
            _check_dataset(dataset, cell, suite)
            made = find_part("dataset", dataset, Frozen.keywords(suite.data.parameters, cell.data))
            for part in suite.metrics_of(cell):
                _check_truth(part, made, cell, suite)
            for part in suite.explainers_of(cell):
                _check_budget(part, made, suite)
            for model in cell.models:
                _check_model(model, made, cell, suite)


def _check_explainer(named: NamedPart, suite: Suite) -> None:
    def build(parameters: Frozen) -> None:
        part = find_part("explainer", named.use, parameters)
        _check_parameters(part, annotations_of(AppliedExplainer.takes()))
        if parameters.get("seed", 0) < 0:
            raise ParameterError(f"seed is {parameters['seed']}; expected 0 or more.", parameter="seed")
        _ = part.applied

    _build(_place_of_explainer(named, suite), named.parameters, build)


def _check_budget(named: NamedPart, dataset: DatasetPart, suite: Suite) -> None:
    """Raise an error if a budget is too small for the images of the data set."""
    if "budget" in named.parameters:
        explainer = find_part("explainer", named.use, named.parameters)
        place = _place_of_explainer(named, suite).of("budget")
        _build(place, Frozen(), lambda _: explainer.passes_in_budget(dataset.image_shape))


def _check_metric(named: NamedPart, suite: Suite) -> None:
    def build(parameters: Frozen) -> None:
        _check_parameters(find_part("metric", named.use, parameters))
        AppliedMetric(named.use, parameters, protocol=suite.explaining.protocol)

    _build(_place_of_metric(named, suite), named.parameters, build)


def _check_dataset(name: str, cell: Cell, suite: Suite) -> None:
    words = f"[[cells]] number {cell.number + 1}, {name}"
    own = suite.origin.place(words, "cells", cell.number, "data")
    common = suite.origin.place(words, "data", "parameters")
    place = suite.origin.place(words, "cells", cell.number, "datasets")
    _build(place, Frozen(), lambda _: find_part("dataset", name).target)

    def check(parameters: Frozen) -> None:
        part = find_part("dataset", name, parameters)
        _check_parameters(part)
        if not has_any_parameter(part.target):
            check_names(name, parameters, part.accepted)

    _build(common, suite.data.parameters, check)
    _build(own, cell.data, check)
    if cell.data:
        shared = suite.data.parameters
        _build(own, cell.data, lambda parameters: _build_dataset(name, Frozen.keywords(shared, parameters)))
    else:
        _build(common, suite.data.parameters, lambda parameters: _build_dataset(name, Frozen.keywords(parameters)))


@functools.cache
def _build_dataset(name: str, parameters: Frozen) -> None:
    """Generate a small form of a data set. Sets on disk are not read."""
    from xaibench.data import load

    if find_part("dataset", name).is_generated:
        stated = parameters.get("n_samples")
        load(name, **{**parameters, "n_samples": _FEW if stated is None else min(stated, _FEW)})


def _check_truth(named: NamedPart, dataset: DatasetPart, cell: Cell, suite: Suite) -> None:
    """Raise an error if a metric needs masks of another kind of truth than the data set and the networks have."""
    part = find_part("metric", named.use)
    metric, masks = part.info, truth_of(None, dataset.info)
    # The masks of blind networks are the pixels that they read.
    has_use = part.is_of_use and all(find_part("model", model).is_blind for model in cell.models)
    if metric and part.input_kind == "ground-truth" and metric.own_truth not in (None, masks) and not has_use:
        question, source = TRUTHS[metric.own_truth].question, TRUTHS[masks].source
        raise SuiteError(
            f"{_place_of_metric(named, suite)}: {named.use} asks {question!r}, which the masks of {dataset.name} "
            f"cannot answer ({source}) Leave the metric or the data set out."
        )


def _check_model(name: str, dataset: DatasetPart, cell: Cell, suite: Suite) -> None:
    words = f"[[cells]] number {cell.number + 1}, {name}"
    place = suite.origin.place(words, "cells", cell.number, "models")
    _build(place, Frozen(), lambda _: find_part("model", name).target)

    def build(parameters: Frozen) -> None:
        part = find_part("model", name, parameters)
        _check_parameters(part)
        try:
            part.trained_by(suite.training_of(cell).method).facts(dataset)
        except ValueError as error:
            if len(dataset.info.classes) > 1:
                raise
            only = ", ".join(dataset.info.classes) or "none"
            raise ValueError(
                f"{error} Classes of {dataset.name}: {only}. {dataset.info.how_to_get}".rstrip()
            ) from error

    _build(suite.origin.place(words, "cells", cell.number, "build"), cell.build, build)


def _check_parameters(part: Part, more: Mapping[str, Any] | None = None) -> None:
    """Check that the jobs do not set the parameters themselves, and the types of the values.

    Raises:
        ParameterError: If one of them does not hold.
    """
    for name in part.parameters:
        if reason := _SET_BY_JOBS[part.kind].get(name):
            raise ParameterError(
                f"{name} is not a parameter that a suite can give {part.name}: {reason}. Leave it out.", parameter=name
            )
    check_types(part.parameters, {**(more or {}), **annotations_of(part.target)})


def _place_of_explainer(named: NamedPart, suite: Suite) -> Place:
    return suite.origin.place(f"[explainers] {named.name}", "explainers", named.name)


def _place_of_metric(named: NamedPart, suite: Suite) -> Place:
    return suite.origin.place(f"[metrics] {named.name}", "metrics", named.name)


def _build(place: Place, parameters: Frozen, build: Callable[[Frozen], object]) -> None:
    """Call ``build(parameters)``; an error names the line of the parameter that caused it, or of the whole part."""
    try:
        build(parameters)
    except UnknownNameError as error:
        raise UnknownNameError(f"{place}: {error}") from error
    except (TypeError, ValueError) as error:
        cause = getattr(error, "parameter", None) or _find_cause(parameters, build, str(error))
        raise SuiteError(f"{place.of(cause) if cause else place}: {error}") from error


def _find_cause(parameters: Frozen, build: Callable[[Frozen], object], message: str) -> str | None:
    """Return the parameter that alone causes the same error; None if there is none."""
    for name, value in parameters.items():
        try:
            build(Frozen({name: value}))
        except (TypeError, ValueError) as error:
            if str(error) == message:
                return name
    return None
