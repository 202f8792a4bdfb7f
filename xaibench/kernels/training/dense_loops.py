"""Compiled loops of small linear layers and of Adam.

Results of a member depend only on its own numbers, which are summed in a fixed order, regardless of the other members.
A library's batched product uses different algorithms for different numbers and alignments of matrices.

Samples are the last axis, the *lanes*: ``x [M, I, L]``, ``w [M, O, I]`` and ``b [M, O]``, where O is a multiple of 4
and I of 2. Input images have samples first, ``x [M, L, I]``. For few outputs, transposing them would take longer than
the sums, so there are separate loops for them, for any I.
"""

# ruff: noqa: E741 - l is the lane; a longer name would make every line of these loops longer
from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from xaibench.kernels.compilation import SUMS, kernel

Floats = npt.NDArray[np.float32]


@partial(kernel, freedom=SUMS)
def linear_forward(x: Floats, w: Floats, b: Floats, out: Floats, relu: bool) -> None:
    """Fill ``out [M, O, L]``; with ``relu``, negative values become zero."""
    lanes = x.shape[2]
    zero = np.float32(0)
    for m in range(x.shape[0]):
        for o in range(0, w.shape[1], 4):
            for i in range(4):
                for l in range(lanes):
                    out[m, o + i, l] = b[m, o + i]
            for t in range(0, w.shape[2], 2):
                r0, r1, r2, r3 = w[m, o, t], w[m, o + 1, t], w[m, o + 2, t], w[m, o + 3, t]
                s0, s1, s2, s3 = w[m, o, t + 1], w[m, o + 1, t + 1], w[m, o + 2, t + 1], w[m, o + 3, t + 1]
                for l in range(lanes):
                    xr, xs = x[m, t, l], x[m, t + 1, l]
                    out[m, o, l] += r0 * xr + s0 * xs
                    out[m, o + 1, l] += r1 * xr + s1 * xs
                    out[m, o + 2, l] += r2 * xr + s2 * xs
                    out[m, o + 3, l] += r3 * xr + s3 * xs
            if relu:
                for i in range(4):
                    for l in range(lanes):
                        out[m, o + i, l] = zero if out[m, o + i, l] <= zero else out[m, o + i, l]


@partial(kernel, freedom=SUMS)
def linear_backward(x: Floats, w: Floats, g: Floats, gw: Floats, gb: Floats, gx: Floats, relu: bool) -> None:
    """Fill the gradients ``gw [M, O, I]`` and ``gb [M, O]``, and ``gx`` (like ``x``, or without rows if not needed).

    ``g [M, O, L]`` is the gradient of ``out``. With ``relu``, ``x`` is the output of a ReLU, and ``gx`` the gradient of
    its input.
    """
    lanes = x.shape[2]
    zero = np.float32(0)
    for m in range(x.shape[0]):
        for o in range(w.shape[1]):
            total = zero
            for l in range(lanes):
                total += g[m, o, l]
            gb[m, o] = total
        for o in range(0, w.shape[1], 4):
            for t in range(0, w.shape[2], 2):
                r0 = r1 = r2 = r3 = s0 = s1 = s2 = s3 = zero
                for l in range(lanes):
                    g0, g1, g2, g3 = g[m, o, l], g[m, o + 1, l], g[m, o + 2, l], g[m, o + 3, l]
                    xr, xs = x[m, t, l], x[m, t + 1, l]
                    r0 += g0 * xr
                    r1 += g1 * xr
                    r2 += g2 * xr
                    r3 += g3 * xr
                    s0 += g0 * xs
                    s1 += g1 * xs
                    s2 += g2 * xs
                    s3 += g3 * xs
                gw[m, o, t], gw[m, o + 1, t], gw[m, o + 2, t], gw[m, o + 3, t] = r0, r1, r2, r3
                gw[m, o, t + 1], gw[m, o + 1, t + 1], gw[m, o + 2, t + 1], gw[m, o + 3, t + 1] = s0, s1, s2, s3
        for t in range(gx.shape[1]):
            for l in range(lanes):
                gx[m, t, l] = zero
            for o in range(0, w.shape[1], 4):
                w0, w1, w2, w3 = w[m, o, t], w[m, o + 1, t], w[m, o + 2, t], w[m, o + 3, t]
                for l in range(lanes):
                    gx[m, t, l] += w0 * g[m, o, l] + w1 * g[m, o + 1, l] + w2 * g[m, o + 2, l] + w3 * g[m, o + 3, l]
            if relu:
                for l in range(lanes):
                    gx[m, t, l] = zero if x[m, t, l] <= zero else gx[m, t, l]


@partial(kernel, freedom=SUMS)
def linear_forward_rows(x: Floats, w: Floats, b: Floats, out: Floats, relu: bool) -> None:
    """Fill ``out [M, O, L]``, from ``x [M, L, I]``; with ``relu``, negative values become zero."""
    zero = np.float32(0)
    for m in range(x.shape[0]):
        for l in range(x.shape[1]):
            for o in range(0, w.shape[1], 4):
                s0 = s1 = s2 = s3 = zero
                for t in range(x.shape[2]):
                    s0 += w[m, o, t] * x[m, l, t]
                    s1 += w[m, o + 1, t] * x[m, l, t]
                    s2 += w[m, o + 2, t] * x[m, l, t]
                    s3 += w[m, o + 3, t] * x[m, l, t]
                out[m, o, l], out[m, o + 1, l] = b[m, o] + s0, b[m, o + 1] + s1
                out[m, o + 2, l], out[m, o + 3, l] = b[m, o + 2] + s2, b[m, o + 3] + s3
                if relu:
                    for i in range(4):
                        out[m, o + i, l] = zero if out[m, o + i, l] <= zero else out[m, o + i, l]


@partial(kernel, freedom=SUMS)
def linear_backward_rows(x: Floats, g: Floats, gw: Floats, gb: Floats) -> None:
    """Add to the gradients ``gw [M, O, I]`` and ``gb [M, O]``, from ``x [M, L, I]``."""
    for m in range(x.shape[0]):
        for o in range(g.shape[1]):
            for l in range(g.shape[2]):
                gb[m, o] += g[m, o, l]
        for o in range(0, g.shape[1], 4):
            for l in range(g.shape[2]):
                g0, g1, g2, g3 = g[m, o, l], g[m, o + 1, l], g[m, o + 2, l], g[m, o + 3, l]
                for t in range(x.shape[2]):
                    gw[m, o, t] += g0 * x[m, l, t]
                    gw[m, o + 1, t] += g1 * x[m, l, t]
                    gw[m, o + 2, t] += g2 * x[m, l, t]
                    gw[m, o + 3, t] += g3 * x[m, l, t]


@partial(kernel, freedom=SUMS)
def adam(weights: Floats, gradient: Floats, mean: Floats, square: Floats, scales: Floats) -> None:
    """Take one step of Adam (beta 0.9 and 0.999, eps 1e-8) on ``weights [M, P]``, in place.

    ``scales [M, 2]``: the learning rate divided by 1 - 0.9^t, and the square root of 1 - 0.999^t.
    """
    for m in range(weights.shape[0]):
        rate, root = scales[m, 0], scales[m, 1]
        for p in range(weights.shape[1]):
            g = gradient[m, p]
            mean[m, p] += np.float32(0.1) * (g - mean[m, p])
            square[m, p] += np.float32(0.001) * (g * g - square[m, p])
            weights[m, p] -= rate * mean[m, p] / (np.sqrt(square[m, p]) / root + np.float32(1e-8))
