"""Fast blocks of convolution, ReLU and max-pooling on a CPU, for the first layers of small networks.

With the 1 to 32 channels of XAI-TRIS networks, a library's convolution spends most of its time moving data. Here, a
block is a single pass over memory: the values of a pooling window are summed, compared and written while they are in
registers (:mod:`xaibench.kernels.training.lane_loops`), for several samples at a time as lanes of vector instructions.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xaibench.kernels.training import lane_loops as lanes
from xaibench.kernels.training.dense_blocks import convolution_and_pooling, pair
from xaibench.kernels.training.lane_loops import Bytes, Floats, Ints

#: Largest number of samples that are processed at a time.
MAX_LANES = 256

#: Number of multiplications that justify one more thread.
GRAIN = 2**24


@dataclass(frozen=True)
class ConvolutionBlock:
    """A convolution with ReLU and max-pooling, for images of one shape.

    Attributes:
        rows: ``[Q, V, T]``, the row of the input that tap t reads for pixel v of the pooling window q. If a filter has
            an odd number of taps, T is one more, and the last tap reads zeros.
        height: Number of rows of the input; the last one is zero.
        taps: Number of weights of a filter.
        out_shape: ``(O, H, W)`` after pooling.
    """

    rows: Ints
    height: int
    taps: int
    out_shape: tuple[int, int, int]

    @staticmethod
    def of(layers: Sequence[nn.Module], in_shape: tuple[int, ...], height: int) -> ConvolutionBlock | None:
        """Return the block that the layers begin with, or None. Pixels are the first of ``height`` rows."""
        found = convolution_and_pooling(layers)
        if found is None:
            return None
        conv, window = found
        kernel, padding = pair(conv.kernel_size), pair(conv.padding)
        high, wide = ((in_shape[1 + i] + 2 * padding[i] - kernel[i] + 1) // window[i] for i in range(2))
        if min(high, wide) < 1:
            return None
        # Pixels are numbered from 1 (unfolding pads with 0) and cut into windows, and these into kernel fields.
        numbers = torch.arange(1.0, math.prod(in_shape) + 1, dtype=torch.float64).view(1, *in_shape)
        size = (kernel[0] + window[0] - 1, kernel[1] + window[1] - 1)
        windows = F.unfold(numbers, size, padding=padding, stride=window)[0].T.reshape(-1, 1, *size)
        taps = conv.weight[0].numel()
        met = F.unfold(windows, kernel).long().view(high * wide, taps, -1).mT
        rows = F.pad(torch.where(met == 0, height, met) - 1, (0, taps % lanes.TAPS), value=height - 1)
        return ConvolutionBlock(rows.contiguous().numpy(), height, taps, (conv.out_channels, high, wide))

    @property
    def filters(self) -> int:
        """Number of computed filters: O, padded to a multiple of the group size."""
        return -(-self.out_shape[0] // lanes.FILTERS) * lanes.FILTERS

    @property
    def out_height(self) -> int:
        """Number of rows of the output; the last one is zero."""
        return self.filters * len(self.rows) + 1


@dataclass(frozen=True)
class _Buffers:
    """Memory of a step, reused by the next one, since allocating memory takes as long as the loops.

    Attributes:
        samples: B, which determines the shapes together with the number of members.
        member: ``[N]``, the member of each group. A group is L samples that are processed at a time.
        inputs: ``[N, R, L]``, the input of each block, and the output of the last one.
        chosen: For each block, which pixel of each pooling window was the largest.
        weights: ``[M, O, T]`` and ``[M, O]`` of each block, padded with zeros.
        gradients: Like ``inputs``, but the first has no rows.
    """

    samples: int
    member: Ints
    inputs: list[Floats]
    chosen: list[Bytes]
    weights: list[tuple[Floats, Floats]]
    gradients: list[Floats]

    @staticmethod
    def of(blocks: Sequence[ConvolutionBlock], members: int, samples: int) -> _Buffers:
        groups = -(-samples // MAX_LANES)
        wide = -(-samples // (groups * lanes.VECTOR)) * lanes.VECTOR
        count = members * groups
        heights = [block.height for block in blocks] + [blocks[-1].out_height]
        return _Buffers(
            samples,
            np.arange(members).repeat(groups),
            [np.zeros((count, height, wide), np.float32) for height in heights],
            [np.zeros((count, height, wide), np.uint8) for height in heights[1:]],
            [
                (
                    np.zeros((members, block.filters, block.rows.shape[2]), np.float32),
                    np.zeros((members, block.filters), np.float32),
                )
                for block in blocks
            ],
            [np.zeros((count, height, wide), np.float32) for height in [0, *heights[1:]]],
        )


class Convolutions:
    """The first blocks of M networks as one function.

    It must not be called again before the backward pass of the last call is done.

    Attributes:
        blocks: The blocks, in order.
        names: Names of their convolutions in the network.
    """

    def __init__(self, blocks: Sequence[ConvolutionBlock], names: Sequence[str]) -> None:
        self.blocks, self.names = blocks, names
        self._buffers: _Buffers | None = None

    @staticmethod
    def of(model: nn.Module, in_shape: tuple[int, ...], like: Tensor) -> Convolutions | None:
        """Return the blocks that the model begins with, for weights like ``like``; None if no kernel applies."""
        if like.device.type != "cpu" or like.dtype != torch.float32 or len(in_shape) != 3:
            return None
        names, layers = [name for name, _ in model.named_children()], list(model.children())
        blocks: list[ConvolutionBlock] = []
        height = math.prod(in_shape) + 1
        while block := ConvolutionBlock.of(layers[3 * len(blocks) :], in_shape, height):
            blocks.append(block)
            in_shape, height = block.out_shape, block.out_height
        return Convolutions(blocks, names[: 3 * len(blocks) : 3]) if blocks else None

    def __call__(self, named: dict[str, Tensor], images: Tensor) -> Tensor:
        """Map ``[M, B, C, H, W]`` to ``[M, B, *out_shape]``, with gradients by the weights but not by the images."""
        given = [named.get(f"{name}.{kind}") for name in self.names for kind in ("weight", "bias")]
        out: Tensor = _ConvolutionsFunction.apply(images, self, *given)
        return out

    def forward(self, images: Tensor, given: Sequence[Tensor | None]) -> Tensor:
        """Return the output, given the weight and bias of each block."""
        members, samples = images.shape[:2]
        buffers = self._buffers
        if buffers is None or (buffers.samples, len(buffers.weights[0][0])) != (samples, members):
            buffers = self._buffers = _Buffers.of(self.blocks, members, samples)
        _to_lanes(images, buffers.inputs[0])
        for i, block in enumerate(self.blocks):
            for whole, part in zip(buffers.weights[i], given[2 * i : 2 * i + 2], strict=True):
                if part is not None:
                    flat = part.flatten(2) if part.ndim > 2 else part
                    whole[tuple(map(slice, flat.shape))] = flat.numpy()
            w, b = buffers.weights[i]
            x, out = buffers.inputs[i : i + 2]
            _run_in_threads(lanes.forward, (x, buffers.member), (w, b, block.rows), (out, buffers.chosen[i]))
        return _from_lanes(buffers.inputs[-1], self.blocks[-1].out_shape, members, samples)

    def backward(self, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of weight and bias of each block, given that of the last output."""
        buffers = self._buffers
        assert buffers is not None
        _to_lanes(gradient, buffers.gradients[-1])
        found: list[Tensor] = []
        for i, block in reversed(list(enumerate(self.blocks))):
            (w, b), x = buffers.weights[i], buffers.inputs[i]
            gx, g = buffers.gradients[i : i + 2]
            gx.fill(0)
            gw, gb = np.zeros((len(x), *w.shape[1:]), np.float32), np.zeros((len(x), b.shape[1]), np.float32)
            _run_in_threads(lanes.backward, (x, buffers.member), (w, block.rows), (buffers.chosen[i], g, gw, gb, gx))
            filters = block.out_shape[0]
            gw, gb = (each.reshape(len(w), -1, *each.shape[1:]).sum(1)[:, :filters] for each in (gw, gb))
            found = [torch.from_numpy(gw[:, :, : block.taps]), torch.from_numpy(gb), *found]
        return found


