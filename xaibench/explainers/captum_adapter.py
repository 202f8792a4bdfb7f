"""Use any attribution class or object of Captum as an explainer."""

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

from xaibench.core.checks import check_choice, check_names
from xaibench.explainers.base import Channels, reduce_channels
from xaibench.network.lending import restore_model_state
from xaibench.registry.parameters import named_parameters
from xaibench.tensors.random_numbers import seeded_globals

# Parameters of the adapter itself.
_OWN = ("channels", "seed")
# Set by `explain`, or without effect on the maps.
_NOT_PARAMETERS = ("self", "inputs", "target", "additional_forward_args", "return_convergence_delta", "kwargs")


@dataclass(frozen=True, kw_only=True)
class CaptumMethod:
    """A Captum ``Attribution`` class or object with its parameters.

    A class is built on the explained model. An object keeps the ``forward_func`` that it was built on and ignores the
    model: the output of ``forward_func`` is explained as it is, in its own precision and on its own device.

    All images go to Captum in one call, because some of its methods depend on the whole batch. Limit the memory with
    Captum's own parameters (``internal_batch_size``, ``perturbations_per_eval``). Captum's defaults apply: ``Saliency``
    takes the absolute value unless ``abs=False``.

    Attributes:
        method: The class or the object.
        constructor: Arguments of the class, without the model.
        arguments: Arguments of ``attribute``.
        channels: How the attributions of the channels become one map.
        seed: Seed of the global random generators, which Captum uses. Their state is restored afterwards.
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
        """Whether the explained output is fixed, by the ``forward_func`` of an object."""
        return not inspect.isclass(self.method)

    @property
    def has_own_function(self) -> bool:
        """Whether the model is ignored, since an object keeps its ``forward_func``."""
        return self.explains_only

    @property
    def explains(self) -> str | None:
        """The explained output: for an object that of its ``forward_func``, as it is."""
        return "logit" if self.explains_only else None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the maps ``[N, H, W]``."""
        method: Any = self.method
        x = images
        if not self.explains_only:
            method = method(model, **self.constructor)
        else:
            function = method.forward_func
            tensors = function.parameters() if isinstance(function, nn.Module) else ()
            x = images.to(next((t for t in tensors if t.is_floating_point()), torch.empty(0, dtype=torch.float32)))
        arguments = {name: _move_to_images(value, x) for name, value in self.arguments.items()}
        own = getattr(method, "forward_func", None)
        guard = restore_model_state(own) if isinstance(own, nn.Module) else nullcontext()
        with guard, seeded_globals(self.seed, x.device), torch.enable_grad():
            found = method.attribute(x.detach().clone().requires_grad_(), target=targets.to(x.device), **arguments)
        if not isinstance(found, Tensor) or found.shape[1:] != images.shape[1:]:
            received = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"{self.__name__}: attribute returned {received}, expected {list(images.shape)}.")
        return reduce_channels(found.detach().to(images), self.channels)


def adapt(method: Any, parameters: Mapping[str, Any]) -> CaptumMethod:
    """Turn a Captum class or object into an explainer.

    Args:
        method: A subclass of ``captum.attr.Attribution``, or an instance of one.
        parameters: By name: arguments of the constructor (for a class, without the model) and of ``attribute``
            (without the inputs and the target); ``channels`` and ``seed``, see :class:`CaptumMethod`.

    Returns:
        The explainer.

    Raises:
        UnknownParameterError: If a parameter is unknown; names the nearest.
        TypeError: If the method is not an ``Attribution`` of the input, or a required parameter is missing.
    """
    kind: Any = method if inspect.isclass(method) else type(method)
    if not issubclass(kind, captum.attr.Attribution):
        raise TypeError(f"{kind.__name__}: expected a captum.attr.Attribution, class or object.")
    if issubclass(kind, InternalAttribution):
        what = "neuron" if issubclass(kind, NeuronAttribution) else "layer" if LayerAttribution in kind.__mro__ else ""
        raise TypeError(
            f"{kind.__name__} attributes to a {what or 'layer or neuron'}, not to the pixels; expected an attribution "
            "of the input. Use gradcam, layercam or another CAM explainer, or wrap it in a function (model, images, "
            "targets) -> maps."
        )
    built = {} if method is not kind else _parameters(kind.__init__, skip=2)
    called = _parameters(kind.attribute, skip=1)
    own = {name: value for name, value in parameters.items() if name in _OWN}
    check_names(kind.__name__, parameters, sorted({*built, *called, *_OWN}))
    missing = [name for name, needed in (built | called).items() if needed and name not in parameters]
    if missing:
        raise TypeError(
            f"{kind.__name__} needs {', '.join(missing)}: pass {'them' if len(missing) > 1 else 'it'} by name, or "
            f"build the object, captum.attr.{kind.__name__}(...), and pass that."
        )
    return CaptumMethod(
        method=method,
        constructor={name: _to_tuple(value) for name, value in parameters.items() if name in built},
        arguments={name: _to_tuple(parameters[name]) for name in parameters if name in called and name not in built},
        **own,
    )


def _to_tuple(value: Any) -> Any:
    """Convert a list of numbers, as a suite writes it, to the tuple that Captum expects."""
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    return tuple(value) if numbers else value


def _parameters(function: Callable[..., Any], skip: int) -> dict[str, bool]:
    """Return the names of the parameters, and whether each is required."""
    found = named_parameters(function, skip=skip, without=_NOT_PARAMETERS)
    return {name: parameter.default is parameter.empty for name, parameter in found.items()}


def _move_to_images(value: Any, images: Tensor) -> Any:
    """Move an argument to the device of the images, and to their precision if it is floating."""
    if isinstance(value, Tensor):
        return value.to(images) if value.is_floating_point() else value.to(images.device)
    if isinstance(value, tuple):
        return tuple(_move_to_images(item, images) for item in value)
    return value
