"""Compiled loops of convolution, ReLU and max-pooling, with samples along the last axis, the *lanes*.

Each step of a loop does the same for all lanes, so that vector instructions apply. Four filters by two taps are
processed at a time, so that numbers in registers are reused. A tap is one weight of a filter; a table contains the row
of the input that it reads. Padding is an additional row of zeros.

All loops take: inputs ``x [N, R, L]``; ``member [N]``, the index of the weights ``w [M, O, T]`` and biases ``b [M, O]``
to use; ``rows [Q, V, T]``, the row that tap t reads for pixel v of the pooling window q. O is a multiple of 4, T of 2.
Row ``o * Q + q`` of an output is filter o in window q.
"""

# ruff: noqa: E741 - l is the lane; a longer name would make every line of these loops longer
from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from xaibench.kernels.compilation import SUMS, kernel

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: Filters and taps that are processed at a time.
FILTERS, TAPS = 4, 2

#: Floats per vector register; L is a multiple of it.
VECTOR = 16

#: Value of ``chosen`` if no pixel of the window is above zero.
DEAD = 255


@partial(kernel, freedom=SUMS)
def transpose(images: Floats, rows: Floats) -> None:
    """Write ``images [N, L, P]`` to the first P rows of ``rows [N, R, L]``."""
    for n in range(images.shape[0]):
        for start in range(0, images.shape[2], 16):
            end = min(start + 16, images.shape[2])
            for l in range(images.shape[1]):
                for p in range(start, end):
                    rows[n, p, l] = images[n, l, p]


@partial(kernel, freedom=SUMS)
def forward(x: Floats, member: Ints, w: Floats, b: Floats, rows: Ints, out: Floats, chosen: Bytes) -> None:
    """Fill ``out [N, O * Q (+ 1), L]``, and ``chosen``, of the same shape, with the largest pixel of each window.

    Ties select the first pixel, and NaN is larger than all numbers, as in ``max_pool2d``.
    """
    windows, pixels, taps = rows.shape
    lanes = x.shape[2]
    zero = np.float32(0)
    sums = np.empty((4, lanes), np.float32)
    best = np.empty((4, lanes), np.float32)
    which = np.empty((4, lanes), np.int32)  # int32, since mixing bytes and floats prevents vectorization
    for n in range(x.shape[0]):
        m = member[n]
        for q in range(windows):
            for o in range(0, w.shape[1], 4):
                for v in range(pixels):
                    for i in range(4):
                        sums[i] = b[m, o + i]
                    for t in range(0, taps, 2):
                        r, s = rows[q, v, t], rows[q, v, t + 1]
                        r0, r1, r2, r3 = w[m, o, t], w[m, o + 1, t], w[m, o + 2, t], w[m, o + 3, t]
                        s0, s1, s2, s3 = w[m, o, t + 1], w[m, o + 1, t + 1], w[m, o + 2, t + 1], w[m, o + 3, t + 1]
                        for l in range(lanes):
                            xr, xs = x[n, r, l], x[n, s, l]
                            sums[0, l] += r0 * xr + s0 * xs
                            sums[1, l] += r1 * xr + s1 * xs
                            sums[2, l] += r2 * xr + s2 * xs
                            sums[3, l] += r3 * xr + s3 * xs
                    pixel = np.int32(v)
                    for i in range(4):
                        for l in range(lanes):
                            value = sums[i, l]
                            larger = v == 0 or value > best[i, l] or value != value
                            best[i, l] = value if larger else best[i, l]
                            which[i, l] = pixel if larger else which[i, l]
                for i in range(4):
                    row = (o + i) * windows + q
                    for l in range(lanes):
                        dead = best[i, l] <= zero
                        out[n, row, l] = zero if dead else best[i, l]
                        chosen[n, row, l] = DEAD if dead else which[i, l]


@partial(kernel, freedom=SUMS)
def backward(
    x: Floats, member: Ints, w: Floats, rows: Ints, chosen: Bytes, g: Floats, gw: Floats, gb: Floats, gx: Floats
) -> None:
    """Add to the gradients ``gw [N, O, T]``, ``gb [N, O]`` and ``gx`` (like ``x``, or without rows if not needed).

    ``g [N, O * Q (+ 1), L]`` is the gradient of ``out``.
    """
    windows, pixels, taps = rows.shape
    lanes = x.shape[2]
    zero = np.float32(0)
    gradient = np.empty((4, lanes), np.float32)
    for n in range(x.shape[0]):
        m = member[n]
        for q in range(windows):
            for o in range(0, w.shape[1], 4):
                for v in range(pixels):
                    for i in range(4):
                        row = (o + i) * windows + q
                        total = zero
                        for l in range(lanes):
                            gradient[i, l] = g[n, row, l] if chosen[n, row, l] == v else zero
                            total += gradient[i, l]
                        gb[n, o + i] += total
                    for t in range(0, taps, 2):
                        r, s = rows[q, v, t], rows[q, v, t + 1]
                        r0 = r1 = r2 = r3 = s0 = s1 = s2 = s3 = zero
                        for l in range(lanes):
                            g0, g1, g2, g3 = gradient[0, l], gradient[1, l], gradient[2, l], gradient[3, l]
                            xr, xs = x[n, r, l], x[n, s, l]
                            r0 += g0 * xr
                            r1 += g1 * xr
                            r2 += g2 * xr
                            r3 += g3 * xr
                            s0 += g0 * xs
                            s1 += g1 * xs
                            s2 += g2 * xs
                            s3 += g3 * xs
                        gw[n, o, t] += r0
                        gw[n, o + 1, t] += r1
                        gw[n, o + 2, t] += r2
                        gw[n, o + 3, t] += r3
                        gw[n, o, t + 1] += s0
                        gw[n, o + 1, t + 1] += s1
                        gw[n, o + 2, t + 1] += s2
                        gw[n, o + 3, t + 1] += s3
                    if gx.shape[1]:
                        for t in range(taps):
                            r = rows[q, v, t]
                            w0, w1, w2, w3 = w[m, o, t], w[m, o + 1, t], w[m, o + 2, t], w[m, o + 3, t]
                            for l in range(lanes):
                                gx[n, r, l] += (
                                    w0 * gradient[0, l]
                                    + w1 * gradient[1, l]
                                    + w2 * gradient[2, l]
                                    + w3 * gradient[3, l]
                                )