class _ConvolutionsFunction(torch.autograd.Function):
    """Autograd function of :class:`Convolutions`."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, blocks: Convolutions, *given: Tensor | None) -> Tensor:
        """Compute the output; ``given`` is the weight and bias of each block."""
        ctx.blocks, ctx.shapes = blocks, [None if each is None else each.shape for each in given]
        return blocks.forward(images, given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of each weight and bias."""
        found = zip(ctx.blocks.backward(gradients[0]), ctx.shapes, strict=True)
        return None, None, *(None if shape is None else each.reshape(shape) for each, shape in found)


def _to_lanes(images: Tensor, rows: Floats) -> None:
    """Write ``[M, B, ...]`` to the first rows of ``[N, R, L]``; unused lanes are zero."""
    flat = images.flatten(2)
    members, samples, pixels = flat.shape
    over = len(rows) * rows.shape[2] // members - samples
    if over:
        flat = F.pad(flat, (0, 0, 0, over))
    lanes.transpose(flat.reshape(len(rows), rows.shape[2], pixels).numpy(), rows)


def _from_lanes(rows: Floats, shape: tuple[int, ...], members: int, samples: int) -> Tensor:
    """Convert ``[N, R, L]`` to ``[M, B, *shape]``."""
    pixels = math.prod(shape)
    return (
        torch.from_numpy(rows)[:, :pixels]
        .mT.reshape(members, -1, pixels)[:, :samples]
        .reshape(members, samples, *shape)
    )


def _run_in_threads(
    loop: Callable[..., None], before: Sequence[Any], whole: Sequence[Any], after: Sequence[Any]
) -> None:
    """Run a loop over N groups in threads, as many as torch may use and the work justifies; results are the same.

    Args:
        loop: Called with ``before``, ``whole`` and ``after``.
        before: Arrays of length N; the first is ``[N, R, L]``.
        whole: Arrays that every group needs: the first is the weights, the last the rows.
        after: Arrays of length N.
    """
    count, work = len(before[0]), before[0].shape[2] * whole[0][0].size * whole[-1][:, :, 0].size
    threads = min(torch.get_num_threads(), count, 1 + count * work // GRAIN)
    if threads == 1:
        loop(*before, *whole, *after)
        return
    ends = [count * i // threads for i in range(threads + 1)]

    def run(part: slice) -> None:
        loop(*(each[part] for each in before), *whole, *(each[part] for each in after))

    list(_thread_pool(threads, os.getpid()).map(run, map(slice, ends[:-1], ends[1:])))


@functools.cache
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a thread pool of this process; threads of a parent process do not survive a fork."""
    return ThreadPoolExecutor(threads)
