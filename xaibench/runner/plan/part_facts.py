"""What the runner asks of the registered parts (and of a user's own) before it runs anything."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal

from xaibench.core.frozen import Frozen
from xaibench.core.registry import Registry, import_target
from xaibench.runner.suites.suite_tables import with_variables

Kind = Literal["dataset", "model", "explainer", "metric"]

#: Samples of a data set whose parameters do not say how many it has.
_UNKNOWN_SAMPLES = 10_000

_REGISTRIES: dict[Kind, str] = {
    "dataset": "xaibench.data:DATASETS",
    "model": "xaibench.models:MODELS",
    "explainer": "xaibench.explainers:EXPLAINERS",
    "metric": "xaibench.metrics:METRICS",
}


def registry(kind: Kind) -> Registry:
    """The registry of one kind of part, imported when it is asked for."""
    found: Registry = import_target(_REGISTRIES[kind])
    return found


@functools.cache
def part_info(kind: Kind, name: str) -> Any:
    """The ``info`` of a part, or ``None`` when a user's own part carries none.

    Raises:
        UnknownNameError: If there is no such part; names the nearest.
    """
    return getattr(registry(kind).resolve(name), "info", None)


@functools.cache
def revision(kind: Kind, name: str) -> str:
    """What changes when the part does: its stated revision, or a hash of its source when it states none."""
    info = part_info(kind, name)
    if info is not None:
        return str(info.revision)
    part = registry(kind).resolve(name)
    try:
        source = inspect.getsource(part if inspect.isroutine(part) or inspect.isclass(part) else type(part))
    except (OSError, TypeError):
        return "unknown"
    return hashlib.sha256(source.encode()).hexdigest()[:12]


@functools.cache
def is_fitted(explainer: str) -> bool:
    """Whether the explainer learns from the training samples before it explains any."""
    return hasattr(registry("explainer").resolve(explainer), "fit")


def is_reference(explainer: str) -> bool:
    """Whether it says what a map should show, and is ranked with none."""
    return bool(getattr(part_info("explainer", explainer), "reference", False))


def knows_distribution(dataset: str) -> bool:
    """Whether it is known what the images of the data set came from, which a reference needs."""
    return bool(getattr(part_info("dataset", dataset), "known_distribution", False))


def shared_fit(explainer: str, parameters: Mapping[str, Any]) -> str:
    """What decides how an explainer is fitted: those of one answer can share a fit. Empty where it shares with none."""
    part = registry("explainer").resolve(explainer)
    deciding = getattr(part, "fit_decided_by", ())
    stated = {name: parameters.get(name, _taken(part)[name].default) for name in deciding}
    return json.dumps([part.fit.__qualname__, stated], sort_keys=True) if deciding else ""


@functools.cache
def passes_in_budget(explainer: str, parameters: Frozen, shape: tuple[int, int, int]) -> int:
    """Passes that it states for an image of that shape within its budget; 0 without a budget, or where none are stated.

    Raises:
        ValueError: If the budget does not suffice for any.
    """
    if "budget" not in parameters:
        return 0
    import torch

    from xaibench.evaluation.apply import AppliedExplainer

    return AppliedExplainer(explainer, parameters).passes_in_budget(torch.zeros(1, *shape)) or 0


def metric_kind(metric: str) -> str:
    """What the metric is called with; one that says nothing of itself takes maps and masks."""
    return getattr(part_info("metric", metric), "kind", "ground-truth")


def asks_once(metric: str) -> bool:
    """Whether the metric asks the model the same whatever the map."""
    return getattr(part_info("metric", metric), "asked_once", None) is not None


def is_of_use(metric: str) -> bool:
    """Whether the metric's masks are of what a network uses, whatever the data set's are."""
    return getattr(part_info("metric", metric), "own_truth", None) == "use"


def is_blind(model: str) -> bool:
    """Whether the model reads some pixels only, which it tells without its weights (``visible``)."""
    return callable(getattr(registry("model").resolve(model), "visible", None))


def visible_pixels(model: str, shape: tuple[int, int, int], build: Frozen) -> Any:
    """``[H, W]`` bool: the pixels of an image that a blind model reads."""
    return registry("model").resolve(model).visible(shape, **build)


def skill_of(metric: str) -> str:
    """The metric that this one reads against chance; empty for one that has its own scores."""
    return str(getattr(part_info("metric", metric), "skill_of", ""))


def shared_parameters(kind: Kind, name: str, parameters: Frozen) -> Frozen:
    """Those of some parameters that a part takes."""
    taken = _taken(registry(kind).resolve(name))
    return Frozen({key: value for key, value in parameters.items() if key in taken})


@functools.cache
def takes_n_samples(dataset: str) -> bool:
    """Whether a small form of the data set can be made."""
    return "n_samples" in _taken(registry("dataset").resolve(dataset))


@functools.cache
def split_sizes(dataset: str, parameters: Frozen, seed: int) -> tuple[int, int, int]:
    """Samples of the training, validation and test split, as far as can be known beforehand.

    A set that says so itself is asked (``sizes``). One that lies on disk is opened, which reads its lists and no image;
    of one that does not open, the size is the published one.
    """
    if sizes := getattr(registry("dataset").resolve(dataset), "sizes", None):
        found: tuple[int, int, int] = sizes(parameters)
        return found
    if not takes_n_samples(dataset) and (opened := _opened_sizes(dataset, parameters, seed)) is not None:
        return opened
    info = part_info("dataset", dataset)
    published = sum(count for _, count in getattr(info, "published", ()))
    count = int(parameters.get("n_samples") or published or _UNKNOWN_SAMPLES)
    shares = parameters.get("split")
    if shares is None and takes_n_samples(dataset) and not getattr(info, "how_to_get", ""):
        shares = _generated_shares(dataset)
    train, val, test = shares or (0.8, 0.1, 0.1)
    return round(train * count), round(val * count), round(test * count)


def _opened_sizes(dataset: str, parameters: Frozen, seed: int) -> tuple[int, int, int] | None:
    """What the set's own lists say; None where it does not open, of which the job itself will tell."""
    from xaibench.data import load

    try:
        opened = load(dataset, seed=seed, **with_variables(dict(parameters)))
    except (OSError, ValueError, TypeError, RuntimeError):
        return None
    return len(opened.train), len(opened.val), len(opened.test)


