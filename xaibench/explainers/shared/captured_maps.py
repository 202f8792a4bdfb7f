"""What passes through a layer in a forward pass, seen as feature maps, and the gradient by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xaibench.explainers.shared.interface import UnsupportedModelError

#: Activations that networks call as functions, as torch names them.
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
    """A layer whose output can be seen as feature maps.

    Attributes:
        name: As in ``network.named_modules()``.
        module: The layer.
        grid: Rows and columns of patches when the output is tokens; ``None`` when it is a feature map.
        channels_last: Whether a feature map is ``[N, h, w, C]``, as in Swin transformers.
        activated: Whether not the output is meant, but what a function makes of it right after (``F.relu``).
    """

    name: str
    module: nn.Module
    grid: tuple[int, int] | None = None
    activated: bool = False
    channels_last: bool = False

    def as_maps(self, output: Tensor) -> Tensor:
        """The feature maps ``[N, C, h, w]`` in an output of the layer, or in its gradient."""
        if self.grid is None:
            return output.permute(0, 3, 1, 2) if self.channels_last else output
        patches = output[:, -math.prod(self.grid) :]
        return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)

    def __str__(self) -> str:
        return f"layer {self.name!r} ({type(self.module).__name__})" + (
            " after its activation" if self.activated else ""
        )


class _Capture(TorchFunctionMode):
    """Holds the output of a layer's last run, or what its activation, called as a function, makes of that.

    Attributes:
        output: What is held.
        activated: Whether it is the activation's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._awaited: Tensor | None = None
        self.output = torch.empty(0)
        self.activated = False

    def keep(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        """A hook: what follows works on a copy, since an in-place ReLU would change the output that is held."""
        self.output, self.activated, self._awaited = output, False, output.clone()
        return self._awaited

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        called = getattr(func, "__name__", "")
        if self._awaited is None or not args or args[0] is not self._awaited or called not in _ACTIVATIONS:
            return result
        self.output, self.activated, self._awaited = result, True, None
        return result.clone()


@contextmanager
def captured(layer: Layer) -> Iterator[_Capture]:
    """Hold what passes through the layer in the passes of the block."""
    capture = _Capture()
    handle = layer.module.register_forward_hook(capture.keep)
    try:
        with capture if layer.activated else nullcontext():
            yield capture
    finally:
        handle.remove()


def activations(model: nn.Module, layer: Layer, images: Tensor) -> Tensor:
    """The feature maps ``[N, C, h, w]`` of the layer, without gradients."""
    with captured(layer) as capture, torch.no_grad():
        model(images)
    return layer.as_maps(capture.output)


def activations_and_gradients(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """The feature maps of the layer and the gradients of each sample's target output by them, both ``[N, C, h, w]``.

    Raises:
        UnsupportedModelError: If the target output does not depend on the feature maps through differentiable
            operations.
    """
    with captured(layer) as capture, torch.enable_grad():
        # With the parameters frozen, the images are what makes the graph.
        outputs = model(images.detach().requires_grad_()).gather(1, targets[:, None])
        output = capture.output
        gradient: Tensor | None = None
        if output.requires_grad and outputs.requires_grad:
            (gradient,) = torch.autograd.grad(outputs.sum(), output, allow_unused=True)
    if gradient is None or (layer.grid and gradient.any() and not layer.as_maps(gradient).any()):
        what = "the patch tokens" if layer.grid else "the output"
        raise UnsupportedModelError(
            f"{owner}: the explained output has no gradient by {what} of {layer}. Name an earlier layer (layer='...'), "
            "or use an explainer that needs no gradient (rise, occlusion, scorecam)."
        )
    return layer.as_maps(output.detach()), layer.as_maps(gradient)
