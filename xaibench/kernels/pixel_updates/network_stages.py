"""Decompose a sequential network of convolution, ReLU, pooling and linear layers into stages of one form.

A stage is a convolution with optional ReLU and max-pooling. A linear layer is a convolution whose kernel covers its
whole input; average pooling is a convolution that keeps channels separate. For the compiled loops, stages are stored
as tables: where the change of each value of the image and each unit goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
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


FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StageTables:
    """The tables of a network for :func:`xaibench.kernels.pixel_updates.loops.run_walks`.

    Attributes:
        stages: ``[L, 14]``: input and output channels, step between the weights of consecutive channels, first run,
            runs per position, first entry of ``reach``, its entries per position, first entry of ``windows``, positions
            per window, whether there is a ReLU, first sum, first input unit, first output unit, windows of earlier
            stages.
        runs: ``[., 3]``: the first sum, the first weight and the length of a run. Filters at neighboring positions are
            joined, so that the loop over them is long. Length 0 is padding.
        reach: The windows that a position affects, padded with -1.
        windows: The positions in each pooling window; some occur twice at borders.
        weights: ``[h, C, w, O]`` of each stage, with the columns of the kernel reversed.
    """

    stages: IntArray
    runs: IntArray
    reach: IntArray
    windows: IntArray
    weights: FloatArray

    @staticmethod
    def of(stages: Sequence[ConvStage]) -> StageTables:
        """Create the tables of some stages."""
        parts: list[tuple[IntArray, ...]] = []
        weights: list[FloatArray] = []
        seen = np.zeros(7, np.int64)  # runs, entries of reach and windows, sums, units, windows, weights
        for stage in stages:
            filters, channels, _, wide = stage.weight.shape
            y, x = (_Axis.of(stage, i) for i in range(2))
            runs, reach, windows = _weight_runs(y, x, stage), _reached_windows(y, x), _pooling_windows(y, x)
            runs[..., 0] += seen[3]
            runs[..., 1] += seen[6]
            going_out = seen[4] + math.prod(stage.in_shape)
            row = [
                channels, filters, wide * filters, seen[0], runs.shape[1], seen[1], reach.shape[1],
                seen[2], windows.shape[1], stage.relu, seen[3], seen[4], going_out, seen[5],
            ]  # fmt: skip
            parts.append((np.array([row]), runs.reshape(-1, 3), reach.ravel(), windows.ravel()))
            # [h, C, w, O], both axes reversed: the sums that a position affects are in the order of the weights.
            weights.append(stage.weight.double().flip(2, 3).permute(2, 1, 3, 0).contiguous().numpy().ravel())
            used = len(parts[-1][1]), reach.size, windows.size, math.prod(stage.sums_shape), math.prod(stage.in_shape)
            seen += [*used, len(windows), weights[-1].size]
        numbers, runs, reach, windows = (np.concatenate(each) for each in zip(*parts, strict=True))
        return StageTables(numbers.astype(np.int64), runs, reach, windows, np.concatenate(weights))


@dataclass(frozen=True)
class _Axis:
    """A stage along one axis.

    Attributes:
        taps: ``[P, R, 3]``, for each input position: tap (reversed), sum, count. With stride 1, neighboring taps meet
            neighboring sums and are one entry; count 0 is padding.
        windows: ``[Q, V]``, the sums in each pooling window. Padding repeats the nearest sum.
        reach: ``[P, U]``, the windows that a position affects, padded with -1.
        sums: Number of sums.
    """

    taps: IntArray
    windows: IntArray
    reach: IntArray
    sums: int

    @staticmethod
    def of(stage: ConvStage, i: int) -> _Axis:
        """Create the axis of a stage: 0 is the height, 1 the width."""
        kernel, stride, padding = stage.weight.shape[2 + i], stage.stride[i], stage.padding[i]
        size, step, around = (each[i] for each in stage.pool)
        sums = stage.sums_shape[1 + i]
        windows = (np.arange(stage.shape[1 + i])[:, None] * step - around + np.arange(size)).clip(0, sums - 1)
        meets: list[set[int]] = [set() for _ in range(sums)]
        for window, members in enumerate(windows.tolist()):
            for member in members:
                meets[member].add(window)
        taps, reach = [], []
        for position in range(stage.in_shape[1 + i]):
            met = [(kernel - 1 - k, *divmod(position + padding - k, stride)) for k in reversed(range(kernel))]
            there = [(tap, at, 1) for tap, at, rest in met if rest == 0 and 0 <= at < sums]
            reach.append(sorted(set().union(*(meets[at] for _, at, _ in there))))
            # Along the width, neighbors are adjacent in memory.
            taps.append([(*there[0][:2], len(there))] if there and i and stride == 1 else there)
        return _Axis(_pad_lists(taps, (0, 0, 0)), windows, _pad_lists(reach, -1), sums)


def _pad_lists(lists: Sequence[Sequence[Any]], empty: Any) -> IntArray:
    """Return lists of different lengths as one array of at least one column."""
    most = max(1, max(map(len, lists)))
    return np.array([[*each, *[empty] * (most - len(each))] for each in lists], np.int64)


def _weight_runs(y: _Axis, x: _Axis, stage: ConvStage) -> IntArray:
    """Return ``[P, R, 3]``, counted from the first sum and weight of the stage."""
    filters, channels, _, wide = stage.weight.shape
    high, along = y.taps[:, None, :, None], x.taps[None, :, None, :]
    first = (high[..., 1] * x.sums + along[..., 1]) * filters
    source = (high[..., 0] * channels * wide + along[..., 0]) * filters
    length = high[..., 2] * along[..., 2] * filters
    return np.stack([first, source, length], -1).reshape(len(y.taps) * len(x.taps), -1, 3)


def _reached_windows(y: _Axis, x: _Axis) -> IntArray:
    """Return the pooling windows that each pixel affects, ``[P, U]``; -1 fills the rows."""
    high, along = y.reach[:, None, :, None], x.reach[None, :, None, :]
    found = np.where((high < 0) | (along < 0), -1, high * len(x.windows) + along)
    return found.reshape(len(y.reach) * len(x.reach), -1)


def _pooling_windows(y: _Axis, x: _Axis) -> IntArray:
    """Return the positions ``[Q, V]`` of the pooling windows."""
    found = y.windows[:, None, :, None] * x.sums + x.windows[None, :, None, :]
    return found.reshape(len(y.windows) * len(x.windows), -1)
