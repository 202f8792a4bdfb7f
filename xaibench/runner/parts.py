"""The parts of a suite, found in their registries: what the runner needs to know of them before it runs anything."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from xaibench.component.parameters import Frozen, named_parameters
from xaibench.component.registry import Registry, import_target

if TYPE_CHECKING:
    from torch import nn

    from xaibench.evaluation.apply import AppliedExplainer

Kind = Literal["dataset", "model", "explainer", "metric"]

#: Assumed number of samples of a data set that does not state it.
_UNKNOWN_SAMPLES = 10_000

_REGISTRIES: dict[Kind, str] = {
    "dataset": "xaibench.data:DATASETS",
    "model": "xaibench.models:MODELS",
    "explainer": "xaibench.explainers:EXPLAINERS",
    "metric": "xaibench.metrics:METRICS",
}


def registry(kind: Kind) -> Registry:
    """Return the registry of one kind of part, imported on first use."""
    found: Registry = import_target(_REGISTRIES[kind])
    return found


def expand_variables(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``$NAME`` in parameters by the environment variable, such as a folder that differs between machines.

    Example:
        >>> import os
        >>> os.environ["MY_IMAGES"] = "/data/images"
        >>> expand_variables({"images_dir": "$MY_IMAGES", "alpha": 0.1})
        {'images_dir': '/data/images', 'alpha': 0.1}
    """
    return {name: os.path.expandvars(value) if isinstance(value, str) else value for name, value in parameters.items()}


@dataclass(frozen=True)
class Part:
    """A part with the parameters that a suite gives it. Get one from :func:`find_part`, which keeps them.

    Attributes:
        name: Registered name, or ``"package.module:name"``.
        parameters: Keyword arguments.
    """

    kind: ClassVar[Kind]
    name: str
    parameters: Frozen = field(default_factory=Frozen)

    @functools.cached_property
    def target(self) -> Any:
        """The registered class, function or object. Raises UnknownNameError if there is none."""
        return registry(self.kind).resolve(self.name)

    @property
    def info(self) -> Any:
        """The record of the part (:mod:`xaibench.component.info`); None if a user's own part has none."""
        return getattr(self.target, "info", None)

    @functools.cached_property
    def revision(self) -> str:
        """The stated revision of the part; if it states none, a hash of its source."""
        if self.info is not None:
            return str(self.info.revision)
        part = self.target
        try:
            source = inspect.getsource(part if inspect.isroutine(part) or inspect.isclass(part) else type(part))
        except (OSError, TypeError):
            return "unknown"
        return hashlib.sha256(source.encode()).hexdigest()[:12]

    @functools.cached_property
    def accepted(self) -> Mapping[str, inspect.Parameter]:
        """All parameters of the part, by name."""
        return named_parameters(self.target)

    @property
    def all_parameters(self) -> dict[str, Any]:
        """The values of all parameters as JSON: from the suite, otherwise the defaults."""
        values = {name: one.default for name, one in self.accepted.items() if one.default is not one.empty}
        if is_dataclass(self.target):
            factories = {f.name: f.default_factory for f in fields(self.target) if f.default_factory is not MISSING}
            values |= {name: make() for name, make in factories.items() if name in values}
        return {name: _to_json(value) for name, value in (values | dict(self.parameters)).items()}

    @property
    def is_users_own(self) -> bool:
        """Whether the part is ``"package.module:name"`` of the user, neither registered nor made by a scheme."""
        found = registry(self.kind)
        return ":" in self.name and found.canonical(self.name) not in found and found.target(self.name) == self.name


