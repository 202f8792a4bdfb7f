"""Loops over all pairs of a source and a sink. Distances are computed on the fly, without a matrix.

Points are ``(slices, rows, columns)``, three float64 arrays in units of length; the slices of an image are all zero.
Potentials ``u`` of the sources and ``v`` of the sinks are
*feasible* if ``u_i - v_j <= d_ij`` for all pairs; then ``sum_i u_i a_i - sum_j v_j b_j`` is a lower bound of the cost
of every plan from ``a`` to ``b``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.compilation import kernel, subroutine

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Points: TypeAlias = tuple[Floats, Floats, Floats]
#: Tails (sources), heads (sinks) and lengths of some pairs.
Arcs: TypeAlias = tuple[Ints, Ints, Floats]


@kernel
def envelope(points: Points, values: Floats, at: Points) -> Floats:
    """Return the smallest 1-Lipschitz function not below ``values`` at ``points``: ``max_i values_i - |at - i|``."""
    slices, rows, columns = at
    lowest = np.full(len(rows), -np.inf)
    for i in range(len(values)):
        place, row, column, value = points[0][i], points[1][i], points[2][i], values[i]
        for j in range(len(rows)):
            deep, down, right = slices[j] - place, rows[j] - row, columns[j] - column
            lowest[j] = max(lowest[j], value - np.sqrt(deep * deep + down * down + right * right))
    return lowest


@kernel
def cheap_arcs(sources: Points, sinks: Points, u: Floats, v: Floats, limit: float) -> Arcs:
    """Return all pairs with a reduced cost ``d_ij - u_i + v_j`` below ``limit``, source by source."""
    slices, rows, columns = sinks
    tails = np.empty(1024, np.int32)
    heads = np.empty(1024, np.int32)
    lengths = np.empty(1024)
    distances = np.empty(len(rows))
    size = 0
    for i in range(len(u)):
        place, row, column, bar = sources[0][i], sources[1][i], sources[2][i], u[i] + limit
        found = 0
        for j in range(len(rows)):
            deep, down, right = slices[j] - place, rows[j] - row, columns[j] - column
            distances[j] = np.sqrt(deep * deep + down * down + right * right)
            found += distances[j] + v[j] < bar
        if found == 0:
            continue
        if size + found > len(tails):
            room = max(size + found, len(tails) + len(tails) // 2)
            tails, heads, lengths = _enlarge(tails, room), _enlarge(heads, room), _enlarge(lengths, room)
        for j in range(len(rows)):
            if distances[j] + v[j] < bar:
                tails[size], heads[size], lengths[size] = i, j, distances[j]
                size += 1
    return tails[:size], heads[:size], lengths[:size]


@subroutine
def _enlarge(values: NDArray[Any], room: int) -> NDArray[Any]:
    longer = np.empty(room, values.dtype)
    for i in range(len(values)):  # slice assignment takes two seconds to compile
        longer[i] = values[i]
    return longer
