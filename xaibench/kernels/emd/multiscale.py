"""Multiscale solution: each problem is improved from the plan of the coarser one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.compilation import kernel, subroutine
from xaibench.kernels.emd.pyramid import (
    Arcs,
    Floats,
    Ints,
    Points,
    TransportPlan,
    TransportProblem,
    cheap_arcs,
    envelope,
)

#: Relative gap that counts as exact.
EXACT_GAP = 1e-12
#: Problems with at most this many pairs are solved without coarsening.
_FEW_PAIRS = 4096
#: The first pairs are those whose reduced cost is below this multiple of the initial gap.
_NEAR = 3.0
#: A pair of pixels enters the plan if it reduces the cost by at least this much, relative to the image's diagonal.
_WORTH = 1e-12
#: Maximum number of rounds, in each of which arcs are added or one pivot per node is made. About six suffice.
_MOST_ROUNDS = 200
#: Tolerance of a coarser problem, as a share of that of the finer one.
_COARSER = 0.25


@dataclass(frozen=True)
class SolverProgress:
    """State of a running solver.

    Attributes:
        shape: Size of the current problem; the bounds hold for the images only if it is their size.
        pivots: Number of simplex pivots.
        lower: Lower bound, in the unit of length: the mean distance of the mass that moves.
        upper: Cost of the best plan so far.
    """

    shape: tuple[int, ...]
    pivots: int
    lower: float
    upper: float


@dataclass(frozen=True)
class StopCriteria:
    """Tolerance and time limit.

    Attributes:
        tolerance: Gap between the bounds, relative to the upper one.
        time_limit: Seconds from ``start``; ``None`` for no limit.
        progress: Called whenever the bounds are updated.
        most_pairs: Problems with more pairs of a source and a sink are not improved: their bounds are those of the
            coarser solution.
        start: Reading of the monotonic clock.
    """

    tolerance: float
    time_limit: float | None
    progress: Callable[[SolverProgress], None] | None
    most_pairs: float = math.inf
    start: float = field(default_factory=time.monotonic)

    def expired(self) -> bool:
        """Return whether the time limit is reached."""
        return self.time_limit is not None and time.monotonic() - self.start > self.time_limit


class _Bounds:
    """Bounds of the optimal cost of a level, per unit of mass."""

    def __init__(self, level: TransportProblem, tolerance: float, effort: StopCriteria) -> None:
        self.level, self.tolerance, self.effort = level, tolerance, effort
        self.lower, self.upper, self.pivots = -math.inf, math.inf, 0
        self.u = np.empty(0)
        #: Whether to compute bounds between pivots; without it the optimum is reached sooner.
        self.is_watched = tolerance > EXACT_GAP or effort.time_limit is not None or effort.progress is not None

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def update(self, plan: TransportPlan, u: Floats, v: Floats) -> bool:
        """Update the bounds with a plan and feasible potentials; return whether they are good enough.

        This only ends a search for bounds. A search for the optimum ends when no arc improves the plan, so that the
        result does not depend on whether progress is reported.
        """
        level = self.level
        mass = level.supply.sum()
        self.upper = float(level.lengths(plan) @ plan.flows / mass)
        lower = float((u @ level.supply - v @ level.demand) / mass)
        if lower > self.lower:
            self.lower, self.u = lower, u.copy()
        if self.effort.progress is not None:
            self.effort.progress(SolverProgress(level.net.shape, self.pivots, self.lower, self.upper))
        return (self.tolerance > EXACT_GAP and self.gap <= self.tolerance * self.upper) or self.effort.expired()


def solve(level: TransportProblem, tolerance: float, effort: StopCriteria) -> tuple[TransportPlan, Floats]:
    """Return a plan and the potentials of the sources, within ``tolerance`` or as good as the time limit allows."""
    if len(level.supply) * len(level.sinks) <= _FEW_PAIRS:
        u, v = np.zeros(len(level.supply)), np.zeros(len(level.sinks))
        if len(u) == 0:  # all masses cancel within merged pixels
            return level.corner_plan(), u
        return _improve(level, level.corner_plan(), u, v, math.inf, tolerance, effort)
    coarser = level.merge()
    plan, u = solve(coarser.level, max(EXACT_GAP, tolerance * _COARSER), effort)
    plan = coarser.refine(plan)
    if len(u) == 0:
        u, v = np.zeros(len(level.supply)), np.zeros(len(level.sinks))
    else:
        v = sink_potentials(coarser.level, u, level.sink_points)
        u = -envelope(level.sink_points, -v, level.source_points)
        if level.pool:
            u = np.append(u, v.min())
    return _improve(level, plan, u, v, _NEAR, tolerance, effort)


def _improve(
    level: TransportProblem,
    plan: TransportPlan,
    u: Floats,
    v: Floats,
    near: float,
    tolerance: float,
    effort: StopCriteria,
) -> tuple[TransportPlan, Floats]:
    """Improve a plan by the network simplex until its cost equals the bound of the potentials."""
    worth = _WORTH * math.hypot(*(size * pixel for size, pixel in zip(level.net.shape, level.pixel, strict=True)))
    bounds = _Bounds(level, tolerance, effort)
    if bounds.update(plan, u, v) or len(u) * len(v) > effort.most_pairs:
        return plan, u
    arcs = _cheap_arcs(level, u, v, near * bounds.gap)
    position = 0
    for _ in range(_MOST_ROUNDS):
        tree = build_tree(len(u), (plan.tails, plan.heads, level.lengths(plan)), plan.flows, np.concatenate([u, v]))
        pivots, position, optimal = optimize(tree, len(u), arcs, worth, position, len(tree.parent))
        plan, u, v = _plan_of(tree, len(u)), tree.potential[: len(u)], tree.potential[len(u) : -1]
        bounds.pivots += pivots
        if optimal:
            more = _cheap_arcs(level, u, v, -2 * worth)  # twice, so that none of the current arcs qualifies
            if len(more[0]) == 0:
                return plan, u
            position = len(arcs[0])
            arcs = _joined(arcs, more)
        if bounds.is_watched and bounds.update(plan, u, sink_potentials(level, u, level.sink_points)):
            return plan, bounds.u
    bounds.update(plan, u, sink_potentials(level, u, level.sink_points))
    return plan, bounds.u


def sink_potentials(level: TransportProblem, u: Floats, points: Points) -> Floats:
    """Return the smallest feasible potentials of sinks at some points, given the potentials of the sources."""
    found = envelope(level.source_points, u[: len(level.sources)], points)
    return np.maximum(found, u[-1]) if level.pool else found


def _cheap_arcs(level: TransportProblem, u: Floats, v: Floats, limit: float) -> Arcs:
    """Return all pairs with a reduced cost below a limit; pairs with the pool come last."""
    pairs = cheap_arcs(level.source_points, level.sink_points, u[: len(level.sources)], v, limit)
    if not level.pool:
        return pairs
    heads = np.flatnonzero(v - u[-1] < limit).astype(np.int32)
    return _joined(pairs, (np.full(len(heads), len(level.sources), np.int32), heads, np.zeros(len(heads))))


def _joined(arcs: Arcs, more: Arcs) -> Arcs:
    return np.concatenate([arcs[0], more[0]]), np.concatenate([arcs[1], more[1]]), np.concatenate([arcs[2], more[2]])


def _plan_of(tree: Tree, sources: int) -> TransportPlan:
    """Return the flows of a tree."""
    nodes = np.flatnonzero(tree.flow)
    parents = tree.parent[nodes]
    tails, heads = np.minimum(nodes, parents), np.maximum(nodes, parents) - sources
    return TransportPlan(tails.astype(np.int32), heads.astype(np.int32), tree.flow[nodes])


_MOST = np.iinfo(np.int64).max
#: Number of pivots after which the potentials are recomputed from the tree.
_REFRESH = 1024
#: Number of arcs that are scanned at once.
_RUN = 32


class Tree(NamedTuple):
    """A spanning tree; each array has one value per node, the root last.

    Attributes:
        parent: Parent node; -1 for the root.
        next: Next node in preorder; the root for the last one.
        last: Previous node in preorder.
        depth: Number of arcs to the root.
        flow: Mass on the arc to the parent, int64.
        cost: Length of that arc.
        potential: ``potential[source] - potential[sink] = cost`` along the arcs of the tree.
    """

    parent: Ints
    next: Ints
    last: Ints
    depth: Ints
    flow: NDArray[np.int64]
    cost: Floats
    potential: Floats


@kernel
def optimize(tree: Tree, sources: int, arcs: Arcs, worth: float, position: int, limit: int) -> tuple[int, int, bool]:
    """Pivot until no arc improves the plan by more than ``worth`` per unit of mass.

    Blocks of arcs are scanned in turn; the best arc of the first block with an improving arc enters the tree.

    Args:
        tree: The basis; changed in place.
        sources: Number of nodes that are sources.
        arcs: Sources, sinks (counted from zero) and lengths.
        worth: Smallest gain.
        position: Index of the first arc to scan.
        limit: Maximum number of pivots.

    Returns:
        The number of pivots, the arc to continue with, and whether no improving arc is left.
    """
    tails, heads, costs = (
        arcs[0].view(np.uint32),
        arcs[1].view(np.uint32),
        arcs[2],
    )  # unsigned: no check for negative indices
    u, v = tree.potential[:sources], tree.potential[sources:]
    block = _RUN + int(3 * np.sqrt(len(tails)))
    pivots = looked_at = 0
    while looked_at < len(tails) and pivots < limit:
        best, chosen = -worth, -1
        stop = min(position + block, len(tails))
        for start in range(position, stop, _RUN):  # the minimum is vectorized, its position is not
            end = min(start + _RUN, stop)
            least = best
            for arc in range(start, end):
                least = min(least, costs[arc] - u[tails[arc]] + v[heads[arc]])
            if least < best:
                for arc in range(start, end):
                    reduced = costs[arc] - u[tails[arc]] + v[heads[arc]]
                    if reduced < best:
                        best, chosen = reduced, arc
        looked_at += stop - position
        position = stop if stop < len(tails) else 0
        if chosen >= 0:
            _pivot(tree, sources, arcs[0][chosen], sources + arcs[1][chosen], costs[chosen], best)
            pivots += 1
            looked_at = 0
            if pivots % _REFRESH == 0:
                _refresh(tree, sources)
    _refresh(tree, sources)
    return pivots, position, looked_at >= len(tails)


@subroutine
def _pivot(tree: Tree, sources: int, source: int, sink: int, cost: float, reduced: float) -> None:
    """Add ``source -> sink`` to the tree, and remove the arc whose flow becomes zero."""
    leaving, by_source, amount, apex = _select_leaving(tree, sources, source, sink)
    if amount > 0:
        _push(tree, sources, source, apex, -amount)
        _push(tree, sources, sink, apex, amount)
    if by_source:
        _reattach_branch(tree, source, sink, leaving, amount, cost, reduced)
    else:
        _reattach_branch(tree, sink, source, leaving, amount, cost, -reduced)


@subroutine
def _points_up(parent: Ints, sources: int, node: int) -> bool:
    """Return whether the arc between a node and its parent points to the parent."""
    return node < sources or parent[node] == len(parent) - 1


@subroutine
def _select_leaving(tree: Tree, sources: int, source: int, sink: int) -> tuple[int, bool, int, int]:
    """Select the leaving arc (strongly feasible tree rule): the last blocking arc of the cycle, from its apex.

    The cycle goes from the apex down to the source, over to the sink, and up again. When both sides are walked upwards,
    ties therefore go to the first arc on the source's side, to the last on the sink's side, and to the sink's side.

    Returns:
        The node below the leaving arc, whether it is on the source's side, its flow, and the apex.
    """
    parent, depth, flow = tree.parent, tree.depth, tree.flow
    i, j = source, sink
    out_i = out_j = -1
    least_i = least_j = _MOST
    while i != j:
        if depth[i] >= depth[j]:
            if flow[i] < least_i and _points_up(parent, sources, i):
                least_i, out_i = flow[i], i
            i = parent[i]
        else:
            if flow[j] <= least_j and not _points_up(parent, sources, j):
                least_j, out_j = flow[j], j
            j = parent[j]
    if least_i < least_j:
        return out_i, True, least_i, i
    return out_j, False, least_j, i


@subroutine
def _push(tree: Tree, sources: int, node: int, apex: int, amount: int) -> None:
    """Add flow upwards from ``node`` to ``apex``."""
    parent, flow = tree.parent, tree.flow
    while node != apex:
        flow[node] += amount if _points_up(parent, sources, node) else -amount
        node = parent[node]


@subroutine
def _reattach_branch(tree: Tree, below: int, above: int, leaving: int, amount: int, cost: float, shift: float) -> None:
    """Cut off the branch of ``leaving``, make ``below`` its top, and attach it to ``above``.

    The nodes from ``below`` up to ``leaving`` are the stem. In the new preorder the branch of ``below`` comes first,
    then for each further node of the stem the rest of its branch: the part before the stem, and the part after.
    """
    parent, following, last, depth = tree.parent, tree.next, tree.last, tree.depth
    before = last[leaving]
    floor = depth[below]
    end, after = _shift_branch(tree, below, -1, floor, depth[above] + 1 - floor, shift)
    stem, new_parent, new_flow, new_cost = below, above, amount, cost
    while True:
        up, old_flow, old_cost = parent[stem], tree.flow[stem], tree.cost[stem]
        parent[stem], tree.flow[stem], tree.cost[stem] = new_parent, new_flow, new_cost
        if stem == leaving:
            break
        floor = depth[up]
        lift = depth[stem] + 1 - floor
        following[end], last[up] = up, end
        end, _ = _shift_branch(tree, up, stem, floor, lift, shift)
        if depth[after] > floor:
            following[end], last[after] = after, end
            end, after = _shift_branch(tree, after, -1, floor, lift, shift)
        stem, new_parent, new_flow, new_cost = up, stem, old_flow, old_cost
    following[before], last[after] = after, before  # close the gap, and insert the branch
    after = following[above]
    following[above], last[below] = below, above
    following[end], last[after] = after, end


@subroutine
def _shift_branch(tree: Tree, node: int, until: int, floor: int, lift: int, shift: float) -> tuple[int, int]:
    """Add to depth and potential along the thread, up to ``until`` or to a depth of ``floor``.

    Returns:
        The last node of that part of the thread, and the node after it.
    """
    following, depth, potential = tree.next, tree.depth, tree.potential
    while True:
        depth[node] += lift
        potential[node] += shift
        after = following[node]
        if after == until or depth[after] <= floor:
            return node, after
        node = after


@subroutine
def _refresh(tree: Tree, sources: int) -> None:
    """Recompute depth and potential of all nodes from the tree and the costs of the artificial arcs."""
    parent, cost, potential = tree.parent, tree.cost, tree.potential
    root = len(parent) - 1
    node = tree.next[root]
    while node != root:
        above = parent[node]
        tree.depth[node] = tree.depth[above] + 1
        up = _points_up(parent, sources, node)
        potential[node] = potential[above] + (cost[node] if up else -cost[node])
        node = tree.next[node]


@kernel
def build_tree(sources: int, plan: Arcs, flows: NDArray[np.int64], guess: Floats) -> Tree:
    """Build the tree of a plan without cycles.

    Each component is attached to the root by its centroid, because the cost of a pivot is the size of the branch it
    moves.

    Args:
        sources: Number of nodes that are sources.
        plan: Sources, sinks (counted from zero) and lengths of the flows.
        flows: Mass of each flow, positive.
        guess: Potential of each node except the root; that of the centroid is used for the artificial arc.
    """
    nodes = len(guess)
    tails, heads, costs = plan[0], plan[1] + np.int32(sources), plan[2]
    start, around = _neighbors(nodes, tails, heads)
    none = np.full(nodes + 1, -1, np.int32)
    numbers = np.zeros(nodes + 1)
    flow = np.zeros(nodes + 1, np.int64)
    tree = Tree(none, none.copy(), none.copy(), np.zeros(nodes + 1, np.int32), flow, numbers, numbers.copy())
    order, size = np.empty(nodes, np.int32), np.ones(nodes, np.int32)
    last = nodes  # the root
    for first in range(nodes):
        if tree.last[first] >= 0:
            continue
        count = _preorder(first, tree.parent, start, around, order)
        for k in range(count - 1, 0, -1):
            size[tree.parent[order[k]]] += size[order[k]]
        centroid = first
        for k in range(count):  # the deepest with a branch of at least half of the component
            if 2 * size[order[k]] >= count:
                centroid = order[k]
        _preorder(centroid, tree.parent, start, around, order)
        tree.parent[centroid], tree.cost[centroid] = nodes, guess[centroid]
        for node in order[:count]:
            tree.next[last], tree.last[node] = node, last
            last = node
    tree.next[last], tree.last[nodes] = nodes, last
    for arc in range(len(tails)):
        node = tails[arc] if tree.parent[tails[arc]] == heads[arc] else heads[arc]
        tree.flow[node], tree.cost[node] = flows[arc], costs[arc]
    _refresh(tree, sources)
    return tree


@subroutine
def _neighbors(nodes: int, tails: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Return ``start, around``: the neighbors of node ``x`` are ``around[start[x] : start[x + 1]]``."""
    start = np.zeros(nodes + 2, np.int32)  # shifted by one, because the loop below increments
    for arc in range(len(tails)):
        start[tails[arc] + 2] += 1
        start[heads[arc] + 2] += 1
    for node in range(nodes):
        start[node + 2] += start[node + 1]
    around = np.empty(2 * len(tails), np.int32)
    for arc in range(len(tails)):
        around[start[tails[arc] + 1]] = heads[arc]
        around[start[heads[arc] + 1]] = tails[arc]
        start[tails[arc] + 1] += 1
        start[heads[arc] + 1] += 1
    return start[: nodes + 1], around


@subroutine
def _preorder(top: int, parent: Ints, start: Ints, around: Ints, order: Ints) -> int:
    """Set the parents of a component below ``top``, list its nodes in preorder, and return their number."""
    parent[top] = -1
    stack = np.empty(len(order), np.int32)
    stack[0] = top
    waiting, count = 1, 0
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        order[count] = node
        count += 1
        for neighbor in around[start[node] : start[node + 1]]:
            if neighbor != parent[node]:
                parent[neighbor] = node
                stack[waiting] = neighbor
                waiting += 1
    return count
