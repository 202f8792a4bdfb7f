"""A transport problem between pixels, its coarser versions, and loops over all pairs of a source and a sink.

Masses are integers, so merging pixels, splitting flows and comparing remainders is exact. Distances are computed on the
fly, without a matrix. Points are ``(slices, rows, columns)``, three float64 arrays in units of length; the slices of an
image are all zero. Potentials ``u`` of the sources and ``v`` of the sinks are *feasible* if ``u_i - v_j <= d_ij`` for
all pairs; then ``sum_i u_i a_i - sum_j v_j b_j`` is a lower bound of the cost of every plan from ``a`` to ``b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

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


Masses: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.intp]


def centers(places: Indices, shape: Sequence[int], pixel: Sequence[float]) -> Points:
    """Return the centers of pixels, given their indices in the flattened image or volume.

    Args:
        places: ``[n]`` indices.
        shape: Size of the image along its axes, at most three.
        pixel: Length of a pixel along each axis.

    Example:
        >>> [axis.tolist() for axis in centers(np.array([0, 5]), (2, 3), (1.0, 2.0))]
        [[0.0, 0.0], [0.5, 1.5], [1.0, 5.0]]
    """
    found: list[Floats] = [np.zeros(len(places))] * (3 - len(shape))
    for axis, length in zip(np.unravel_index(places, tuple(shape)), pixel, strict=True):
        found.append(np.asarray((axis + 0.5) * length, dtype=np.float64))
    slices, rows, columns = found
    return slices, rows, columns


@dataclass(frozen=True)
class TransportPlan:
    """Flows from sources to sinks: a forest (no cycles) without flows of zero.

    Attributes:
        tails: Source of each flow, ``[k]``, an index among the sources.
        heads: Sink of each flow, ``[k]``, an index among the sinks.
        flows: Mass, ``[k]``, all positive.
    """

    tails: Ints
    heads: Ints
    flows: Masses


@dataclass(frozen=True)
class TransportProblem:
    """Transport of the positive masses of an image, and of a pool, to the negative ones.

    The pool is one more source, the last one, at distance 0 from every sink.

    Attributes:
        net: Masses of the pixels, ``[H, W]`` or ``[D, H, W]`` int64; their sum is minus the mass of the pool.
        pixel: Length of a pixel along each axis, in the unit of length of all levels.
        pool: Mass of the pool; 0 = there is none.
    """

    net: Masses
    pixel: tuple[float, ...]
    pool: int = 0

    @cached_property
    def sources(self) -> Indices:
        """Index of each pixel with surplus, in the flattened image."""
        return np.flatnonzero(self.net > 0)

    @cached_property
    def sinks(self) -> Indices:
        """Index of each pixel with demand, in the flattened image."""
        return np.flatnonzero(self.net < 0)

    @cached_property
    def supply(self) -> Masses:
        """Mass of each source, the pool included."""
        masses = self.net.ravel()[self.sources]
        return np.append(masses, self.pool) if self.pool else masses

    @cached_property
    def demand(self) -> Masses:
        """Demand of each sink."""
        return -self.net.ravel()[self.sinks]

    @cached_property
    def source_points(self) -> Points:
        """Centers of the sources."""
        return self.points(self.sources)

    @cached_property
    def sink_points(self) -> Points:
        """Centers of the sinks."""
        return self.points(self.sinks)

    def points(self, places: Indices) -> Points:
        """Return the centers of the pixels ``places``."""
        return centers(places, self.net.shape, self.pixel)

    def lengths(self, plan: TransportPlan) -> Floats:
        """Return the length of each flow; 0 from the pool."""
        lengths = np.zeros(len(plan.tails))
        moved = plan.tails < len(self.sources)
        tails, heads = plan.tails[moved], plan.heads[moved]
        ends = zip(self.source_points, self.sink_points, strict=True)
        deep, down, right = (tail[tails] - head[heads] for tail, head in ends)
        lengths[moved] = np.hypot(np.hypot(down, right), deep)
        return lengths

    def corner_plan(self) -> TransportPlan:
        """Return the plan of the north-west-corner rule: sources in their order fill sinks in theirs."""
        whole = np.zeros(1, np.intp), np.zeros(1, np.intp), self.supply.sum(keepdims=True)
        return self._spread(*whole, np.zeros(len(self.supply), np.intp), np.zeros_like(self.sinks), 1)

    def merge(self) -> Coarsening:
        """Return the problem with pixels merged two by two, along the finer axis (if equal: the longer one)."""
        shape, pixel = self.net.shape, self.pixel
        axis = min((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: (pixel[axis], -shape[axis]))
        step = tuple(2 if other == axis else 1 for other in range(len(shape)))
        surplus, lack = _merge(np.maximum(self.net, 0), axis), _merge(np.maximum(-self.net, 0), axis)
        merged = tuple(length * by for length, by in zip(pixel, step, strict=True))
        return Coarsening(self, TransportProblem(surplus - lack, merged, self.pool), np.minimum(surplus, lack), step)

    def _spread(
        self, tails: Indices, heads: Indices, flows: Masses, source_blocks: Indices, sink_blocks: Indices, blocks: int
    ) -> TransportPlan:
        """Distribute flows between blocks over their pixels."""
        return TransportPlan(
            *_spread(
                (tails, heads, flows),
                (np.argsort(source_blocks, kind="stable"), _starts(source_blocks, blocks), self.supply),
                (np.argsort(sink_blocks, kind="stable"), _starts(sink_blocks, blocks), self.demand),
            )
        )


@dataclass(frozen=True)
class Coarsening:
    """A problem and its version with merged pixels.

    Attributes:
        fine: The original problem.
        level: The coarser problem.
        common: Mass that is moved within a merged pixel, int64 of the coarser shape.
        step: Number of pixels per merged pixel along each axis.
    """

    fine: TransportProblem
    level: TransportProblem
    common: Masses
    step: tuple[int, ...]

    def refine(self, plan: TransportPlan) -> TransportPlan:
        """Convert a plan of the coarser problem to the finer: each flow stays within its two merged pixels."""
        inside, blocks = np.flatnonzero(self.common), self.common.size
        pool = [blocks] if self.fine.pool else []  # the pool is a block of its own
        tails = np.concatenate([inside, np.append(self.level.sources, pool).astype(np.intp)[plan.tails]])
        heads = np.concatenate([inside, self.level.sinks[plan.heads]])
        flows = np.concatenate([self.common.ravel()[inside], plan.flows])
        fine = self.fine
        sources = np.append(self._blocks(fine.sources), pool).astype(np.intp)
        return fine._spread(tails, heads, flows, sources, self._blocks(fine.sinks), blocks + 1)

    def _blocks(self, places: Indices) -> Indices:
        index = np.unravel_index(places, self.fine.net.shape)
        blocks = tuple(axis // by for axis, by in zip(index, self.step, strict=True))
        return np.ravel_multi_index(blocks, self.common.shape)


def _merge(masses: Masses, axis: int) -> Masses:
    return np.add.reduceat(masses, np.arange(0, masses.shape[axis], 2), axis=axis)


def _starts(blocks: Indices, count: int) -> Indices:
    """Return the start index of each block in the pixels sorted by block."""
    return cast(Indices, np.concatenate([[0], np.cumsum(np.bincount(blocks, minlength=count))]))


@kernel
def _spread(
    arcs: tuple[Indices, Indices, Masses],
    sources: tuple[Indices, Indices, Masses],
    sinks: tuple[Indices, Indices, Masses],
) -> tuple[Ints, Ints, Masses]:
    """Convert flows between blocks to flows between pixels; a forest if the flows between blocks are a forest.

    Within a block, pixels serve arcs in order (the north-west-corner rule), on both sides. Flows within a block do not
    cross, so a cycle between pixels would imply a cycle between blocks.
    """
    supply, demand = sources[2].copy(), sinks[2].copy()
    next_source, next_sink = sources[1].copy(), sinks[1].copy()
    most = len(arcs[0]) + len(supply) + len(demand)
    tails, heads, flows = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)
    size = 0
    for arc in range(len(arcs[0])):
        start, end, rest = arcs[0][arc], arcs[1][arc], arcs[2][arc]
        while rest > 0:
            i, j = sources[0][next_source[start]], sinks[0][next_sink[end]]
            flow = min(rest, supply[i], demand[j])
            tails[size], heads[size], flows[size] = i, j, flow
            size += 1
            rest -= flow
            supply[i] -= flow
            demand[j] -= flow
            if supply[i] == 0:
                next_source[start] += 1
            if demand[j] == 0:
                next_sink[end] += 1
    return tails[:size], heads[:size], flows[:size]