@dataclass(frozen=True)
class DatasetPart(Part):
    """A data set with its parameters."""

    kind = "dataset"

    @property
    def has_known_distribution(self) -> bool:
        """Whether the distribution of the images is known, which a reference explainer needs."""
        return bool(getattr(self.info, "known_distribution", False))

    @property
    def has_n_samples(self) -> bool:
        """Whether the number of samples is a parameter, so that a small form can be made."""
        return "n_samples" in self.accepted

    @property
    def is_generated(self) -> bool:
        """Whether the set is generated, not read from disk."""
        return self.has_n_samples and not getattr(self.info, "how_to_get", "")

    @property
    def needs_network(self) -> bool:
        """Whether the set is made for a network."""
        return "network" in self.accepted

    @functools.cached_property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)``, or ``(C, D, H, W)`` of volumes, as far as it is known before the set is loaded."""
        if self.parameters.get("volumes"):
            return self.target.volume_shape(self.parameters)  # type: ignore[no-any-return]
        shape: tuple[int, ...] = getattr(self.info, "image_shape", (3, 224, 224))
        size, channels = self.parameters.get("size"), self.parameters.get("channels")
        channels = channels if isinstance(channels, int) else shape[0]
        return (channels, size, size) if isinstance(size, int) else (channels, *shape[1:])

    @functools.cached_property
    def class_count(self) -> int | None:
        """Number of classes; None if it is known only after the set is loaded."""
        from xaibench.data.annotated import AnnotatedSet
        from xaibench.data.disk.splits import choose_classes

        if self.info is None or not isinstance(self.target, AnnotatedSet):
            return len(self.info.classes) if self.info else None
        chosen, part = self.parameters.get("classes"), self.target
        return len(choose_classes(chosen, self.info.classes, aliases=part.aliases, default=part.default_classes))

    def split_sizes(self, seed: int) -> tuple[int, int, int]:
        """Return the number of training, validation and test samples, as far as it is known beforehand.

        A set on disk is opened, which reads its lists but no image. If it cannot be opened, the published size counts.
        """
        return _split_sizes(self, seed)


@functools.cache
def _split_sizes(part: DatasetPart, seed: int) -> tuple[int, int, int]:
    parameters = part.parameters
    if sizes := getattr(part.target, "sizes", None):
        found: tuple[int, int, int] = sizes(parameters)
        return found
    if not part.has_n_samples and (opened := _opened_sizes(part, seed)) is not None:
        return opened
    published = sum(count for _, count in getattr(part.info, "published", ()))
    count = int(parameters.get("n_samples") or published or _UNKNOWN_SAMPLES)
    shares = parameters.get("split")
    if shares is None and part.is_generated:
        shares = _default_shares(part.name)
    train, val, test = shares or (0.8, 0.1, 0.1)
    return round(train * count), round(val * count), round(test * count)


def _opened_sizes(part: DatasetPart, seed: int) -> tuple[int, int, int] | None:
    """Return the sizes of the opened set; None if it cannot be opened, which its own job will report."""
    from xaibench.data import load

    try:
        opened = load(part.name, seed=seed, **expand_variables(part.parameters))
    except (OSError, ValueError, TypeError, RuntimeError):
        return None
    return len(opened.train), len(opened.val), len(opened.test)


@functools.cache
def _default_shares(dataset: str) -> tuple[float, float, float]:
    """Return the default split of a generated set, measured on a small one."""
    from xaibench.data import load

    few = load(dataset, n_samples=200)
    return len(few.train) / 200, len(few.val) / 200, len(few.test) / 200


def build_network(
    name: str, image_shape: tuple[int, ...], class_count: int, *, seed: int = 0, **parameters: Any
) -> nn.Module:
    """Build a network as :func:`xaibench.models.build`; an error about the size of the images names ``--size``."""
    from xaibench.compute.network_outputs import ImageShapeError
    from xaibench.models import build

    try:
        return build(name, image_shape, class_count, seed=seed, **parameters)
    except ImageShapeError as error:
        raise ImageShapeError(
            f"{error} The images of the suite have {image_shape[1]}×{image_shape[2]} pixels; if the network expects "
            "another size, state it with --size (size= in Python)."
        ) from error


@dataclass(frozen=True)
class NetworkFacts:
    """Properties of an untrained network.

    Attributes:
        weights: Number of weights.
        has_convolution: Whether it has a convolution, which some explainers need.
    """

    weights: int
    has_convolution: bool


@dataclass(frozen=True)
class ModelPart(Part):
    """A model with its parameters."""

    kind = "model"

    @property
    def is_blind(self) -> bool:
        """Whether the model reads only some pixels, which are known without its weights (``visible``)."""
        return callable(getattr(self.target, "visible", None))

    def visible_pixels(self, shape: tuple[int, ...]) -> Any:
        """Return the pixels of an image that a blind model reads, ``[H, W]`` bool."""
        return self.target.visible(shape, **self.parameters)

    def trained_by(self, method: str) -> ModelPart:
        """Return the model with the parameters for a training method: without training it keeps its last layer."""
        from xaibench.models.building import as_it_comes

        if method != "none":
            return self
        return find_part("model", self.name, Frozen(as_it_comes(self.name, self.parameters)))

    @functools.cached_property
    def source(self) -> ModelPart:
        """The network that this model copies for the cells of a mosaic; otherwise the model itself."""
        if copied := getattr(self.target, "copied", ""):
            return find_part("model", copied, Frozen(self.parameters.get("network", {}))).trained_by("none")
        return self

    def facts(self, dataset: DatasetPart) -> NetworkFacts:
        """Build the untrained network for the images of a data set, and return its properties.

        Raises:
            TypeError: If the model has no such parameter.
            ValueError: If a registered model does not accept such images, or has other classes.
        """
        return _network_facts(self.source, dataset)


@functools.cache
def _network_facts(model: ModelPart, dataset: DatasetPart) -> NetworkFacts:
    from torch import nn

    if dataset.class_count is None:
        return NetworkFacts(0, True)  # built in its job
    # The weights do not matter here, and may have to be downloaded.
    untrained = {"weights": None} if "weights" in model.accepted else {}
    try:
        network = build_network(
            model.name, dataset.image_shape, dataset.class_count, **{**model.parameters, **untrained}
        )
    except ValueError:
        if registry("model").target(model.name) != model.name:
            raise
        return NetworkFacts(0, True)  # the user's own: its job reports the error, and the other jobs go on
    has_convolution = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())
    return NetworkFacts(sum(weight.numel() for weight in network.parameters()), has_convolution)


@dataclass(frozen=True)
class ExplainerPart(Part):
    """An explainer with its parameters."""

    kind = "explainer"

    @property
    def is_control(self) -> bool:
        """Whether the explainer is a baseline that does not use the network."""
        return bool(getattr(self.info, "control", False))

    @property
    def is_reference(self) -> bool:
        """Whether the explainer shows what a map should show; it is not ranked."""
        return bool(getattr(self.info, "reference", False))

    @property
    def is_users_own(self) -> bool:
        """Whether the explainer is the user's own; a reference is not."""
        return not self.is_reference and super().is_users_own

    @property
    def is_fitted(self) -> bool:
        """Whether the explainer is fitted to the training samples first."""
        return hasattr(self.target, "fit")

    @property
    def needs_convolution(self) -> bool:
        """Whether the explainer needs a network with a convolution."""
        return bool(getattr(self.info, "needs_convolution", False))

    @property
    def fit_settings(self) -> str:
        """The settings that decide the fit: explainers with equal ones share a fit. Empty if it cannot be shared."""
        part = self.target
        deciding = getattr(part, "fit_decided_by", ())
        stated = {name: self.parameters.get(name, self.accepted[name].default) for name in deciding}
        return json.dumps([part.fit.__qualname__, stated], sort_keys=True) if deciding else ""

    @functools.cached_property
    def applied(self) -> AppliedExplainer:
        """The explainer, built once. Raises what its class raises for wrong parameters."""
        from xaibench.evaluation.apply import AppliedExplainer

        return AppliedExplainer(self.name, self.parameters)

    def passes_in_budget(self, shape: tuple[int, ...]) -> int:
        """Return the number of passes for an image of a shape within the budget; 0 without a budget or if unknown.

        Raises:
            ValueError: If the budget is too small.
        """
        return _passes_in_budget(self, shape) if "budget" in self.parameters else 0

    def declared_passes(self, shape: tuple[int, ...]) -> int:
        """Return the number of passes for an image of a shape; 0 if unknown, or if the budget is too small."""
        return _declared_passes(self, shape)


