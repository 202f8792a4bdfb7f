"""Triton kernels of :mod:`xaibench.kernels.training.gpu_blocks`: convolution blocks, and Adam, each in one pass.

A library's grouped convolution with the 1 to 32 channels of XAI-TRIS networks reaches a twentieth of a GPU's speed, and
ReLU and pooling move its output through memory five more times. Here a program computes the values of some pooling
windows for some filters in registers, and writes the largest of each and which pixel it was. The backward passes read
these; the values before pooling are never in memory.

Every number is the sum of one program, in one order, so the same GPU gives the same bits.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

#: Entry of ``chosen`` for a window without a positive value.
DEAD = 255

#: Arguments that depend on the number of samples. The compiled kernel serves all values.
_SIZES = ("count", "chunk")


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def forward(
    x, w, bias, out, chosen, count, height, width, out_height, out_width, pad_y, pad_x,
    C: tl.constexpr, F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, VH: tl.constexpr, VW: tl.constexpr,
    FILTERS: tl.constexpr, BLOCK: tl.constexpr, DEAD: tl.constexpr,
) -> Any:  # fmt: skip
    """Fill ``out [M, B, F, h, w]`` and ``chosen``, for ``x [M, B, C, H, W]``, ``w [M, C, KH, KW, F]``, ``bias [M, F]``.

    ``count`` is the number of pooled pixels B·h·w per filter and member.
    """
    groups: tl.constexpr = F // FILTERS
    member = (tl.program_id(1) // groups).to(tl.int64)
    filters = (tl.program_id(1) % groups) * FILTERS + tl.arange(0, FILTERS)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    area = out_height * out_width
    sample, pooled = place // area, place % area
    y, left = pooled // out_width * VH - pad_y, pooled % out_width * VW - pad_x
    x += member * (count // area) * (C * height * width) + sample * (C * height * width)
    w += member * (C * KH * KW * F) + filters
    start = tl.load(bias + member * F + filters)[:, None] + tl.full([FILTERS, BLOCK], 0, tl.float32)
    best = start
    which = tl.full([FILTERS, BLOCK], 0, tl.int32)
    for v in tl.static_range(VH * VW):
        total = start
        for c in range(C):
            for k in tl.static_range(KH * KW):
                row, column = y + v // VW + k // KW, left + v % VW + k % KW
                inside = (place < count) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
                value = tl.load(x + (c * height + row) * width + column, mask=inside, other=0.0)
                total += tl.load(w + (c * KH * KW + k) * F)[:, None] * value[None, :]
        larger = (total > best) | (total != total) | (v == 0)
        best = tl.where(larger, total, best)
        which = tl.where(larger, v, which)
    dead = best <= 0
    to = member * count * F + (sample * F * area + pooled)[None, :] + filters[:, None] * area
    tl.store(out + to, tl.where(dead, 0.0, best), mask=(place < count)[None, :])
    tl.store(chosen + to, tl.where(dead, DEAD, which).to(tl.uint8), mask=(place < count)[None, :])


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def weight_gradient(
    x, gradient, chosen, found, found_bias, count, height, width, out_height, out_width, pad_y, pad_x, chunk,
    C: tl.constexpr, F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, VH: tl.constexpr, VW: tl.constexpr,
    FILTERS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr, DEAD: tl.constexpr,
) -> Any:  # fmt: skip
    """Fill ``found [P, M, F, C, KH, KW]`` and ``found_bias [P, M, F]``: the sums of P chunks of the pooled pixels.

    A program adds up one row of the kernel (TAPS is KW, rounded up to a power of two) for one channel.
    """
    groups: tl.constexpr = F // FILTERS
    member = (tl.program_id(1) // groups).to(tl.int64)
    filters = (tl.program_id(1) % groups) * FILTERS + tl.arange(0, FILTERS)
    channel, k = tl.program_id(2) // KH, tl.program_id(2) % KH
    # Not known to be neighbors: to load neighbors together, the compiler would exchange values between threads.
    taps = tl.arange(0, TAPS) * 3 // 3
    area = out_height * out_width
    x += (member * (count // area) * C + channel) * height * width
    gradient += member * count * F
    chosen += member * count * F
    total = tl.full([TAPS, FILTERS, BLOCK], 0, tl.float32)
    total_bias = tl.full([FILTERS, BLOCK], 0, tl.float32)
    for first in range(tl.program_id(0) * chunk, tl.minimum(count, (tl.program_id(0) + 1) * chunk), BLOCK):
        place = first + tl.arange(0, BLOCK)
        sample, pooled = place // area, place % area
        here = (sample * F * area + pooled)[None, :] + filters[:, None] * area
        which = tl.load(chosen + here, mask=(place < count)[None, :], other=DEAD)
        g = tl.load(gradient + here, mask=(place < count)[None, :], other=0.0)
        total_bias += tl.where(which == DEAD, 0.0, g)
        row, left = pooled // out_width * VH - pad_y + k, pooled % out_width * VW - pad_x
        columns = left[None, :] + taps[:, None]
        at = (sample * (C * height * width) + row * width)[None, :] + columns
        for v in tl.static_range(VH * VW):
            inside = ((place < count) & (row + v // VW >= 0) & (row + v // VW < height))[None, :]
            inside = inside & (columns + v % VW >= 0) & (columns + v % VW < width) & (taps < KW)[:, None]
            values = tl.load(x + at + (v // VW * width + v % VW), mask=inside, other=0.0)
            total += values[:, None, :] * tl.where(which == v, g, 0.0)[None, :, :]
    to = (tl.program_id(0) * (tl.num_programs(1) // groups) + member) * F + filters
    weights = ((to * C + channel) * KH + k) * KW
    tl.store(found + weights[None, :] + taps[:, None], tl.sum(total, axis=2), mask=(taps < KW)[:, None])
    if tl.program_id(2) == 0:
        tl.store(found_bias + to, tl.sum(total_bias, axis=1))


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def input_gradient(
    w, gradient, chosen, found, count, height, width, out_height, out_width, pad_y, pad_x,
    C: tl.constexpr, F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, VH: tl.constexpr, VW: tl.constexpr,
    CHANNELS: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr, DEAD: tl.constexpr,
) -> Any:  # fmt: skip
    """Fill ``found [M, B, C, H, W]``; ``w [M, F, KH, KW, C]``. ``count`` is the number of pixels B·H·W per member.

    CHANNELS is C, rounded up to a power of two. UNROLL divides F: the loads of as many filters overlap.
    """
    member = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channels = tl.arange(0, CHANNELS)
    area, pooled = height * width, out_height * out_width
    sample, pixel = place // area, place % area
    y, left = pixel // width + pad_y, pixel % width + pad_x
    start = member * (count // area) * (F * pooled)
    gradient += start
    chosen += start
    w += member * (F * KH * KW * C) + channels
    total = tl.full([CHANNELS, BLOCK], 0, tl.float32)
    for k in range(KH * KW):
        row, column = y - k // KW, left - k % KW
        inside = (place < count) & (row >= 0) & (row < VH * out_height) & (column >= 0) & (column < VW * out_width)
        v = row % VH * VW + column % VW
        at = sample * (F * pooled) + row // VH * out_width + column // VW
        for first in range(0, F, UNROLL):
            for f in tl.static_range(UNROLL):
                which = tl.load(chosen + at + (first + f) * pooled, mask=inside, other=DEAD)
                g = tl.load(gradient + at + (first + f) * pooled, mask=inside, other=0.0)
                weight = tl.load(w + ((first + f) * KH * KW + k) * C, mask=channels < C, other=0.0)
                total += weight[:, None] * tl.where(which == v, g, 0.0)[None, :]
    to = member * count * C + (sample * C * area + pixel)[None, :] + channels[:, None] * area
    tl.store(found + to, total, mask=(place < count)[None, :] & (channels < C)[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def adam(weights, gradient, mean, square, lr, first, second, width, BLOCK: tl.constexpr) -> Any:
    """Update rows ``[M, width]`` in place, as :class:`xaibench.models.training.network_stack.Adam`."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, inside = row * width + column, column < width
    g = tl.load(gradient + at, mask=inside)
    m = tl.load(mean + at, mask=inside)
    s = tl.load(square + at, mask=inside)
    m += (g - m) * (1 - 0.9)
    s = s * 0.999 + g * g * (1 - 0.999)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, s, mask=inside)
    root = tl.sqrt(s) / tl.sqrt(tl.load(second)) + 1e-8
    w = tl.load(weights + at, mask=inside)
    tl.store(weights + at, w - tl.load(lr + row) / tl.load(first) * m / root, mask=inside)
