"""What a suite asks of its parts, tried before anything runs: every part is built with its parameters."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from xaibench.core.frozen import Frozen
from xaibench.core.messages import unknown
from xaibench.core.part_info import truth_of
from xaibench.core.registry import UnknownNameError
from xaibench.core.truths import TRUTHS
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.runner.plan.part_facts import (
    built_with,
    image_shape,
    is_blind,
    is_of_use,
    network_facts,
    part_info,
    passes_in_budget,
    registry,
    takes_n_samples,
)
from xaibench.runner.plan.value_types import in_words, is_of, stated_types
from xaibench.runner.suites.entry_places import Place
from xaibench.runner.suites.suite_tables import Cell, NamedPart, Suite, SuiteError

#: What the jobs give a part themselves, and where a suite says it instead.
_GIVEN = {
    "explainer": {
        **dict.fromkeys(("explainer", "model", "images", "targets"), "the jobs give it"),
        "output": "it is stated once, as output in [explaining]",
        "device": "it is stated as --device",
        "progress": "the run shows its own",
    },
    "metric": {
        **dict.fromkeys(("maps", "masks", "model", "images", "targets", "explainer"), "the jobs give it"),
        "reduction": "the scores of all samples are kept",
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

#: Samples of the small form in which a generated set is tried.
_FEW = 200


def check_parts(suite: Suite) -> None:
    """Build every part of a suite as its jobs will: what they would refuse is refused here.

    Annotated sets are not opened, and pretrained weights not loaded; a model of the user's own whose outputs are wrong
    is left to its jobs.

    Raises:
        UnknownNameError: If there is no part of a name; names the nearest.
        SuiteError: If a part does not take a parameter, or not such a value.
    """
    for part in suite.explainers:
        _check_explainer(part, suite)
    for part in suite.metrics:
        _check_metric(part, suite)
    for cell in suite.cells:
        for dataset in cell.datasets:
            _check_dataset(dataset, cell, suite)
            for part in suite.metrics_of(cell):
                _check_truth(part, dataset, cell, suite)
            for part in suite.explainers_of(cell):
                _check_budget(part, dataset, cell, suite)
            for model in cell.models:
                _check_model(model, dataset, cell, suite)


def _check_explainer(part: NamedPart, suite: Suite) -> None:
    place = suite.origin.place(f"[explainers] {part.name}", "explainers", part.name)
    with _named(place, part.parameters):
        types = stated_types(AppliedExplainer.takes()) | stated_types(registry("explainer").resolve(part.use))
        _check_given("explainer", part.use, part.parameters, types, place)
        if part.parameters.get("seed", 0) < 0:
            raise SuiteError(f"{place.of('seed')}: seed is {part.parameters['seed']}; expected 0 or more.")
        AppliedExplainer(part.use, part.parameters, seed=suite.explaining.seed)


def _check_budget(part: NamedPart, dataset: str, cell: Cell, suite: Suite) -> None:
    """Refuse a budget that no image of the data set can be explained with."""
    if "budget" not in part.parameters:
        return
    shape = image_shape(dataset, Frozen.keywords(suite.data.parameters, cell.data))
    with _named(suite.origin.place(f"[explainers] {part.name}", "explainers", part.name), ("budget",)):
        passes_in_budget(part.use, part.parameters, shape)


def _check_metric(part: NamedPart, suite: Suite) -> None:
    place = suite.origin.place(f"[metrics] {part.name}", "metrics", part.name)
    with _named(place, part.parameters):
        types = stated_types(registry("metric").resolve(part.use))
        _check_given("metric", part.use, part.parameters, types, place)
        AppliedMetric(part.use, part.parameters, protocol=suite.explaining.protocol)


def _check_dataset(name: str, cell: Cell, suite: Suite) -> None:
    words = f"[[cells]] number {cell.number + 1}, {name}"
    own = suite.origin.place(words, "cells", cell.number, "data")
    common = suite.origin.place(words, "data", "parameters")
    with _named(suite.origin.place(words, "cells", cell.number, "datasets"), ()):
        part = registry("dataset").resolve(name)
    for place, parameters in ((common, suite.data.parameters), (own, cell.data)):
        with _named(place, parameters):
            _check_given("dataset", name, parameters, stated_types(part), place)
            _check_known(f"{place}: {name} takes no", part, parameters)
    parameters = Frozen.keywords(suite.data.parameters, cell.data)
    with _named(own if cell.data else common, parameters):
        _try_dataset(name, parameters)


@functools.cache
def _try_dataset(name: str, parameters: Frozen) -> None:
    """Make a set that is generated, in small."""
    from xaibench.data import load

    if takes_n_samples(name) and not getattr(part_info("dataset", name), "how_to_get", ""):
        stated = parameters.get("n_samples")
        load(name, **{**parameters, "n_samples": _FEW if stated is None else min(stated, _FEW)})


def _check_truth(part: NamedPart, dataset: str, cell: Cell, suite: Suite) -> None:
    """Refuse a metric that reads masks of another kind of truth than those of the set and the networks are of."""
    metric, masks = part_info("metric", part.use), truth_of(None, part_info("dataset", dataset))
    known = is_of_use(part.use) and all(is_blind(model) for model in cell.models)  # what these read are its masks
    if getattr(metric, "kind", "") == "ground-truth" and metric.own_truth not in (None, masks) and not known:
        place = suite.origin.place(f"[metrics] {part.name}", "metrics", part.name)
        asks, has = TRUTHS[metric.own_truth].question, TRUTHS[masks].source
        raise SuiteError(
            f"{place}: {part.use} asks {asks!r}, which the masks of {dataset} cannot answer ({has}) Leave the metric "
            "or the data set out."
        )


def _check_model(name: str, dataset: str, cell: Cell, suite: Suite) -> None:
    words = f"[[cells]] number {cell.number + 1}, {name}"
    with _named(suite.origin.place(words, "cells", cell.number, "models"), ()):
        part = registry("model").resolve(name)
    place = suite.origin.place(words, "cells", cell.number, "build")
    with _named(place, cell.build):
        _check_given("model", name, cell.build, stated_types(part), place)
        build = built_with(name, cell.build, suite.training_of(cell).method)
        network_facts(name, dataset, Frozen.keywords(suite.data.parameters, cell.data), build)


def _check_given(kind: str, name: str, parameters: Mapping[str, Any], types: Mapping[str, Any], place: Place) -> None:
    """Refuse what the jobs give themselves, and what is of another type than the part says."""
    for parameter, value in parameters.items():
        if parameter in _GIVEN[kind]:
            raise SuiteError(
                f"{place.of(parameter)}: {parameter} is no parameter that a suite can give {name}: "
                f"{_GIVEN[kind][parameter]}. Leave it out."
            )
        if parameter in types and not is_of(value, types[parameter]):
            expected = in_words(types[parameter])
            raise SuiteError(f"{place.of(parameter)}: {parameter} is {value!r}; expected {expected}.")


def _check_known(start: str, part: Callable[..., Any], parameters: Iterable[str]) -> None:
    taken = inspect.signature(part).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        for parameter in parameters:
            if parameter not in taken:
                raise SuiteError(unknown(start, parameter, taken))


@contextlib.contextmanager
def _named(place: Place, parameters: Iterable[str]) -> Iterator[None]:
    """Say of an error where the suite asks for what it refuses: on the line of the parameter that it names."""
    try:
        yield
    except SuiteError:
        raise
    except UnknownNameError as error:
        raise UnknownNameError(f"{place}: {error}") from error
    except (TypeError, ValueError) as error:
        said = {name: re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in parameters}
        told = sorted((found.start(), name) for name, found in said.items() if found)
        raise SuiteError(f"{place.of(told[0][1]) if told else place}: {error}") from error
