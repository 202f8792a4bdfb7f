"""A model of the user's own, as ``"package.module:name"``: how it is made, and what it must return."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from xaibench.core.compute.model_probe import probe
from xaibench.core.messages import unknown

_GIVEN = ("in_shape", "num_classes")


def make_own(
    part: object, name: str, in_shape: tuple[int, int, int], num_classes: int, parameters: Mapping[str, Any]
) -> nn.Module:
    """The model behind a name: a copy of a module, or what a class or factory makes.

    A factory gets ``in_shape`` and ``num_classes`` by these names where it has them, as its first two arguments where
    it needs two, and else is called without.

    Raises:
        TypeError: If it is none of these, cannot be called so, or makes no ``torch.nn.Module``.
    """
    if isinstance(part, nn.Module):
        if parameters:
            raise TypeError(f"{name} is a module already; it takes no parameters, got {', '.join(parameters)}.")
        return copy.deepcopy(part)
    if not callable(part):
        raise TypeError(f"{name}: got {type(part).__name__}, expected a torch.nn.Module, or what makes one.")
    model = _call(part, name, {"in_shape": in_shape, "num_classes": num_classes}, parameters)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name} made {type(model).__name__}, expected a torch.nn.Module that returns logits [N, K].")
    return model


def _call(part: Callable[..., Any], name: str, given: dict[str, Any], parameters: Mapping[str, Any]) -> Any:
    signature = inspect.signature(part)
    named = {key: given[key] for key in _GIVEN if key in signature.parameters and key not in parameters}
    positional = () if named or not _needs_two(signature) else tuple(given.values())
    try:
        signature.bind(*positional, **named, **parameters)
    except TypeError as error:
        raise TypeError(
            f"{name}{signature} cannot be called ({error}). Expected a factory (in_shape, num_classes) -> "
            "torch.nn.Module; what else it needs is given as parameters of the model."
        ) from error
    return part(*positional, **named, **parameters)


def _needs_two(signature: inspect.Signature) -> bool:
    values = signature.parameters.values()
    required = [p for p in values if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(required) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in values)


def check_parameters(part: Callable[..., Any], name: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that a registered model does not have.

    Raises:
        TypeError: Names the nearest, and all that there are.
    """
    known = [key for key in inspect.signature(part).parameters if key not in _GIVEN]
    for key in parameters:
        if key not in known:
            raise TypeError(unknown(f"Model {name!r} has no parameter", key, sorted(known)))


def check_outputs(model: nn.Module, name: str, in_shape: tuple[int, int, int], num_classes: int) -> None:
    """Try the model on two random images, in evaluation mode.

    Raises:
        ValueError: If it does not take them, or returns anything else than finite logits ``[2, num_classes]``.
    """
    probe(model, torch.rand(2, *in_shape), name=name, what="random images in [0, 1]", classes=num_classes)
