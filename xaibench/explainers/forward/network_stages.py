"""A network of convolution, ReLU, pooling and linear layers one after another, as stages of one form.

A stage is a convolution, then ReLU or not, then max-pooling or not. A linear layer is a convolution whose kernel is as
large as what it gets, average pooling one that keeps channels apart, so that there is one kind only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xaibench.explainers.shared.explained_output import network_of

Pair: TypeAlias = tuple[int, int]

#: Filters that the compiled loops take at a time.
LANES = 4

#: Layers that only hand on what they get, in evaluation mode.
_IDLE = (nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d)


@dataclass(frozen=True)
class Stage:
    """A convolution, ReLU and max-pooling.

    Attributes:
        weight: ``[O, C, h, w]``.
        bias: ``[O]``.
        stride: Of the convolution.
        padding: Of the convolution, with zeros.
        in_shape: ``(C, H, W)`` of what it gets.
        relu: Whether negative sums become 0.
        pool: Side, stride and padding of the max-pooling's windows; none: ``(1, 1), (1, 1), (0, 0)``.
    """

    weight: Tensor
    bias: Tensor
    stride: Pair
    padding: Pair
    in_shape: tuple[int, int, int]
    relu: bool = False
    pool: tuple[Pair, Pair, Pair] = ((1, 1), (1, 1), (0, 0))

    @property
    def sums_shape(self) -> tuple[int, int, int]:
        """``(O, H, W)`` of what the convolution returns."""
        kernel = self.weight.shape[2:]
        high, wide = ((self.in_shape[1 + i] + 2 * self.padding[i] - kernel[i]) // self.stride[i] + 1 for i in range(2))
        return self.weight.shape[0], high, wide

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(O, H, W)`` of what the stage returns."""
        filters, *sides = self.sums_shape
        size, stride, padding = self.pool
        high, wide = ((sides[i] + 2 * padding[i] - size[i]) // stride[i] + 1 for i in range(2))
        return filters, high, wide

    @property
    def products(self) -> int:
        """Multiplications of a whole pass."""
        return self.weight[0].numel() * math.prod(self.sums_shape)

    def products_after(self, high: int, wide: int) -> tuple[int, int, int]:
        """Multiplications, at most, where a field of ``high × wide`` positions changed; and the field after it."""
        kernel, found, met = self.weight.shape[2:], [], self.weight.shape[0] * self.in_shape[0] * high * wide
        for i, side in enumerate((high, wide)):
            sums = min(self.sums_shape[1 + i], -(-(side + kernel[i] - 1) // self.stride[i]))
            met *= min(self.sums_shape[1 + i], -(-kernel[i] // self.stride[i]))
            size, stride, _ = self.pool
            found.append(min(self.shape[1 + i], -(-(sums + size[i] - 1) // stride[i])))
        return met, found[0], found[1]

    def filled(self, multiple: int, channels: int) -> Stage:
        """The same with so many channels coming in, and a multiple of filters; those added are of zeros."""
        more = -len(self.bias) % multiple
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, channels - self.in_shape[0], 0, more))
        return replace(self, weight=weight, bias=F.pad(self.bias, (0, more)), in_shape=(channels, *self.in_shape[1:]))

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums and units for ``x [N, C, H, W]``."""
        sums = F.conv2d(x.reshape(-1, *self.in_shape), self.weight.to(x), self.bias.to(x), self.stride, self.padding)
        units = sums.relu() if self.relu else sums
        size, stride, padding = self.pool
        return sums, units if size == (1, 1) else F.max_pool2d(units, size, stride, padding)


def stages_of(model: nn.Module, image: Tensor) -> list[Stage] | None:
    """The stages that an image ``[1, C, H, W]`` goes through; None if the network is anything else.

    A layer counts as the next one if it gets the very memory that the last one wrote, and nobody wrote to it since.
    """
    layers = _in_a_row(network_of(model), image)
    if layers is None:
        return None
    stages: list[Stage] = []
    shape = (image.shape[1], image.shape[2], image.shape[3])
    for layer, given in layers:
        if isinstance(layer, nn.ReLU | nn.MaxPool2d):
            last = _gated(stages[-1], layer) if stages else None
            if last is None:
                return None
            stages[-1] = last
        elif not isinstance(layer, _IDLE):
            found = _begun(layer, given, shape, image.dtype)
            if found is None:
                return None
            stages.append(found)
        shape = stages[-1].shape if stages else shape
    return stages or None


@dataclass
class _Row:
    """What was seen of a forward pass: the layers one after another, as long as that is what they are."""

    memory: Tensor
    version: int
    layers: list[tuple[nn.Module, tuple[int, ...]]] = field(default_factory=list)
    broken: bool = False

    def enter(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.layers.append((layer, tuple(inputs[0].shape) if self._goes_on(*inputs) else ()))

    def leave(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            self.memory, self.version = output, output._version
        else:
            self.broken = True

    def _goes_on(self, *given: Any) -> bool:
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


def _in_a_row(network: nn.Module, image: Tensor) -> list[tuple[nn.Module, tuple[int, ...]]] | None:
    """The layers and the shapes of what they get, if each gets what the one before returned, and nothing else runs."""
    leaves = [layer for layer in network.modules() if next(layer.children(), None) is None]
    if not all(map(_plain, leaves)) or any(map(_compiled, network.modules())):
        return None
    image = image.contiguous()
    row = _Row(image, image._version)
    handles = [handle for layer in leaves for handle in (
        layer.register_forward_pre_hook(row.enter), layer.register_forward_hook(row.leave))]  # fmt: skip
    try:
        with torch.no_grad():
            output = network(image)
    finally:
        for handle in handles:
            handle.remove()
    return None if row.broken or not isinstance(output, Tensor) or not row._goes_on(output) else row.layers


def _plain(layer: nn.Module) -> bool:
    """Whether the layer is one of those known, and does what its class does."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
    known = (nn.Conv2d, nn.Linear, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ReLU, nn.MaxPool2d, *_IDLE)
    idle = not layer.training or not isinstance(layer, nn.Dropout | nn.Dropout2d)
    return type(layer) in known and not hooked and idle


def _compiled(layer: nn.Module) -> bool:
    """Whether ``torch.compile`` made it: looking into what it runs would have it compiled again."""
    return hasattr(layer, "_orig_mod") or getattr(layer, "_compiled_call_impl", None) is not None


def _gated(stage: Stage, layer: nn.ReLU | nn.MaxPool2d) -> Stage | None:
    """The stage with what follows it; ReLU and the maximum may change places."""
    if isinstance(layer, nn.ReLU):
        return replace(stage, relu=True)
    size, padding = _pair(layer.kernel_size), _pair(layer.padding)
    pooled = stage.pool[0] != (1, 1) or stage.pool[1] != (1, 1)
    if pooled or layer.ceil_mode or layer.return_indices or _pair(layer.dilation) != (1, 1):
        return None
    return replace(stage, pool=(size, _pair(layer.stride), padding))


def _begun(layer: nn.Module, given: tuple[int, ...], shape: tuple[int, int, int], dtype: torch.dtype) -> Stage | None:
    """The stage that begins with ``layer``, which is ``given`` a shape where the stage before returned another."""
    if isinstance(layer, nn.Linear):
        weight = layer.weight.detach().reshape(-1, *shape)
        return _stage(weight, layer.bias, (1, 1), (0, 0), shape) if len(given) == 2 else None
    if given[1:] != shape:
        return None
    if isinstance(layer, nn.Conv2d):
        known = layer.groups == 1 and _pair(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
        if not known or isinstance(layer.padding, str):
            return None
        return _stage(layer.weight.detach(), layer.bias, _pair(layer.stride), _pair(layer.padding), shape)
    window = _averaged(layer, shape[1:])
    if window is None:
        return None
    size, stride, padding = window
    apart = torch.eye(shape[0], dtype=dtype)[..., None, None].expand(-1, -1, *size)
    return _stage(apart / math.prod(size), None, stride, padding, shape)


def _stage(weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, shape: tuple[int, int, int]) -> Stage:
    return Stage(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach(), stride, padding, shape)


def _averaged(layer: nn.Module, sides: Pair) -> tuple[Pair, Pair, Pair] | None:
    """Side, stride and padding of an average pooling whose windows are all alike."""
    if isinstance(layer, nn.AvgPool2d):
        padding = _pair(layer.padding)
        counted = layer.count_include_pad or padding == (0, 0)
        alike = counted and not layer.ceil_mode and layer.divisor_override is None
        return (_pair(layer.kernel_size), _pair(layer.stride), padding) if alike else None
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        given = layer.output_size
        wanted = given if isinstance(given, tuple) else (given, given)
        high, wide = (want or side for want, side in zip(wanted, sides, strict=True))
        size = sides[0] // high, sides[1] // wide
        return (size, size, (0, 0)) if sides[0] % high == sides[1] % wide == 0 else None
    return None


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
