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
        runs: How often the layer has run.
    """

    def __init__(self, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> None:
        super().__init__()
        # What follows works on a copy, since an in-place ReLU would change the output that is held.
        self._handed_on = change or (lambda output, run, activated: output.clone())
        self._awaited: Tensor | None = None
        self.output = torch.empty(0)
        self.activated = False
        self.runs = 0

    def keep(self, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        """A hook of the layer."""
        self.runs += 1
        self.output, self.activated, self._awaited = output, False, self._handed_on(output, self.runs, False)
        return self._awaited

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        called = getattr(func, "__name__", "")
        if self._awaited is None or not args or args[0] is not self._awaited or called not in _ACTIVATIONS:
            return result
        self.output, self.activated, self._awaited = result, True, None
        return self._handed_on(result, self.runs, True)


@contextmanager
def captured(layer: Layer, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> Iterator[_Capture]:
    """Hold what passes through the layer in the passes of the block.

    Args:
        layer: The layer.
        change: What is handed on instead of an output, given that, the number of the layer's run and whether the output
            is the activation's; a new tensor. ``None``: a copy.
    """
    capture = _Capture(change)
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


def without_map(layer: Layer, run: int, rows: Tensor, channels: Tensor) -> Callable[[Tensor, int, bool], Tensor]:
    """A change for :func:`captured`: in the run of that number, feature map ``channels[i]`` of ``rows[i]`` is zero."""

    def change(output: Tensor, number: int, activated: bool) -> Tensor:
        handed_on = output.clone()
        if number == run and activated == layer.activated:
            # A view, whatever the layout of the output.
            layer.as_maps(handed_on)[rows, channels] = 0
        return handed_on

    return change
