"""Record every call of every layer in a forward pass, and look up the names of layers."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from torch import nn

from xaibench.compute.output import UnsupportedModelError, network_of

#: Convolutions of images and of volumes.
CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)


def layer_name(owner: str, model: nn.Module, layer: nn.Module) -> str:
    """Return the name of a module in ``named_modules()`` of the network.

    Raises:
        ValueError: If the module does not belong to the network.
    """
    for name, module in network_of(model).named_modules():
        if module is layer:
            return str(name)
    network = type(network_of(model)).__name__
    raise ValueError(
        f"{owner}: its layer is a {type(layer).__name__} that does not belong to the model {network}, expected "
        "one of its modules. Take it from this model, or give its name (model.named_modules())."
    )


def with_layer_name(part: object, owner: str, model: nn.Module) -> Any:
    """Return the explainer with its ``layer`` given by name if it was given as a module.

    A copy of the network has other modules, but the same names.
    """
    layer = getattr(part, "layer", None)
    if not isinstance(layer, nn.Module) or not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, layer=layer_name(owner, model, layer))


def check_sees_whole_image(owner: str, model: nn.Module) -> None:
    """Refuse a network that cuts the image into parts before its first layer (attribute ``sees_in_parts``).

    Raises:
        UnsupportedModelError: If it does.
    """
    if getattr(network_of(model), "sees_in_parts", False):
        raise UnsupportedModelError(
            f"{owner}: each layer of {type(network_of(model)).__name__} sees only a part of the image, so none has a "
            "feature map of the whole image. Explain the network of one part on that part."
        )