@functools.cache
def _generated_shares(dataset: str) -> tuple[float, float, float]:
    """The published split of a generated set, read off a small one."""
    from xaibench.data import load

    few = load(dataset, n_samples=200)
    return len(few.train) / 200, len(few.val) / 200, len(few.test) / 200


@functools.cache
def image_shape(dataset: str, parameters: Frozen) -> tuple[int, int, int]:
    """``(C, H, W)`` of the images, as far as it can be known."""
    shape: tuple[int, int, int] = getattr(part_info("dataset", dataset), "image_shape", (3, 224, 224))
    size = parameters.get("size")
    return (shape[0], size, size) if isinstance(size, int) else shape


@functools.cache
def class_count(dataset: str, parameters: Frozen) -> int | None:
    """How many classes a network has to tell apart; None where only the opened set says."""
    from xaibench.data.annotated import AnnotatedSet
    from xaibench.data.disk.class_choice import choose_classes

    part, info = registry("dataset").resolve(dataset), part_info("dataset", dataset)
    if info is None or not isinstance(part, AnnotatedSet):
        return len(info.classes) if info else None
    chosen = choose_classes(parameters.get("classes"), info.classes, aliases=part.aliases, default=part.default_classes)
    return len(chosen)


def built_with(model: str, build: Frozen, method: str) -> Frozen:
    """The parameters of a network that is trained by ``method``: one that is not keeps its own last layer."""
    from xaibench.models.building import as_it_comes

    return Frozen(as_it_comes(model, build)) if method == "none" else build


def asked_network(dataset: str, model: str, build: Frozen) -> tuple[str, Frozen, str] | None:
    """The network, with its parameters and revision, that a data set is made for; None of a set that asks none.

    Of the copies of a network for the cells of a mosaic it is that network.
    """
    if "network" not in _taken(registry("dataset").resolve(dataset)):
        return None
    if copied := getattr(registry("model").resolve(model), "copied", ""):
        model, build = copied, built_with(copied, Frozen(build.get("network", {})), "none")
    return model, build, revision("model", model)


@dataclass(frozen=True)
class NetworkFacts:
    """What the untrained network tells.

    Attributes:
        weights: How many numbers it has.
        convolution: Whether it has a convolution, which some explainers need.
    """

    weights: int
    convolution: bool


@functools.cache
def network_facts(model: str, dataset: str, parameters: Frozen, build: Frozen) -> NetworkFacts:
    """What the untrained network for the images of a data set tells.

    Raises:
        TypeError: If a parameter of the model is not known.
        ValueError: If a model of ours takes no such images, or tells other classes apart.
    """
    from torch import nn

    import xaibench.models

    if copied := getattr(registry("model").resolve(model), "copied", ""):
        return network_facts(copied, dataset, parameters, built_with(copied, Frozen(build.get("network", {})), "none"))
    classes = class_count(dataset, parameters)
    if classes is None:
        return NetworkFacts(0, True)  # whose shapes are not known is built in its job
    # Weights decide nothing here, and may have to be downloaded.
    untrained = {"weights": None} if "weights" in _taken(registry("model").resolve(model)) else {}
    shape = image_shape(dataset, parameters)
    try:
        network = xaibench.models.build(model, shape, classes, **{**build, **untrained})
    except ValueError:
        if registry("model").target(model) != model:
            raise
        return NetworkFacts(0, True)  # a user's own: its job says what is wrong with it, and the others go on
    convolution = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())
    return NetworkFacts(sum(weight.numel() for weight in network.parameters()), convolution)


def run_with(kind: Kind, name: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a part: its defaults, and what the suite states in their place, as JSON holds them."""
    part = registry(kind).resolve(name)
    defaults = {key: one.default for key, one in _taken(part).items() if one.default is not one.empty}
    if is_dataclass(part):
        made = {one.name: one.default_factory for one in fields(part) if one.default_factory is not MISSING}
        defaults |= {key: factory() for key, factory in made.items() if key in defaults}
    return {key: _plain(value) for key, value in (defaults | dict(stated)).items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else str(value)


def is_own(kind: Kind, name: str) -> bool:
    """Whether a part is the user's own, ``"package.module:name"``, and none of the registry's or of its schemes."""
    found = registry(kind)
    if kind == "explainer" and is_reference(name):
        return False
    return ":" in name and found.canonical(name) not in found and found.target(name) == name


def _taken(part: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters that a part takes."""
    try:
        return inspect.signature(part).parameters
    except (TypeError, ValueError):  # what is no function has none
        return {}
