"""Decompose a sequential network of convolution, ReLU, pooling and linear layers into stages of one form.

A stage is a convolution with optional ReLU and max-pooling. A linear layer is a convolution whose kernel covers its
whole input; average pooling is a convolution that keeps channels separate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xaibench.network.calls import observe_calls
from xaibench.network.explained_output import network_of

IntPair: TypeAlias = tuple[int, int]

#: The compiled loops process this many filters at a time.
FILTER_MULTIPLE = 4

#: Layers that only pass on their input in evaluation mode.
_PASS_THROUGH = (nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d)


@dataclass(frozen=True)
class ConvStage:
    """A convolution with optional ReLU and max-pooling.

    Attributes:
        weight: ``[O, C, h, w]``.
        bias: ``[O]``.
        stride: Stride of the convolution.
        padding: Zero padding of the convolution.
        in_shape: ``(C, H, W)`` of the input.
        relu: Whether ReLU follows.
        pool: Window size, stride and padding of the max-pooling; ``(1, 1), (1, 1), (0, 0)`` for none.
    """

    weight: Tensor
    bias: Tensor
    stride: IntPair
    padding: IntPair
    in_shape: tuple[int, int, int]
    relu: bool = False
    pool: tuple[IntPair, IntPair, IntPair] = ((1, 1), (1, 1), (0, 0))

    @property
    def sums_shape(self) -> tuple[int, int, int]:
        """``(O, H, W)`` of the output of the convolution."""
        kernel = self.weight.shape[2:]
        high, wide = ((self.in_shape[1 + i] + 2 * self.padding[i] - kernel[i]) // self.stride[i] + 1 for i in range(2))
        return self.weight.shape[0], high, wide

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(O, H, W)`` of the output of the stage."""
        filters, *sides = self.sums_shape
        size, stride, padding = self.pool
        high, wide = ((sides[i] + 2 * padding[i] - size[i]) // stride[i] + 1 for i in range(2))
        return filters, high, wide

    @property
    def products(self) -> int:
        """Number of multiplications of a full pass."""
        return self.weight[0].numel() * math.prod(self.sums_shape)

    def products_after(self, high: int, wide: int) -> tuple[int, int, int]:
        """Return the cost of a change of ``high × wide`` positions, and the size of the change in the output.

        The cost is an upper bound of the number of multiplications.
        """
        kernel, found, met = self.weight.shape[2:], [], self.weight.shape[0] * self.in_shape[0] * high * wide
        for i, side in enumerate((high, wide)):
            sums = min(self.sums_shape[1 + i], -(-(side + kernel[i] - 1) // self.stride[i]))
            met *= min(self.sums_shape[1 + i], -(-kernel[i] // self.stride[i]))
            size, stride, _ = self.pool
            found.append(min(self.shape[1 + i], -(-(sums + size[i] - 1) // stride[i])))
        return met, found[0], found[1]

    def filled(self, multiple: int, channels: int) -> ConvStage:
        """Return the stage with zeros added: ``channels`` input channels, and a multiple of ``multiple`` filters."""
        more = -len(self.bias) % multiple
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, channels - self.in_shape[0], 0, more))
        return replace(self, weight=weight, bias=F.pad(self.bias, (0, more)), in_shape=(channels, *self.in_shape[1:]))

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the sums and units for ``x [N, C, H, W]``."""
        sums = F.conv2d(x.reshape(-1, *self.in_shape), self.weight.to(x), self.bias.to(x), self.stride, self.padding)
        units = sums.relu() if self.relu else sums
        size, stride, padding = self.pool
        return sums, units if size == (1, 1) else F.max_pool2d(units, size, stride, padding)


def find_stages(model: nn.Module, image: Tensor) -> list[ConvStage] | None:
    """Return the stages that an image ``[1, C, H, W]`` passes through; None if the network has another structure.

    A layer is the next one if its input is the unmodified memory of the previous layer's output.
    """
    layers = None if _is_compiled(model) else _sequential_layers(network_of(model), image)
    if layers is None:
        return None
    stages: list[ConvStage] = []
    # Only a linear layer can be the first one for a volume; its slices are then rows.
    shape = (image.shape[1], image.shape[2:-1].numel(), image.shape[-1])
    for layer, given in layers:
        if isinstance(layer, nn.ReLU | nn.MaxPool2d):
            last = _append_activation(stages[-1], layer) if stages else None
            if last is None:
                return None
            stages[-1] = last
        elif not isinstance(layer, _PASS_THROUGH):
            found = _start_stage(layer, given, shape, image.dtype)
            if found is None:
                return None
            stages.append(found)
        shape = stages[-1].shape if stages else shape
    return stages or None


@dataclass
class _SequenceRecorder:
    """Record the layers of a forward pass as long as each one takes the output of the previous one."""

    memory: Tensor
    version: int
    layers: list[tuple[nn.Module, tuple[int, ...]]] = field(default_factory=list)
    broken: bool = False

    def enter(self, name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.layers.append((layer, tuple(inputs[0].shape) if self._is_next_input(*inputs) else ()))

    def leave(self, name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            self.memory, self.version = output, output._version
        else:
            self.broken = True

    def _is_next_input(self, *given: Any) -> bool:
        x = given[0] if len(given) == 1 else None
        same = (
            isinstance(x, Tensor)
            and x.data_ptr() == self.memory.data_ptr()
            and x.numel() == self.memory.numel()
            and x._version == self.version
            and x.is_contiguous()
        )
        self.broken = self.broken or not same
        return same


def _sequential_layers(network: nn.Module, image: Tensor) -> list[tuple[nn.Module, tuple[int, ...]]] | None:
    """Return the layers with the shapes of their inputs if they form a sequence; otherwise None.

    Each layer must take the output of the previous one, and nothing else may be computed.
    """
    leaves = [layer for layer in network.modules() if next(layer.children(), None) is None]
    if not all(map(_is_supported_layer, leaves)) or any(map(_is_compiled, network.modules())):
        return None
    image = image.contiguous()
    row = _SequenceRecorder(image, image._version)
    with observe_calls([("", layer) for layer in leaves], before=row.enter, after=row.leave), torch.no_grad():
        output = network(image)
    flat = isinstance(output, Tensor) and output.ndim == 2
    return None if row.broken or not flat or not row._is_next_input(output) else row.layers


def _is_supported_layer(layer: nn.Module) -> bool:
    """Return whether the layer is of a known class and does what that class does."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
    known = (nn.Conv2d, nn.Linear, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ReLU, nn.MaxPool2d, *_PASS_THROUGH)
    idle = not layer.training or not isinstance(layer, nn.Dropout | nn.Dropout2d)
    return type(layer) in known and not hooked and idle


def _is_compiled(layer: nn.Module) -> bool:
    """Return whether the module was made by ``torch.compile``; recording its layers would compile it again."""
    return hasattr(layer, "_orig_mod") or getattr(layer, "_compiled_call_impl", None) is not None


def _append_activation(stage: ConvStage, layer: nn.ReLU | nn.MaxPool2d) -> ConvStage | None:
    """Return the stage with the ReLU or max-pooling that follows it; the two commute."""
    if isinstance(layer, nn.ReLU):
        return replace(stage, relu=True)
    size, padding = _as_pair(layer.kernel_size), _as_pair(layer.padding)
    pooled = stage.pool[0] != (1, 1) or stage.pool[1] != (1, 1)
    if pooled or layer.ceil_mode or layer.return_indices or _as_pair(layer.dilation) != (1, 1):
        return None
    return replace(stage, pool=(size, _as_pair(layer.stride), padding))


def _start_stage(
    layer: nn.Module, given: tuple[int, ...], shape: tuple[int, int, int], dtype: torch.dtype
) -> ConvStage | None:
    """Return the stage that begins with ``layer``, whose input has the shape ``given``."""
    if isinstance(layer, nn.Linear):
        weight = layer.weight.detach().reshape(-1, *shape)
        return _make_stage(weight, layer.bias, (1, 1), (0, 0), shape) if len(given) == 2 else None
    if given[1:] != shape:
        return None
    if isinstance(layer, nn.Conv2d):
        known = layer.groups == 1 and _as_pair(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
        if not known or isinstance(layer.padding, str):
            return None
        return _make_stage(layer.weight.detach(), layer.bias, _as_pair(layer.stride), _as_pair(layer.padding), shape)
    window = _average_window(layer, shape[1:])
    if window is None:
        return None
    size, stride, padding = window
    apart = torch.eye(shape[0], dtype=dtype)[..., None, None].expand(-1, -1, *size)
    return _make_stage(apart / math.prod(size), None, stride, padding, shape)


def _make_stage(
    weight: Tensor, bias: Tensor | None, stride: IntPair, padding: IntPair, shape: tuple[int, int, int]
) -> ConvStage:
    return ConvStage(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach(), stride, padding, shape)


def _average_window(layer: nn.Module, sides: IntPair) -> tuple[IntPair, IntPair, IntPair] | None:
    """Return size, stride and padding of an average pooling if all its windows are equal."""
    if isinstance(layer, nn.AvgPool2d):
        padding = _as_pair(layer.padding)
        counted = layer.count_include_pad or padding == (0, 0)
        alike = counted and not layer.ceil_mode and layer.divisor_override is None
        return (_as_pair(layer.kernel_size), _as_pair(layer.stride), padding) if alike else None
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        given = layer.output_size
        wanted = given if isinstance(given, tuple) else (given, given)
        high, wide = (want or side for want, side in zip(wanted, sides, strict=True))
        size = sides[0] // high, sides[1] // wide
        return (size, size, (0, 0)) if sides[0] % high == sides[1] % wide == 0 else None
    return None


def _as_pair(value: Any) -> IntPair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
