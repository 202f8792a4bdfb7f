"""Build a model from its name; a model of the user is given as ``"package.module:name"`` and checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.checks import check_names
from xaibench.models.registered import MODELS
from xaibench.network.lending import copy_network
from xaibench.network.outputs import check_plain_logits, probe
from xaibench.registry.parameters import named_parameters
from xaibench.tensors.random_numbers import isolated_rng


def build(name: str, in_shape: tuple[int, ...], num_classes: int, *, seed: int = 0, **parameters: Any) -> nn.Module:
    """Build a model, with pretrained weights if its name refers to them, otherwise with random ones from ``seed``.

    Args:
        name: A name of :data:`MODELS`, ``"timm:<name>"``, or ``"package.module:name"`` of a class, a factory or a
            module. A module is copied.
        in_shape: ``(C, H, W)`` of the images, or ``(C, D, H, W)`` of volumes.
        num_classes: Number of logits.
        seed: Seed of the initial weights; for a pretrained network, of its new last layer. The global random state is
            neither used nor changed.
        **parameters: Parameters of the model, such as ``weights=None``, ``head="pretrained"`` or ``fold="pet"`` for
            networks pretrained on ImageNet (see :class:`xaibench.models.networks.imagenet.Torchvision`).

    Returns:
        A model on the CPU that maps images ``[N, C, H, W]`` to logits ``[N, num_classes]``. Pretrained networks are in
        evaluation mode and take pixels in [0, 1]; the small ones are in training mode.

    Raises:
        UnknownNameError: If no model has that name.
        WeightsNotFoundError: If pretrained weights are neither on disk nor downloadable; gives the file and its folder.
        UnknownParameterError: If the model has no such parameter.
        TypeError: If a model of your own cannot be built with these arguments.
        ValueError: If the model does not accept images of that shape, or its outputs do not match ``num_classes``.

    Example:
        >>> import torch
        >>> model = build("cnn", in_shape=(1, 8, 8), num_classes=2)
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape)
        (5, 2)
        >>> build("resnet18", (3, 64, 64), 2, weights=None).network.fc
        Linear(in_features=512, out_features=2, bias=True)
    """
    with isolated_rng(0):  # importing the user's module may draw random weights
        part = MODELS.resolve(name)
    shape = _check_shape(in_shape)
    known = MODELS.canonical(name) in MODELS
    with isolated_rng(seed):
        if known or MODELS.target(name) != name:
            check_parameters(part, name, parameters)
            model: nn.Module = part(shape, num_classes, **parameters)
        else:
            model = make_own(part, name, shape, num_classes, parameters)
        if not known:
            check_outputs(model, name, shape, num_classes)
    return model


def _check_shape(in_shape: object) -> tuple[int, ...]:
    sides = in_shape if isinstance(in_shape, Sequence) else ()
    if len(sides) in (3, 4) and all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        return tuple(map(int, sides))
    raise ValueError(f"in_shape={in_shape!r}: expected (C, H, W) or (C, D, H, W), whole numbers above 0.")


def drawn_seed() -> int:
    """Draw a seed for a network inside another one, from the random state that :func:`build` has seeded."""
    return int(torch.randint(2**31, ()))


def as_it_comes(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a network that is used without training.

    Args:
        name: As for :func:`build`.
        parameters: The parameters that are given.

    Returns:
        The parameters. For a pretrained network they include ``head="pretrained"``, because a new last layer would be
        random, unless ``head`` or ``fold`` is given.

    Example:
        >>> as_it_comes("resnet18", {}), as_it_comes("resnet18", {"fold": "pet"}), as_it_comes("mlp", {})
        ({'head': 'pretrained'}, {'fold': 'pet'}, {})
    """
    known = MODELS.canonical(name) in MODELS or MODELS.target(name) != name
    if not known or parameters.keys() & {"head", "fold"}:
        return dict(parameters)
    has_head = "head" in named_parameters(MODELS.resolve(name))
    return {**parameters, **({"head": "pretrained"} if has_head else {})}


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