@functools.cache
def _declared_passes(explainer: ExplainerPart, shape: tuple[int, ...]) -> int:
    import torch

    if "budget" not in explainer.parameters:
        return explainer.applied.declared_passes(torch.zeros(1, *shape)) or 0
    try:
        return _passes_in_budget(explainer, shape)
    except ValueError:
        return 0


@functools.cache
def _passes_in_budget(explainer: ExplainerPart, shape: tuple[int, ...]) -> int:
    import torch

    return explainer.applied.passes_in_budget(torch.zeros(1, *shape)) or 0


@dataclass(frozen=True)
class MetricPart(Part):
    """A metric with its parameters."""

    kind = "metric"

    @property
    def input_kind(self) -> str:
        """The inputs of the metric (``MetricInfo.kind``); without a record, maps and masks."""
        return getattr(self.info, "kind", "ground-truth")

    @property
    def needs_model(self) -> bool:
        """Whether the metric evaluates the model, by itself or through the explainer."""
        return self.input_kind in ("model", "explainer")

    @property
    def shares_model_outputs(self) -> bool:
        """Whether the model outputs do not depend on the map, so that they are computed once for all explainers."""
        return getattr(self.info, "shared_scores", None) is not None

    @property
    def is_of_use(self) -> bool:
        """Whether the masks of the metric are what a network uses, regardless of the data set."""
        return getattr(self.info, "own_truth", None) == "use"

    @property
    def skill_of(self) -> str:
        """The metric whose scores this one relates to chance; empty if it has its own scores."""
        return str(getattr(self.info, "skill_of", ""))


