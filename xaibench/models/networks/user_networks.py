"""Build and check models of the user, given as ``"package.module:name"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.component.parameters import named_parameters
from xaibench.core.checks import check_names
from xaibench.network.lending import copy_network
from xaibench.network.outputs import check_plain_logits, probe

_GIVEN = ("in_shape", "num_classes")


def make_own(
    part: object, name: str, in_shape: tuple[int, ...], num_classes: int, parameters: Mapping[str, Any]
) -> nn.Module:
    """Build the user's model: a copy of a module, or the module that a class or factory returns.

    ``in_shape`` and ``num_classes`` are passed by name if the factory has parameters of these names, as the first two
    arguments if it has at least two required ones, and are left out otherwise.

    Raises:
        TypeError: If the part is neither a module nor a callable, cannot be called like this, or does not return a
            ``torch.nn.Module``.
    """
    if isinstance(part, nn.Module):
        if parameters:
            named = ", ".join(parameters)
            raise TypeError(f"{name} is a finished nn.Module, which takes no arguments; got {named}. Leave them out.")
        return copy_network(part)
    if not callable(part):
        raise TypeError(f"{name}: got {type(part).__name__}, expected a torch.nn.Module, or a class or factory of one.")
    model = _call_factory(part, name, {"in_shape": in_shape, "num_classes": num_classes}, parameters)
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(f"{name} returned {kind}, expected a torch.nn.Module that returns logits [N, K].")
    return model


def _call_factory(
    part: Callable[..., Any], name: str, shape_arguments: dict[str, Any], parameters: Mapping[str, Any]
) -> Any:
    signature = inspect.signature(part)
    named = {key: shape_arguments[key] for key in _GIVEN if key in signature.parameters and key not in parameters}
    positional = () if named or not _requires_two_arguments(signature) else tuple(shape_arguments.values())
    try:
        signature.bind(*positional, **named, **parameters)
    except TypeError as error:
        raise TypeError(
            f"{name}{signature} cannot be called ({error}). Expected a factory (in_shape, num_classes) -> "
            "torch.nn.Module; give its other arguments as parameters of the model."
        ) from error
    try:
        return part(*positional, **named, **parameters)
    except (ValueError, TypeError, ImportError, OSError):
        raise  # usually about an argument, a package or a file
    except Exception as error:
        raise ValueError(f"{name} raised {type(error).__name__}: {error}. Correct the function.") from error


def _requires_two_arguments(signature: inspect.Signature) -> bool:
    values = signature.parameters.values()
    required = [p for p in values if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(required) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in values)


def check_parameters(part: Callable[..., Any], name: str, parameters: Mapping[str, Any]) -> None:
    """Check the names of the parameters of a registered model.

    Raises:
        UnknownParameterError: If the model has no such parameter; names the nearest, and lists all.
    """
    check_names(f"Model {name!r}", parameters, sorted(named_parameters(part, without=_GIVEN)))


def check_outputs(model: nn.Module, name: str, in_shape: tuple[int, ...], num_classes: int) -> None:
    """Evaluate the model on two random images, in evaluation mode.

    Raises:
        ValueError: If it does not accept them, or does not return finite logits ``[2, num_classes]``.
    """
    images = torch.rand(2, *in_shape)
    what = "random images in [0, 1]"
    probe(model, images, name=name, what=what, classes=num_classes, select=check_plain_logits)


class Wrapped(nn.Module):
    """A network that is called through a function, for networks with further inputs or with other outputs.

    Args:
        network: Any module; its layers keep their names, after ``"network."``.
        function: ``(network, images) -> outputs``. It gets the network as an argument, so that it also works with
            copies of it, on another device or in another precision.

    Example:
        >>> import torch
        >>> bilinear = torch.nn.Bilinear(4, 2, 3)
        >>> model = Wrapped(bilinear, lambda network, images: network(images.flatten(1), torch.ones(len(images), 2)))
        >>> model(torch.zeros(5, 1, 2, 2)).shape
        torch.Size([5, 3])
    """

    def __init__(self, network: nn.Module, function: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, images: Tensor) -> Any:
        """Call the function.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            What the function returns.
        """
        return self.function(self.network, images)
