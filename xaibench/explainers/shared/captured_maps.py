"""Capture the output of a layer as feature maps, and the gradient with respect to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from xaibench.compute.output import UnsupportedModelError
from xaibench.explainers.shared.gradient_free import gradient_free_advice

#: Names of the activation functions that networks call as functions.
_ACTIVATIONS = (
    "relu",
    "relu_",
    "relu6",
    "leaky_relu",
    "leaky_relu_",
    "elu",
    "elu_",
    "gelu",
    "silu",
    "mish",
    "hardswish",
)


@dataclass(frozen=True)
class Layer:
    """A layer whose output can be read as feature maps.

    Attributes:
        name: Its name in ``network.named_modules()``.
        module: The layer.
        grid: Rows and columns of patches (slices first for volumes) if the output is a sequence of tokens; ``None`` if
            it is a feature map.
        channels_last: Whether the feature map is ``[N, h, w, C]``, as in Swin transformers.
        activated: Whether to take the output of the activation function that is called right after the layer
            (``F.relu``) instead of the output of the layer.
    """

    name: str
    module: nn.Module
    grid: tuple[int, ...] | None = None
    activated: bool = False
    channels_last: bool = False

    def as_maps(self, output: Tensor) -> Tensor:
        """Return the feature maps ``[N, C, h, w]`` contained in an output of the layer or in its gradient."""
        if self.grid is None:
            return output.movedim(-1, 1) if self.channels_last else output
        patches = output[:, -math.prod(self.grid) :]
        return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)

    def __str__(self) -> str:
        return f"layer {self.name!r} ({type(self.module).__name__})" + (
            " after its activation" if self.activated else ""
        )


class _Capture(TorchFunctionMode):
    """Keep the output of the last call of a layer, or of the activation function applied to it.

    Attributes:
        output: The captured tensor.
        activated: Whether it is the output of the activation function.
        runs: Number of calls of the layer.
    """

    def __init__(self, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> None:
        super().__init__()
        # The network continues with a copy, since an in-place ReLU would change the captured output.
        self._pass_on = change or (lambda output, run, activated: output.clone())
        self._pending: Tensor | None = None
        self.output = torch.empty(0)
        self.activated = False
        self.runs = 0

    def keep(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        """Forward hook of the layer."""
        self.runs += 1
        self.output, self.activated, self._pending = output, False, self._pass_on(output, self.runs, False)
        return self._pending

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        called = getattr(func, "__name__", "")
        if self._pending is None or not args or args[0] is not self._pending or called not in _ACTIVATIONS:
            return result
        self.output, self.activated, self._pending = result, True, None
        return self._pass_on(result, self.runs, True)


@contextmanager
def captured(layer: Layer, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> Iterator[_Capture]:
    """Capture the output of the layer in the forward passes of the block.

    Args:
        layer: The layer.
        change: Called with each output, the number of the call and whether the output is that of the activation
            function. It returns a new tensor that the network continues with. ``None``: a copy of the output.
    """
    capture = _Capture(change)
    handle = layer.module.register_forward_hook(capture.keep)
    try:
        with capture if layer.activated else nullcontext():
            yield capture
    finally:
        handle.remove()


def activations(model: nn.Module, layer: Layer, images: Tensor) -> Tensor:
    """Return the feature maps ``[N, C, h, w]`` of the layer, without gradients."""
    with captured(layer) as capture, torch.no_grad():
        model(images)
    return layer.as_maps(capture.output)


def activations_and_gradients(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the feature maps of the layer and the gradients of the target outputs, both ``[N, C, h, w]``.

    Raises:
        UnsupportedModelError: If the target output does not depend on the feature maps through differentiable
            operations.
    """
    output, gradient = _output_and_gradient(owner, model, layer, images, targets)
    return layer.as_maps(output.detach()), layer.as_maps(gradient)


def activations_and_curvature(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the feature maps A, the gradients g and the products H A with the Hessian, all ``[N, C, h, w]``.

    In a transformer, H A includes the class and register tokens of A.

    Raises:
        UnsupportedModelError: See :func:`activations_and_gradients`.
    """
    # The fused attentions have no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        output, gradient = _output_and_gradient(owner, model, layer, images, targets, create_graph=True)
    product: Tensor | None = None
    if gradient.requires_grad:  # not if the rest of the network is linear
        with torch.enable_grad():
            (product,) = torch.autograd.grad(gradient, output, output.detach(), allow_unused=True)
    product = torch.zeros_like(output) if product is None else product
    return layer.as_maps(output.detach()), layer.as_maps(gradient.detach()), layer.as_maps(product.detach())


def _output_and_gradient(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor, *, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the captured output of the layer with its graph, and the gradient of the target outputs."""
    with captured(layer) as capture, torch.enable_grad():
        # The parameters are frozen, so the images must require the gradient.
        outputs = model(images.detach().requires_grad_()).gather(1, targets[:, None])
        output = capture.output
        gradient: Tensor | None = None
        if output.requires_grad and outputs.requires_grad:
            (gradient,) = torch.autograd.grad(outputs.sum(), output, allow_unused=True, create_graph=create_graph)
    if gradient is None or (layer.grid and gradient.any() and not layer.as_maps(gradient).any()):
        what = "the patch tokens" if layer.grid else "the output"
        raise UnsupportedModelError(
            f"{owner}: the explained output has no gradient with respect to {what} of {layer}. Name an earlier "
            f"layer (layer='...'). {gradient_free_advice()}"
        )
    return output, gradient


def zero_feature_map(layer: Layer, run: int, rows: Tensor, channels: Tensor) -> Callable[[Tensor, int, bool], Tensor]:
    """Return a ``change`` for :func:`captured` that sets feature map ``channels[i]`` of row ``rows[i]`` to zero.

    It applies to call number ``run`` of the layer only.
    """

    def change(output: Tensor, number: int, activated: bool) -> Tensor:
        passed_on = output.clone()
        if number == run and activated == layer.activated:
            # A view, regardless of the layout of the output.
            layer.as_maps(passed_on)[rows, channels] = 0
        return passed_on

    return change
