"""Compiled inner loops of :mod:`.incremental_passes`: update the stages of a network after a few image values changed.

A stage stores *sums* (the output of its convolution) and *units* (the sums after ReLU and max-pooling, the input of the
next stage). Both are channels last, with all stages one after another. The units begin with the image.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from xaibench.kernels.compilation import MINIMA, SUMS, kernel, subroutine
from xaibench.kernels.pixel_updates.network_stages import FloatArray, IntArray

#: Columns of ``stages``; see :class:`xaibench.kernels.pixel_updates.network_stages.StageTables`.
IN, OUT, STRIDE, RUN, RUNS, REACH, REACHED, WINDOW, PIXELS, RELU, SUM, UNIT, NEXT, WINDOWS = range(14)


@partial(subroutine, freedom=MINIMA | SUMS, inline=True)
def _add_weighted_runs(
    sums: FloatArray, first: int, length: int, weights: FloatArray, at: IntArray, by: FloatArray, count: int
) -> None:
    """Add ``by[i]`` times the ``length`` weights starting at ``at[i]``, for each i below ``count``."""
    # Indices are never negative. These checks let the compiler skip Python's negative indexing.
    if first < 0:
        return
    i = 0
    while i < count:
        a0, b0 = at[i], by[i]
        if i + 3 < count:
            a1, a2, a3, b1, b2, b3 = at[i + 1], at[i + 2], at[i + 3], by[i + 1], by[i + 2], by[i + 3]
            if a0 < 0 or a1 < 0 or a2 < 0 or a3 < 0:
                return
            for j in range(length):
                sums[first + j] += (
                    b0 * weights[a0 + j] + b1 * weights[a1 + j] + b2 * weights[a2 + j] + b3 * weights[a3 + j]
                )
            i += 4
        else:
            if a0 < 0:
                return
            for j in range(length):
                sums[first + j] += b0 * weights[a0 + j]
            i += 1


@partial(subroutine, freedom=MINIMA | SUMS, inline=True)
def _scatter_changes(
    stages: IntArray, i: int, runs: IntArray, reach: IntArray, weights: FloatArray, sums: FloatArray,
    change: FloatArray, changed: IntArray, count: int, touched: IntArray, stamps: IntArray, now: int,
    offset: IntArray, at: IntArray, by: FloatArray,
) -> int:  # fmt: skip
    """Add the changes at the ``count`` positions ``changed`` to the sums of stage i.

    Returns the number of pooling windows that are affected, listed in ``touched``. Resets ``change`` to zero.
    """
    width, stride, seen, found = stages[i, IN], stages[i, STRIDE], stages[i, WINDOWS], 0
    for c in range(count):
        p = changed[c]
        first, m = stages[i, UNIT] + p * width, 0
        for k in range(first, first + width):
            if change[k] != 0.0:
                offset[m], by[m] = (k - first) * stride, change[k]
                change[k] = 0.0
                m += 1
        start = stages[i, RUN] + p * stages[i, RUNS]
        for r in range(start, start + stages[i, RUNS]):
            for k in range(m):
                at[k] = runs[r, 1] + offset[k]
            _add_weighted_runs(sums, runs[r, 0], runs[r, 2], weights, at, by, m)
        start = stages[i, REACH] + p * stages[i, REACHED]
        for k in range(start, start + stages[i, REACHED]):
            q = reach[k]
            if q >= 0 and stamps[seen + q] != now:
                stamps[seen + q] = now
                touched[i, found] = q
                found += 1
    return found


@partial(subroutine, freedom=MINIMA | SUMS, inline=True)
def _update_windows(
    stages: IntArray, i: int, windows: IntArray, sums: FloatArray, units: FloatArray, change: FloatArray,
    touched: IntArray, count: int, changed: IntArray,
) -> int:  # fmt: skip
    """Apply ReLU and max-pooling in the affected windows of stage i.

    Returns the number of windows in which a unit changed, listed in ``changed``.
    """
    width, pixels, found = stages[i, OUT], stages[i, PIXELS], 0
    least = 0.0 if stages[i, RELU] else -np.inf
    for c in range(count):
        q = touched[i, c]
        start, moved = stages[i, WINDOW] + q * pixels, 0.0
        for o in range(0, width, 4):
            s0 = s1 = s2 = s3 = least
            for v in range(start, start + pixels):
                k = stages[i, SUM] + windows[v] * width + o
                if k < 0:
                    continue
                s0, s1, s2, s3 = max(s0, sums[k]), max(s1, sums[k + 1]), max(s2, sums[k + 2]), max(s3, sums[k + 3])
            k = stages[i, NEXT] + q * width + o
            if k < 0:
                continue
            d0, d1, d2, d3 = s0 - units[k], s1 - units[k + 1], s2 - units[k + 2], s3 - units[k + 3]
            units[k], units[k + 1], units[k + 2], units[k + 3] = s0, s1, s2, s3
            change[k], change[k + 1], change[k + 2], change[k + 3] = d0, d1, d2, d3
            moved += abs(d0) + abs(d1) + abs(d2) + abs(d3)
        if moved != 0.0:
            changed[found] = q
            found += 1
    return found


@partial(subroutine, freedom=MINIMA | SUMS, inline=True)
def _restore(
    stages: IntArray, i: int, windows: IntArray, sums: FloatArray, units: FloatArray, base: FloatArray,
    base_units: FloatArray, b: int, touched: IntArray, count: int,
) -> None:  # fmt: skip
    """Restore the sums and units of the affected windows of stage i."""
    width, pixels = stages[i, OUT], stages[i, PIXELS]
    for c in range(count):
        q = touched[i, c]
        first = stages[i, NEXT] + q * width
        for k in range(first, first + width):
            units[k] = base_units[b, k]
        start = stages[i, WINDOW] + q * pixels
        for v in range(start, start + pixels):
            first = stages[i, SUM] + windows[v] * width
            for k in range(first, first + width):
                sums[k] = base[b, k]


@partial(kernel, freedom=MINIMA | SUMS)
def run_walks(
    stages: IntArray, runs: IntArray, reach: IntArray, windows: IntArray, weights: FloatArray, base: FloatArray,
    base_units: FloatArray, order: IntArray, which: IntArray, ends: IntArray, to: FloatArray, carry: bool,
    out: FloatArray,
) -> None:  # fmt: skip
    """Fill ``out [W, S, K]`` with the last units after each of the S steps of W walks.

    Args:
        stages: ``[L, 14]``, with the columns named above.
        runs: ``[., 3]``: the first sum, the first weight and the length of a run of consecutive weights.
        reach: The windows that a position affects, padded with -1.
        windows: The positions in each pooling window.
        weights: The weights of all stages.
        base: ``[B, .]``, the sums before the first step; B is W, or 1 if all walks begin at the same image.
        base_units: ``[B, .]``, the units before the first step.
        order: ``[W]``, the row of ``which`` and ``ends`` that each walk uses.
        which: ``[P, T]``, indices of image values, channels last.
        ends: ``[P, S + 1]``: step s sets the values ``which[ends[s] : ends[s + 1]]``.
        to: ``[W, T]``, the new values.
        carry: Whether a step begins at the end of the previous one; otherwise at the base.
        out: The result.
    """
    layers, width, last, classes = len(stages), stages[0, IN], stages[len(stages) - 1, NEXT], out.shape[2]
    most = max(base.shape[1], base_units.shape[1])
    sums, units, change = np.empty(most), np.empty(most), np.zeros(most)
    inputs, stamps = np.zeros(most, np.int64), np.zeros(most, np.int64)
    changed, counts, touched = np.empty(most, np.int64), np.empty(layers, np.int64), np.empty((layers, most), np.int64)
    offset, at, by = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    now = 0
    for w in range(to.shape[0]):
        b, row = w if base.shape[0] > 1 else 0, order[w]
        for k in range(base.shape[1]):
            sums[k] = base[b, k]
        for k in range(base_units.shape[1]):
            units[k] = base_units[b, k]
        for s in range(out.shape[1]):
            now += 1
            count = 0
            for t in range(ends[row, s], ends[row, s + 1]):
                v = which[row, t]
                change[v] = to[w, t] - units[v]
                units[v] = to[w, t]
                p = v // width
                if change[v] != 0.0 and inputs[p] != now:
                    inputs[p] = now
                    changed[count] = p
                    count += 1
            for i in range(layers):
                counts[i] = _scatter_changes(
                    stages, i, runs, reach, weights, sums, change, changed, count, touched, stamps, now,
                    offset, at, by,
                )  # fmt: skip
                count = _update_windows(stages, i, windows, sums, units, change, touched, counts[i], changed)
            for k in range(classes):
                out[w, s, k] = units[last + k]
                change[last + k] = 0.0
            if not carry:
                for i in range(layers):
                    _restore(stages, i, windows, sums, units, base, base_units, b, touched, counts[i])
                for t in range(ends[row, s], ends[row, s + 1]):
                    units[which[row, t]] = base_units[b, which[row, t]]
