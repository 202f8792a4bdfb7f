"""The blocks of convolution, ReLU and max-pooling that a small network begins with, fast on a CPU.

With the one to 32 channels of XAI-TRIS' networks, a library's convolution spends its time on moving numbers. Here a
block is one pass over the memory: what a pooling window needs is summed, compared and written while it is in the
registers (:mod:`xaibench.models.compiled.lane_loops`), for as many samples at a time as a vector unit holds.
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

from xaibench.core.compiled_loops import kernels_enabled
from xaibench.models.compiled import lane_loops as lanes
from xaibench.models.compiled.dense_blocks import convolution_and_pooling, pair
from xaibench.models.compiled.lane_loops import Bytes, Floats, Ints

#: Most samples that are worked on at a time.
LANES = 256

#: Multiplications that are worth a thread.
GRAIN = 2**24


@dataclass(frozen=True)
class Block:
    """A convolution with ReLU and max-pooling, for images of one shape.

    Attributes:
        rows: ``[Q, V, T]``, which row of the input tap t meets from pixel v of the pooling window q. Where a filter has
            an odd number of taps, T is one more, and the last meets zeros.
        height: Rows of the input; the last is of zeros.
        taps: Weights of a filter.
        out_shape: ``(O, H, W)`` after pooling.
    """

    rows: Ints
    height: int
    taps: int
    out_shape: tuple[int, int, int]

    @staticmethod
    def of(layers: Sequence[nn.Module], in_shape: tuple[int, ...], height: int) -> Block | None:
        """The block that the layers begin with, for images whose pixels are the first rows of ``height``; or None."""
        found = convolution_and_pooling(layers)
        if found is None:
            return None
        conv, window = found
        kernel, padding = pair(conv.kernel_size), pair(conv.padding)
        high, wide = ((in_shape[1 + i] + 2 * padding[i] - kernel[i] + 1) // window[i] for i in range(2))
        if min(high, wide) < 1:
            return None
        # Pixels by number, from 1 (unfolding pads with 0), cut into windows, and these into fields of the kernel.
        numbers = torch.arange(1.0, math.prod(in_shape) + 1, dtype=torch.float64).view(1, *in_shape)
        size = (kernel[0] + window[0] - 1, kernel[1] + window[1] - 1)
        windows = F.unfold(numbers, size, padding=padding, stride=window)[0].T.reshape(-1, 1, *size)
        taps = conv.weight[0].numel()
        met = F.unfold(windows, kernel).long().view(high * wide, taps, -1).mT
        rows = F.pad(torch.where(met == 0, height, met) - 1, (0, taps % lanes.TAPS), value=height - 1)
        return Block(rows.contiguous().numpy(), height, taps, (conv.out_channels, high, wide))

    @property
    def filters(self) -> int:
        """The filters that are computed: O, and what fills up the last group with zeros."""
        return -(-self.out_shape[0] // lanes.FILTERS) * lanes.FILTERS

    @property
    def out_height(self) -> int:
        """Rows of the output; the last is of zeros."""
        return self.filters * len(self.rows) + 1


@dataclass(frozen=True)
class _Buffers:
    """Where the numbers of a step lie; used again by the next, since new memory costs as much as the loops.

    Attributes:
        samples: B, which with the number of members makes the shapes.
        member: ``[N]``, whose samples a group holds. A group is the L samples that are worked on at a time.
        inputs: ``[N, R, L]`` of each block, and the output of the last.
        chosen: Of each block, what its backward pass has to know.
        weights: ``[M, O, T]`` and ``[M, O]`` of each block, with zeros for the filters and taps that fill up.
        gradients: As ``inputs``, but the first has no row.
    """

    samples: int
    member: Ints
    inputs: list[Floats]
    chosen: list[Bytes]
    weights: list[tuple[Floats, Floats]]
    gradients: list[Floats]

    @staticmethod
    def of(blocks: Sequence[Block], members: int, samples: int) -> _Buffers:
        groups = -(-samples // LANES)
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
    """The blocks that a network begins with, of M networks, as one function.

    It is not to be called again before the backward pass of the last call is done.

    Attributes:
        blocks: In their order.
        names: Of their convolutions in the network.
    """

    def __init__(self, blocks: Sequence[Block], names: Sequence[str]) -> None:
        self.blocks, self.names = blocks, names
        self._buffers: _Buffers | None = None

    @staticmethod
    def of(model: nn.Module, in_shape: tuple[int, ...], like: Tensor) -> Convolutions | None:
        """The blocks that the model begins with, for weights ``like``; None where there is none, or no loop for it."""
        if like.device.type != "cpu" or like.dtype != torch.float32 or len(in_shape) != 3 or not kernels_enabled():
            return None
        names, layers = [name for name, _ in model.named_children()], list(model.children())
        blocks: list[Block] = []
        height = math.prod(in_shape) + 1
        while block := Block.of(layers[3 * len(blocks) :], in_shape, height):
            blocks.append(block)
            in_shape, height = block.out_shape, block.out_height
        return Convolutions(blocks, names[: 3 * len(blocks) : 3]) if blocks else None

    def __call__(self, named: dict[str, Tensor], images: Tensor) -> Tensor:
        """``[M, B, C, H, W] -> [M, B, *out_shape]``, with gradients of the weights, not of the images."""
        given = [named.get(f"{name}.{kind}") for name in self.names for kind in ("weight", "bias")]
        out: Tensor = _Blocks.apply(images, self, *given)
        return out

    def forward(self, images: Tensor, given: Sequence[Tensor | None]) -> Tensor:
        """The output, for the weight and bias of each block."""
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
            _spread(lanes.forward, (x, buffers.member), (w, b, block.rows), (out, buffers.chosen[i]))
        return _from_lanes(buffers.inputs[-1], self.blocks[-1].out_shape, members, samples)

    def backward(self, gradient: Tensor) -> list[Tensor]:
        """The gradients of weight and bias of each block, from that of the output of the last :meth:`forward`."""
        buffers = self._buffers
        assert buffers is not None
        _to_lanes(gradient, buffers.gradients[-1])
        found: list[Tensor] = []
        for i, block in reversed(list(enumerate(self.blocks))):
            (w, b), x = buffers.weights[i], buffers.inputs[i]
            gx, g = buffers.gradients[i : i + 2]
            gx.fill(0)
            gw, gb = np.zeros((len(x), *w.shape[1:]), np.float32), np.zeros((len(x), b.shape[1]), np.float32)
            _spread(lanes.backward, (x, buffers.member), (w, block.rows), (buffers.chosen[i], g, gw, gb, gx))
            filters = block.out_shape[0]
            gw, gb = (each.reshape(len(w), -1, *each.shape[1:]).sum(1)[:, :filters] for each in (gw, gb))
            found = [torch.from_numpy(gw[:, :, : block.taps]), torch.from_numpy(gb), *found]
        return found


class _Blocks(torch.autograd.Function):
    """What autograd has to know of :class:`Convolutions`."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, blocks: Convolutions, *given: Tensor | None) -> Tensor:
        """``given``: weight and bias of each block."""
        ctx.blocks, ctx.shapes = blocks, [None if each is None else each.shape for each in given]
        return blocks.forward(images, given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of each weight and bias."""
        found = zip(ctx.blocks.backward(gradients[0]), ctx.shapes, strict=True)
        return None, None, *(None if shape is None else each.reshape(shape) for each, shape in found)


def _to_lanes(images: Tensor, rows: Floats) -> None:
    """Write ``[M, B, ...]`` to the first rows of ``[N, R, L]``; lanes that are left over are zero."""
    flat = images.flatten(2)
    members, samples, pixels = flat.shape
    over = len(rows) * rows.shape[2] // members - samples
    if over:
        flat = F.pad(flat, (0, 0, 0, over))
    lanes.transpose(flat.reshape(len(rows), rows.shape[2], pixels).numpy(), rows)


def _from_lanes(rows: Floats, shape: tuple[int, ...], members: int, samples: int) -> Tensor:
    """``[N, R, L] -> [M, B, *shape]``."""
    pixels = math.prod(shape)
    return (
        torch.from_numpy(rows)[:, :pixels]
        .mT.reshape(members, -1, pixels)[:, :samples]
        .reshape(members, samples, *shape)
    )


def _spread(loop: Callable[..., None], before: Sequence[Any], whole: Sequence[Any], after: Sequence[Any]) -> None:
    """Run a loop over N groups, on as many threads as torch may use and the work is worth; the result is the same.

    Args:
        loop: Takes ``before``, ``whole`` and ``after``.
        before: Arrays of N; the first is ``[N, R, L]``.
        whole: Arrays that every group needs: first the weights, last the rows.
        after: Arrays of N.
    """
    count, work = len(before[0]), before[0].shape[2] * whole[0][0].size * whole[-1][:, :, 0].size
    threads = min(torch.get_num_threads(), count, 1 + count * work // GRAIN)
    if threads == 1:
        loop(*before, *whole, *after)
        return
    ends = [count * i // threads for i in range(threads + 1)]

    def run(part: slice) -> None:
        loop(*(each[part] for each in before), *whole, *(each[part] for each in after))

    list(_pool(threads, os.getpid()).map(run, map(slice, ends[:-1], ends[1:])))


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of its parent did not come along."""
    return ThreadPoolExecutor(threads)
