"""From coarse to fine: each problem is bettered from where the coarser one leaves it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from xaibench.metrics.w1.pairs import Arcs, Floats, cheap_arcs, envelope
from xaibench.metrics.w1.pyramid import TransportPlan, TransportProblem
from xaibench.metrics.w1.simplex import Tree, optimise, plant

#: Relative gap that counts as none.
EXACT_GAP = 1e-12
#: Problems with no more pairs than this are solved as they are.
_FEW_PAIRS = 4096
#: Pairs whose reduced cost is below this many times the gap to begin with are looked at first.
_NEAR = 3.0
#: A pair has to be worth more than this, relative to the diagonal of the image, to change the plan.
_WORTH = 1e-12
#: Times that arcs are added, or that as many pivots are made as there are nodes. Six or so do.
_MOST_ROUNDS = 200
#: A coarser problem is solved to this part of the tolerance of the finer one.
_COARSER = 0.25


@dataclass(frozen=True)
class SolverProgress:
    """Where a run stands.

    Attributes:
        shape: Size of the problem at hand; only when it is that of the images, the bounds are theirs.
        pivots: Steps of the simplex on it.
        lower: No plan is cheaper; in pixels, the mean way of the mass that moves.
        upper: What the best plan so far costs.
    """

    shape: tuple[int, int]
    pivots: int
    lower: float
    upper: float


@dataclass(frozen=True)
class StopCriteria:
    """How good is good enough, and when to stop before that.

    Attributes:
        tolerance: Gap between the bounds, relative to the upper one.
        time_limit: Seconds from ``start``; ``None`` for no limit.
        progress: Called whenever the bounds have been looked at.
        start: Reading of the monotonic clock.
    """

    tolerance: float
    time_limit: float | None
    progress: Callable[[SolverProgress], None] | None
    start: float = field(default_factory=time.monotonic)

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.time_limit is not None and time.monotonic() - self.start > self.time_limit


class _Bounds:
    """What is known of the cost of the best plan of a level, for one unit of mass."""

    def __init__(self, level: TransportProblem, tolerance: float, effort: StopCriteria) -> None:
        self.level, self.tolerance, self.effort = level, tolerance, effort
        self.lower, self.upper, self.pivots = -math.inf, math.inf, 0
        self.u = np.empty(0)
        #: Whether to look at the bounds between pivots; if nobody asks, the optimum comes soonest without.
        self.watched = tolerance > EXACT_GAP or effort.time_limit is not None or effort.progress is not None

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def suffice(self, plan: TransportPlan, u: Floats, v: Floats) -> bool:
        """Take a plan and feasible potentials into account; whether to leave it at the best so far.

        This ends the search for bounds. That for the optimum ends where nothing betters it, so that the result does not
        depend on whether anybody watched.
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
    """A plan, and potentials of the sources: as good as ``tolerance`` asks for, or as time allows."""
    if len(level.sources) * len(level.sinks) <= _FEW_PAIRS:
        u, v = np.zeros(len(level.sources)), np.zeros(len(level.sinks))
        if len(u) == 0:  # all masses met within their merged pixels
            return level.corner_plan(), u
        return _improve(level, level.corner_plan(), u, v, math.inf, tolerance, effort)
    coarser = level.merge()
    plan, u = solve(coarser.level, max(EXACT_GAP, tolerance * _COARSER), effort)
    plan = coarser.refine(plan)
    if len(u) == 0:
        u, v = np.zeros(len(level.sources)), np.zeros(len(level.sinks))
    else:
        v = envelope(coarser.level.source_points, u, level.sink_points)
        u = -envelope(level.sink_points, -v, level.source_points)
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
    """Better a plan by the network simplex until it costs no more than the potentials allow."""
    sources, sinks = level.source_points, level.sink_points
    worth = _WORTH * math.hypot(*(size * pixel for size, pixel in zip(level.net.shape, level.pixel, strict=True)))
    bounds = _Bounds(level, tolerance, effort)
    if bounds.suffice(plan, u, v):
        return plan, u
    arcs = cheap_arcs(sources, sinks, u, v, near * bounds.gap)
    position = 0
    for _ in range(_MOST_ROUNDS):
        tree = plant(len(u), (plan.tails, plan.heads, level.lengths(plan)), plan.flows, np.concatenate([u, v]))
        pivots, position, optimal = optimise(tree, len(u), arcs, worth, position, len(tree.parent))
        plan, u, v = _harvest(tree, len(u)), tree.potential[: len(u)], tree.potential[len(u) : -1]
        bounds.pivots += pivots
        if optimal:
            more = cheap_arcs(sources, sinks, u, v, -2 * worth)  # twice: what is left of the arcs at hand is not more
            if len(more[0]) == 0:
                return plan, u
            position = len(arcs[0])
            arcs = _joined(arcs, more)
        if bounds.watched and bounds.suffice(plan, u, envelope(sources, u, sinks)):
            return plan, bounds.u
    bounds.suffice(plan, u, envelope(sources, u, sinks))
    return plan, bounds.u


def _joined(arcs: Arcs, more: Arcs) -> Arcs:
    return np.concatenate([arcs[0], more[0]]), np.concatenate([arcs[1], more[1]]), np.concatenate([arcs[2], more[2]])


def _harvest(tree: Tree, sources: int) -> TransportPlan:
    """The flows of a tree."""
    nodes = np.flatnonzero(tree.flow)
    parents = tree.parent[nodes]
    tails, heads = np.minimum(nodes, parents), np.maximum(nodes, parents) - sources
    return TransportPlan(tails.astype(np.int32), heads.astype(np.int32), tree.flow[nodes])
