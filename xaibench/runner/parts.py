"""The components of a suite: what the runner needs to know of them before it runs anything."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xaibench.registry.component import Component, registry
from xaibench.registry.parameters import Frozen

if TYPE_CHECKING:
    from torch import nn

    from xaibench.evaluation.apply import AppliedExplainer

#: Assumed number of samples of a data set that does not state it.
_UNKNOWN_SAMPLES = 10_000


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
class DatasetPart(Component):
    """A data set with its parameters."""

    kind = "dataset"

    @property
    def has_n_samples(self) -> bool:
        """Whether the number of samples is a parameter, so that a small form can be made."""
        return "n_samples" in self.accepted

    @property
    def revision_of_files(self) -> str:
        """The revision, with a hash of the photographs if the set is generated from a folder of them."""
        from xaibench.benchmarks.xai_tris.photo_backgrounds import hash_photographs

        folder = expand_variables(self.parameters).get("images_dir")
        return self.revision if folder is None else f"{self.revision}.{hash_photographs(folder)}"

    @property
    def is_generated(self) -> bool:
        """Whether the set is generated, not read from disk."""
        return self.has_n_samples and not self.info.how_to_get

    @functools.cached_property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)``, or ``(C, D, H, W)`` of volumes, as far as it is known before the set is loaded."""
        shape: tuple[int, ...] = self.info.image_shape
        size, channels = self.parameters.get("size"), self.parameters.get("channels")
        channels = channels if isinstance(channels, int) else shape[0]
        return (channels, size, size) if isinstance(size, int) else (channels, *shape[1:])

    @functools.cached_property
    def class_count(self) -> int | None:
        """Number of classes; None if it is known only after the set is loaded."""
        from xaibench.data.annotated import AnnotatedSet
        from xaibench.data.disk.splits import choose_classes

        if not isinstance(self.target, AnnotatedSet):
            return len(self.info.classes) if self.is_described else None
        wanted, part = self.parameters.get("classes"), self.target
        return len(choose_classes(wanted, self.info.classes, aliases=part.aliases, default=part.default_classes))

    def split_sizes(self, seed: int) -> tuple[int, int, int]:
        """Return the number of training, validation and test samples, as far as it is known beforehand.

        A set on disk is opened, which reads its lists but no image. If it cannot be opened, the published size counts.
        """
        return _split_sizes(self, seed)


@functools.cache
def _split_sizes(part: DatasetPart, seed: int) -> tuple[int, int, int]:
    parameters = part.parameters
    if sizes := getattr(part.target, "sizes", None):
        return sizes(parameters)  # type: ignore[no-any-return]
    if not part.has_n_samples and (opened := _opened_sizes(part, seed)) is not None:
        return opened
    published = sum(count for _, count in part.info.published)
    count = int(parameters.get("n_samples") or published or _UNKNOWN_SAMPLES)
    shares = parameters.get("split")
    if shares is None and part.is_generated:
        shares = _default_shares(part.use)
    train, val, test = shares or (0.8, 0.1, 0.1)
    return round(train * count), round(val * count), round(test * count)


def _opened_sizes(part: DatasetPart, seed: int) -> tuple[int, int, int] | None:
    """Return the sizes of the opened set; None if it cannot be opened, which its own job will report."""
    from xaibench.data import load

    try:
        opened = load(part.use, seed=seed, **expand_variables(part.parameters))
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
    from xaibench.models import build
    from xaibench.network.outputs import ImageShapeError

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
class ModelPart(Component):
    """A model with its parameters."""

    kind = "model"

    @property
    def is_blind(self) -> bool:
        """Whether the model reads only some pixels, which are known without its weights (``visible``)."""
        return callable(getattr(self.target, "visible", None))

    def trained_by(self, method: str) -> ModelPart:
        """Return the model with the parameters for a training method: without training it keeps its last layer."""
        from xaibench.models.building import as_it_comes

        return ModelPart.of(self.use, Frozen(as_it_comes(self.use, self.parameters))) if method == "none" else self

    @functools.cached_property
    def source(self) -> ModelPart:
        """The network that this model copies for the cells of a mosaic; otherwise the model itself."""
        if copied := getattr(self.target, "copied", ""):
            return ModelPart.of(copied, Frozen(self.parameters.get("network", {}))).trained_by("none")
        return self

    def facts(self, dataset: DatasetPart) -> NetworkFacts:
        """Build the untrained network for the images of a data set, and return its properties.

        Raises:
            TypeError: If the model has no such parameter.
            ValueError: If a registered model does not accept such images, or has other classes.
        """
        if dataset.class_count is None:
            return NetworkFacts(0, True)  # built in its job
        return _network_facts(self.source, dataset.image_shape, dataset.class_count)


@functools.cache
def _network_facts(model: ModelPart, image_shape: tuple[int, ...], class_count: int) -> NetworkFacts:
    import torch
    from torch import nn

    # The weights do not matter here, and may have to be downloaded.
    untrained = {"weights": None} if "weights" in model.accepted else {}
    try:
        network = build_network(model.use, image_shape, class_count, **{**model.parameters, **untrained})
    except ValueError:
        if registry("model").target(model.use) != model.use:
            raise
        return NetworkFacts(0, True)  # the user's own: its job reports the error, and the other jobs go on
    has_convolution = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())
    return NetworkFacts(sum(map(torch.numel, network.parameters())), has_convolution)


@dataclass(frozen=True)
class ExplainerPart(Component):
    """An explainer with its parameters."""

    kind = "explainer"

    @property
    def is_fitted(self) -> bool:
        """Whether the explainer is fitted to the training samples first."""
        return hasattr(self.target, "fit")

    @functools.cached_property
    def applied(self) -> AppliedExplainer:
        """The explainer, built once. Raises what its class raises for wrong parameters."""
        from xaibench.evaluation.apply import AppliedExplainer

        return AppliedExplainer(self.use, self.parameters)

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
class MetricPart(Component):
    """A metric with its parameters."""

    kind = "metric"

    @property
    def needs_model(self) -> bool:
        """Whether the metric evaluates the model, by itself or through the explainer."""
        return self.info.kind in ("model", "explainer")
