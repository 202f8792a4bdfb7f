"""Any attribution class or object of Captum, as an explainer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, get_args

import captum.attr
import torch
from captum.attr import LayerAttribution, NeuronAttribution
from captum.attr._utils.attribution import InternalAttribution
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.compute.modes import unharmed
from xaibench.core.compute.random_state import seeded_globals
from xaibench.explainers.shared.interface import Channels, reduce_channels

# Set by explain itself, or not a parameter of the maps.
_NOT_PARAMETERS = ("self", "inputs", "target", "additional_forward_args", "return_convergence_delta", "kwargs")


@dataclass(frozen=True, kw_only=True)
class CaptumMethod:
    """A Captum ``Attribution`` class or object with its parameters.

    A class is built on the explained model. An object keeps the ``forward_func`` that it was built on, whatever model
    is passed: what that returns is explained as it is, in its own precision and on its own device.

    All images go to Captum in one call, because some of its methods depend on the whole batch: memory is bounded by its
    own parameters (``internal_batch_size``, ``perturbations_per_eval``). The numbers are Captum's, with its defaults:
    ``Saliency`` takes the absolute value unless ``abs=False``.

    Attributes:
        method: The class or the object.
        constructor: Arguments of the class beside the model.
        arguments: Arguments of ``attribute``.
        channels: How the attributions of the channels become one map.
        seed: Of the global generators from which Captum draws; their state is put back.
    """

    method: Any
    constructor: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    channels: Channels = "sum"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("channels", self.channels, get_args(Channels), owner=self.__name__)

    @property
    def __name__(self) -> str:
        return (self.method if inspect.isclass(self.method) else type(self.method)).__name__

    @property
    def explains_only(self) -> bool:
        """Whether what is explained is decided already: by the ``forward_func`` of an object."""
        return not inspect.isclass(self.method)

    @property
    def explains(self) -> str | None:
        """An object explains what its ``forward_func`` returns, as it is."""
        return "logit" if self.explains_only else None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``."""
        method: Any = self.method
        x = images
        if not self.explains_only:
            method = method(model, **self.constructor)
        else:
            x = images.to(_like(method.forward_func))
        arguments = {name: _moved(value, x) for name, value in self.arguments.items()}
        own = getattr(method, "forward_func", None)
        guard = unharmed(own) if isinstance(own, nn.Module) else nullcontext()
        with seeded_globals(self.seed, x.device), guard, torch.enable_grad():
            found = method.attribute(x.detach().clone().requires_grad_(), target=targets.to(x.device), **arguments)
        if not isinstance(found, Tensor) or found.shape[1:] != images.shape[1:]:
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"{self.__name__}: attribute returned {got}, expected {list(images.shape)}.")
        return reduce_channels(found.detach().to(images), self.channels)


def adapt(method: Any, parameters: Mapping[str, Any]) -> CaptumMethod:
    """A Captum class or object as an explainer.

    Args:
        method: A subclass of ``captum.attr.Attribution``, or an instance of one.
        parameters: Arguments of its constructor (of a class, beside the model) and of ``attribute`` (beside the inputs
            and the target), by name; ``channels`` and ``seed``, see :class:`CaptumMethod`.

    Raises:
        TypeError: If it is no ``Attribution`` of the input, a parameter is not known, or one is missing.
    """
    kind: Any = method if inspect.isclass(method) else type(method)
    if not issubclass(kind, captum.attr.Attribution):
        raise TypeError(f"{kind.__name__}: expected a captum.attr.Attribution, class or object.")
    if issubclass(kind, InternalAttribution):
        what = "neuron" if issubclass(kind, NeuronAttribution) else "layer" if LayerAttribution in kind.__mro__ else ""
        raise TypeError(
            f"{kind.__name__} attributes to a {what or 'layer or neuron'}, not to the pixels, and needs to be "
            "told which. Explainers by layer here are gradcam, layercam and their relatives; anything else can be "
            "wrapped in a function (model, images, targets) -> maps."
        )
    built = {} if method is not kind else _parameters(kind.__init__, skip=2)
    called = _parameters(kind.attribute, skip=1)
    own = {name: value for name, value in parameters.items() if name in ("channels", "seed")}
    for name in parameters:
        if name not in built and name not in called and name not in own:
            known = ", ".join(sorted({*built, *called, "channels", "seed"}))
            raise TypeError(f"{kind.__name__} has no parameter {name!r}. Known: {known}.")
    missing = [name for name, needed in (built | called).items() if needed and name not in parameters]
    if missing:
        raise TypeError(
            f"{kind.__name__} needs {', '.join(missing)}: pass {'them' if len(missing) > 1 else 'it'} by name, or "
            f"build the object, captum.attr.{kind.__name__}(...), and pass that."
        )
    return CaptumMethod(
        method=method,
        constructor={name: _tuples(value) for name, value in parameters.items() if name in built},
        arguments={name: _tuples(value) for name, value in parameters.items() if name in called and name not in built},
        **own,
    )


def _tuples(value: Any) -> Any:
    """Lists of numbers, which are all that a suite can write, as the tuples that Captum asks for."""
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    return tuple(value) if numbers else value


def _parameters(function: Callable[..., Any], skip: int) -> dict[str, bool]:
    """Name -> whether it must be given."""
    found = list(inspect.signature(function).parameters.values())[skip:]
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in found
        if parameter.name not in _NOT_PARAMETERS
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _like(function: Any) -> Tensor:
    """A tensor where and as a model's weights are; of a plain function: on the CPU, in single precision."""
    tensors = function.parameters() if isinstance(function, nn.Module) else iter(())
    return next((t for t in tensors if t.is_floating_point()), torch.empty(0, dtype=torch.float32))


def _moved(value: Any, images: Tensor) -> Any:
    """An argument where the images are, and in their precision if it is floating."""
    if isinstance(value, Tensor):
        return value.to(images) if value.is_floating_point() else value.to(images.device)
    if isinstance(value, tuple):
        return tuple(_moved(item, images) for item in value)
    return value
