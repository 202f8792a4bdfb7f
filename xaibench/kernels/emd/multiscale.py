"""Multiscale solution: each problem is improved from the plan of the coarser one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from xaibench.kernels.emd.pairs import Arcs, Floats, Points, cheap_arcs, envelope
from xaibench.kernels.emd.pyramid import TransportPlan, TransportProblem
from xaibench.kernels.emd.simplex import Tree, build_tree, optimize

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
