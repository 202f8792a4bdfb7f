"""Every run of every layer in a forward pass, and what the layers of a network are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.interface import UnsupportedModelError


@dataclass(frozen=True)
class Run:
    """One run of a layer in a forward pass.

    Attributes:
        name: As in ``network.named_modules()``.
        module: The layer.
        inputs: Its positional arguments.
        output: What it returned.
    """

    name: str
    module: nn.Module
    inputs: tuple[object, ...]
    output: object


@contextmanager
def recording(model: nn.Module) -> Iterator[list[Run]]:
    """Hold every run of a layer or container in the block, in the order in which they finish."""
    runs: list[Run] = []
    handles = [
        module.register_forward_hook(lambda m, inputs, out, name=name: runs.append(Run(name, m, inputs, out)))
        for name, module in network_of(model).named_modules()
    ]
    try:
        yield runs
    finally:
        for handle in handles:
            handle.remove()


def run_layers(model: nn.Module, images: Tensor) -> list[Run]:
    """Every layer and container, in the order in which they finish for the first image, as often as they run."""
    with recording(model) as runs, torch.no_grad():
        model(images[:1])
    return runs


def layer_name(owner: str, model: nn.Module, layer: nn.Module) -> str:
    """What a module of the network is called in ``named_modules()``.

    Raises:
        ValueError: If it is none of the network's.
    """
    for name, module in network_of(model).named_modules():
        if module is layer:
            return str(name)
    network = type(network_of(model)).__name__
    raise ValueError(
        f"{owner}: its layer is a {type(layer).__name__} that the model {network} does not hold, expected "
        "one of its own modules. Take it from this model, or give its name (model.named_modules())."
    )


def with_layer_named(part: object, owner: str, model: nn.Module) -> Any:
    """The explainer with its ``layer`` by name, where that is a module: a copy of the network has other modules."""
    layer = getattr(part, "layer", None)
    if not isinstance(layer, nn.Module) or not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, layer=layer_name(owner, model, layer))


def check_sees_whole(owner: str, model: nn.Module) -> None:
    """Refuse a network that cuts the image up before its first layer (its attribute ``sees_in_parts``).

    Raises:
        UnsupportedModelError: If it does.
    """
    if getattr(network_of(model), "sees_in_parts", False):
        raise UnsupportedModelError(
            f"{owner}: each layer of {type(network_of(model)).__name__} sees a part of the image, so that none has a "
            "feature map of it. Explain the network of one part, on that part."
        )