_CLASSES: dict[Kind, type[Part]] = {
    "dataset": DatasetPart,
    "model": ModelPart,
    "explainer": ExplainerPart,
    "metric": MetricPart,
}


@overload
def find_part(kind: Literal["dataset"], name: str, parameters: Frozen = ...) -> DatasetPart: ...
@overload
def find_part(kind: Literal["model"], name: str, parameters: Frozen = ...) -> ModelPart: ...
@overload
def find_part(kind: Literal["explainer"], name: str, parameters: Frozen = ...) -> ExplainerPart: ...
@overload
def find_part(kind: Literal["metric"], name: str, parameters: Frozen = ...) -> MetricPart: ...
@overload
def find_part(kind: Kind, name: str, parameters: Frozen = ...) -> Part: ...
def find_part(kind: Kind, name: str, parameters: Frozen = Frozen()) -> Any:  # noqa: B008 - it is immutable
    """Return a part of a suite. It is imported when one of its properties is read, and kept for the next call.

    Args:
        kind: Kind of part.
        name: Registered name, or ``"package.module:name"``.
        parameters: Keyword arguments.
    """
    return _keep_part(kind, name, parameters)


@functools.cache
def _keep_part(kind: Kind, name: str, parameters: Frozen) -> Part:
    return _CLASSES[kind](name, parameters)


#: Forget all parts, for instance because the module of one has changed.
forget_parts = _keep_part.cache_clear


def part_info(kind: Kind, name: str) -> Any:
    """Return the record of a part; None if a user's own part has none.

    Raises:
        UnknownNameError: If the part is unknown; names the nearest.
    """
    return find_part(kind, name).info


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json(one) for key, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, list | tuple) else str(value)
