"""What the runner asks of the registered parts (and of a user's own) before it runs anything."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Mapping
from typing import Any, Literal

from xaibench.core.registry import Registry, import_target

Kind = Literal["dataset", "model", "explainer", "metric"]

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


@functools.cache
def has_convolution(model: str, dataset: str) -> bool:
    """Whether the network has a convolution, which some explainers need."""
    from torch import nn

    from xaibench.models import build

    info = part_info("dataset", dataset)
    # Weights decide nothing here, and may have to be downloaded.
    untrained: dict[str, Any] = {"weights": None} if "weights" in _taken(registry("model").resolve(model)) else {}
    try:
        network = build(model, info.image_shape, len(info.classes), **untrained)
    except ValueError:
        return True  # the job that needs the network says what is wrong with it, and the others go on
    return any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())


def _taken(part: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(part).parameters
    except (TypeError, ValueError):  # what is no function has none
        return {}
