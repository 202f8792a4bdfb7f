"""The two questions: how far exactly, and how far within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.w1.multiscale import EXACT_GAP, SolverProgress, StopCriteria, solve
from xaibench.metrics.w1.pairs import Floats, envelope
from xaibench.metrics.w1.pyramid import Masses, TransportProblem


@dataclass(frozen=True, eq=False)
class Transport:
    """The earth mover's distance, and what proves it.

    Attributes:
        lower: No plan is cheaper: ``sum(potential * (source - target))``, in pixels times mass.
        upper: What the plan costs; the distance, when it is exact.
        origins: ``[k]`` pixels in the flattened image from which mass moves. What both images have in common stays, and
            is not listed.
        places: ``[k]`` pixels to which it moves.
        masses: ``[k]`` how much.
        potential: ``[H, W]``, 1-Lipschitz: ``|potential[x] - potential[y]| <= |x - y|`` for all pixels, which is why
            ``lower`` is a lower bound (Kantorovich and Rubinstein).
    """

    lower: float
    upper: float
    origins: NDArray[np.intp]
    places: NDArray[np.intp]
    masses: Floats
    potential: Floats

    @property
    def cost(self) -> float:
        """The cost of the plan, in pixels times mass."""
        return self.upper

    @property
    def gap(self) -> float:
        """How far apart the bounds are, relative to the upper one; 0 when both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0


def exact_emd(
    source: Floats,
    target: Floats,
    *,
    time_limit: float | None = None,
    progress: Callable[[SolverProgress], None] | None = None,
) -> Transport:
    """Earth mover's distance between two images of the same mass, exactly: the bounds meet, up to rounding.

    Args:
        source: ``[H, W]`` float64, not negative.
        target: The same, of the same sum.
        time_limit: Seconds after which the bounds reached so far are returned instead; ``None`` for no limit.
        progress: Called now and then.

    Returns:
        The distance with its plan and its potentials, which prove it: ``gap`` is rounding, some 1e-14 of the mass times
        the diameter, unless the time was up, or the rounds (``multiscale``), of which there are more than is known to
        be needed.

    Raises:
        ValueError: For shapes that differ, masses that are negative or not finite, or that do not sum to the same.

    Example:
        >>> import numpy as np
        >>> here, there = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
        >>> round(exact_emd(here, there).cost, 12)  # one unit of mass, over the diagonal
        1.414213562373
    """
    return _emd(source, target, StopCriteria(EXACT_GAP, time_limit, progress))


def interval_emd(
    source: Floats,
    target: Floats,
    *,
    tolerance: float = 0.003,
    time_limit: float | None = None,
    progress: Callable[[SolverProgress], None] | None = None,
) -> Transport:
    """Earth mover's distance between two images of the same mass, within bounds.

    Args:
        source: ``[H, W]`` float64, not negative.
        target: The same, of the same sum.
        tolerance: How far apart the bounds may be, relative to the upper one.
        time_limit: Seconds after which the bounds reached so far are returned, whatever they are.
        progress: Called now and then.

    Returns:
        The bounds with the plan and the potentials that prove them.

    Raises:
        ValueError: As in :func:`exact_emd`, and for a negative tolerance.

    Example:
        >>> import numpy as np
        >>> near, far = np.eye(32) / 32, np.fliplr(np.eye(32)) / 32
        >>> bounds = interval_emd(near, far)
        >>> bounds.lower <= exact_emd(near, far).cost <= bounds.upper, bounds.gap < 0.003
        (True, True)
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more, got {tolerance}.")
    return _emd(source, target, StopCriteria(max(tolerance, EXACT_GAP), time_limit, progress))


@cache
def warm_up() -> None:
    """Load the compiled loops, or compile them, which otherwise the first problem does."""
    upper = np.repeat([1.0, 0.0], 6)[:, None] * np.ones(12)
    exact_emd(upper, upper[::-1])  # large enough to have a coarser problem


def _emd(source: Floats, target: Floats, effort: StopCriteria) -> Transport:
    source, target = _checked(source, target)
    surplus = source - target
    if (surplus > 0).sum() >= (surplus < 0).sum():
        return _moved(surplus, effort)
    there = _moved(-surplus, effort)  # the distance is symmetric, and faster with more sources than sinks
    return Transport(there.lower, there.upper, there.places, there.origins, there.masses, -there.potential)


def _moved(surplus: Floats, effort: StopCriteria) -> Transport:
    """Carry the positive masses of an image to the negative ones."""
    diameter = math.hypot(surplus.shape[0] - 1, surplus.shape[1] - 1)
    if not ((surplus > 0).any() and (surplus < 0).any()):  # equal, up to rounding
        nothing = np.empty(0, np.intp)
        upper = float(np.abs(surplus).sum()) * diameter
        return Transport(0.0, upper, nothing, nothing, np.empty(0), np.zeros(surplus.shape))
    size = math.frexp(np.abs(surplus).max())[1]
    surplus = np.ldexp(surplus, -size)  # powers of two change no digit, and sums stay in range
    net, unit = _integers(surplus)
    level = TransportProblem(net)
    plan, u = solve(level, effort.tolerance, effort)
    potential = envelope(level.source_points, u, level.points(np.arange(surplus.size))).reshape(surplus.shape)
    potential -= (potential.max() + potential.min()) / 2  # what the masses differ by, in rounding, then counts least
    rounding = math.fsum(np.abs(surplus - net * unit).ravel())  # what the plan does not carry quite right
    upper = math.fsum(level.lengths(plan) * plan.flows) * unit + diameter * rounding
    lower = min(max(math.fsum((potential * surplus).ravel()), 0.0), upper)  # above it only by rounding
    return Transport(
        lower=math.ldexp(lower, size),
        upper=math.ldexp(upper, size),
        origins=level.sources[plan.tails],
        places=level.sinks[plan.heads],
        masses=np.ldexp(plan.flows * unit, size),
        potential=potential,
    )


def _integers(surplus: Floats) -> tuple[Masses, float]:
    """Masses as integers that sum to exactly zero, at most some 2^60 on either side, and what one of them is worth.

    Where the sides differ, by rounding, the one that has more gives it, the largest first.
    """
    power = 60 - math.frexp(max(np.maximum(surplus, 0.0).sum(), np.maximum(-surplus, 0.0).sum()))[1]
    net = np.rint(np.ldexp(surplus, power)).astype(np.int64).ravel()
    over = int(net.sum())
    sign = 1 if over > 0 else -1
    order = np.argsort(-sign * net, kind="stable")
    side = np.maximum(sign * net[order], 0)
    net[order] -= sign * np.clip(abs(over) - (np.cumsum(side) - side), 0, side)
    return net.reshape(surplus.shape), math.ldexp(1.0, -power)


def _checked(source: Floats, target: Floats) -> tuple[Floats, Floats]:
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if source.ndim != 2 or source.shape != target.shape or source.size == 0:
        raise ValueError(
            f"source and target must be two images [H, W] of the same shape, got {source.shape} and {target.shape}."
        )
    for name, image in (("source", source), ("target", target)):
        if not (np.isfinite(image).all() and (image >= 0).all()):
            raise ValueError(f"{name} must be finite and not negative, got values from {image.min()} to {image.max()}.")
    peak = max(source.max(), target.max()) or 1.0  # sums of huge values would overflow
    if not math.isclose((source / peak).sum(), (target / peak).sum(), rel_tol=1e-12):
        raise ValueError(
            f"source and target must have the same mass, got {source.sum()} and {target.sum()}. Norm them first."
        )
    return source, target
