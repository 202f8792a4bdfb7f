"""What has to look at every pair of a source and a sink. No matrix is kept: distances are computed as they are needed.

Points are ``(rows, columns)``, a pair of float64 arrays. Potentials ``u`` of the sources and ``v`` of the sinks are
*feasible* when ``u_i - v_j <= d_ij`` for all pairs; then ``sum_i u_i a_i - sum_j v_j b_j`` is a lower bound of the
cost of every plan from ``a`` to ``b``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.compiled_loops import kernel, part

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Points: TypeAlias = tuple[Floats, Floats]
#: Tails (sources), heads (sinks) and lengths of some pairs.
Arcs: TypeAlias = tuple[Ints, Ints, Floats]


@kernel
def envelope(points: Points, values: Floats, at: Points) -> Floats:
    """The least function that is 1-Lipschitz and not below ``values`` at ``points``: ``max_i values_i - |at - i|``."""
    rows, columns = at
    lowest = np.full(len(rows), -np.inf)
    for i in range(len(values)):
        row, column, value = points[0][i], points[1][i], values[i]
        for j in range(len(rows)):
            down, right = rows[j] - row, columns[j] - column
            lowest[j] = max(lowest[j], value - np.sqrt(down * down + right * right))
    return lowest


@kernel
def cheap_arcs(sources: Points, sinks: Points, u: Floats, v: Floats, limit: float) -> Arcs:
    """All pairs whose reduced cost ``d_ij - u_i + v_j`` is below ``limit``, source by source."""
    rows, columns = sinks
    tails = np.empty(1024, np.int32)
    heads = np.empty(1024, np.int32)
    lengths = np.empty(1024)
    distances = np.empty(len(rows))
    size = 0
    for i in range(len(u)):
        row, column, bar = sources[0][i], sources[1][i], u[i] + limit
        found = 0
        for j in range(len(rows)):
            down, right = rows[j] - row, columns[j] - column
            distances[j] = np.sqrt(down * down + right * right)
            found += distances[j] + v[j] < bar
        if found == 0:
            continue
        if size + found > len(tails):
            room = max(size + found, len(tails) + len(tails) // 2)
            tails, heads, lengths = _longer(tails, room), _longer(heads, room), _longer(lengths, room)
        for j in range(len(rows)):
            if distances[j] + v[j] < bar:
                tails[size], heads[size], lengths[size] = i, j, distances[j]
                size += 1
    return tails[:size], heads[:size], lengths[:size]


@part
def _longer(values: NDArray[Any], room: int) -> NDArray[Any]:
    longer = np.empty(room, values.dtype)
    for i in range(len(values)):  # to assign them at once takes the compiler two seconds
        longer[i] = values[i]
    return longer
