"""The inner loops of small linear layers, and of Adam, compiled.

A member's numbers come from its own alone, by one order of sums, whoever stands beside it: a library's batched product
takes another route for one matrix than for many, and for a matrix that begins elsewhere in memory.

Samples lie along the last axis, the *lanes*: ``x [M, I, L]``, ``w [M, O, I]`` and ``b [M, O]``, with O a multiple of 4
and I of 2. The images themselves lie one after another, ``x [M, L, I]``; for few outputs it would take longer to turn
them than to sum, so there are loops for them as they are, with any I.
"""

# ruff: noqa: E741 - l is a lane, where one more letter would make every line of these loops longer
from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from xaibench.core.compiled_loops import SUMS, kernel

Floats = npt.NDArray[np.float32]


@partial(kernel, freedom=SUMS)
def forward(x: Floats, w: Floats, b: Floats, out: Floats, relu: bool) -> None:
    """Fill ``out [M, O, L]``; with ``relu``, what is below zero becomes zero."""
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
def backward(x: Floats, w: Floats, g: Floats, gw: Floats, gb: Floats, gx: Floats, relu: bool) -> None:
    """Fill the gradients ``gw [M, O, I]`` and ``gb [M, O]``, and ``gx`` (as ``x``, or without rows: not wanted).

    ``g [M, O, L]`` is the gradient of ``out``. With ``relu``, ``x`` came out of one, and ``gx`` is of what went in.
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
def forward_of_rows(x: Floats, w: Floats, b: Floats, out: Floats, relu: bool) -> None:
    """Fill ``out [M, O, L]``, from ``x [M, L, I]``; with ``relu``, what is below zero becomes zero."""
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
def backward_of_rows(x: Floats, g: Floats, gw: Floats, gb: Floats) -> None:
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
    """One step of Adam (beta 0.9 and 0.999, eps 1e-8) on ``weights [M, P]``, in place.

    ``scales [M, 2]``: the learning rate over 1 - 0.9^t, and the root of 1 - 0.999^t.
    """
    for m in range(weights.shape[0]):
        rate, root = scales[m, 0], scales[m, 1]
        for p in range(weights.shape[1]):
            g = gradient[m, p]
            mean[m, p] += np.float32(0.1) * (g - mean[m, p])
            square[m, p] += np.float32(0.001) * (g * g - square[m, p])
            weights[m, p] -= rate * mean[m, p] / (np.sqrt(square[m, p]) / root + np.float32(1e-8))
