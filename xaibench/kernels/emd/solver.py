"""Exact earth mover's distance, and bounds of it within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.emd.multiscale import EXACT_GAP, SolverProgress, StopCriteria, sink_potentials, solve
from xaibench.kernels.emd.pyramid import Floats, Masses, TransportProblem, envelope


@dataclass(frozen=True, eq=False)
class Transport:
    """Earth mover's distance with its proof.

    Attributes:
        lower: Lower bound of all plans: ``sum(potential * (source - target))``, in units of length times mass.
        upper: Cost of the plan; the distance, if it is exact.
        origins: ``[k]`` pixels in the flattened image from which mass moves. Mass that both images have in common stays
            in place and is not listed.
        places: ``[k]`` pixels to which it moves.
        masses: ``[k]`` moved masses.
        potential: Shape of the images, 1-Lipschitz: ``|potential[x] - potential[y]| <= |x - y|`` for all pixels, so
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
        """Cost of the plan, in units of length times mass."""
        return self.upper

    @property
    def gap(self) -> float:
        """Difference of the bounds relative to the upper one; 0 if both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0


def exact_emd(
    source: Floats,
    target: Floats,
    *,
    spacing: Sequence[float] | None = None,
    time_limit: float | None = None,
    progress: Callable[[SolverProgress], None] | None = None,
) -> Transport:
    """Compute the earth mover's distance between two images of the same mass exactly: the bounds agree up to rounding.

    Args:
        source: ``[H, W]`` or ``[D, H, W]`` float64, not negative.
        target: Same shape and sum.
        spacing: Distance of neighboring pixels along each axis, the unit of length; None for one.
        time_limit: Seconds after which the bounds reached so far are returned instead; ``None`` for no limit.
        progress: Called from time to time.

    Returns:
        The distance with its plan and potentials, which prove it: ``gap`` is rounding error, about 1e-14 of the mass
        times the diameter, unless the time limit or the maximum number of rounds (``multiscale``) was reached.

    Raises:
        ValueError: If shapes differ, masses are negative or not finite, or sums differ.

    Example:
        >>> import numpy as np
        >>> here, there = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
        >>> round(exact_emd(here, there).cost, 12)  # one unit of mass, over the diagonal
        1.414213562373
    """
    return _emd(source, target, spacing, StopCriteria(EXACT_GAP, time_limit, progress))


def interval_emd(
    source: Floats,
    target: Floats,
    *,
    tolerance: float = 0.003,
    spacing: Sequence[float] | None = None,
    time_limit: float | None = None,
    most_pairs: float = math.inf,
    progress: Callable[[SolverProgress], None] | None = None,
) -> Transport:
    """Compute bounds of the earth mover's distance between two images of the same mass.

    Args:
        source: ``[H, W]`` or ``[D, H, W]`` float64, not negative.
        target: Same shape and sum.
        tolerance: Largest difference of the bounds, relative to the upper one.
        spacing: As in :func:`exact_emd`.
        time_limit: Seconds after which the bounds reached so far are returned, regardless of the tolerance.
        most_pairs: Larger problems, by the number of pairs of pixels between which mass can move, get the bounds of the
            problem with merged pixels, regardless of the tolerance.
        progress: Called from time to time.

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
    return _emd(source, target, spacing, StopCriteria(max(tolerance, EXACT_GAP), time_limit, progress, most_pairs))


def emd_with_free_mass(
    source: Floats, target: Floats, *, spacing: Sequence[float] | None = None
) -> tuple[float, float]:
    """Compute the cost of moving a mass into a larger target whose remainder is filled at no cost.

    Args:
        source: ``[H, W]`` or ``[D, H, W]`` float64, not negative, zero where the target is not.
        target: Same shape, not negative, of larger sum: by at least 1e-12 of it.
        spacing: As in :func:`exact_emd`.

    Returns:
        Lower and upper bound of the distance in units of length times mass. They agree up to rounding: about 1e-14 of
        the mass times the diameter.

    Example:
        >>> import numpy as np
        >>> lower, upper = emd_with_free_mass(np.array([[0.0, 0.0, 0.25]]), np.array([[0.5, 0.5, 0.0]]))
        >>> lower == upper == 0.25  # the second pixel has room for all of it
        True
    """
    pixel = _pixel(source, spacing)
    diameter = _diameter(source, pixel)
    size = math.frexp(max(source.max(), target.max()))[1]
    surplus = np.ldexp(source - target, -size)
    power = 60 - math.frexp(float(-surplus[surplus < 0].sum()))[1]
    net, unit = np.rint(np.ldexp(surplus, power)).astype(np.int64), math.ldexp(1.0, -power)
    level = TransportProblem(net, pixel, pool=-int(net.sum()))
    plan, u = solve(level, EXACT_GAP, StopCriteria(EXACT_GAP, None, None))
    v = sink_potentials(level, u, level.sink_points)
    rounding = diameter * math.fsum(np.abs(surplus - net * unit).ravel())
    upper = math.fsum(level.lengths(plan) * plan.flows) * unit + rounding
    bound = (math.fsum(u * level.supply) - math.fsum(v * level.demand)) * unit - rounding
    lower = min(max(bound, 0.0), upper)  # larger only by rounding
    return math.ldexp(lower, size), math.ldexp(upper, size)


@cache
def warm_up() -> None:
    """Load or compile the loops, which otherwise happens in the first problem."""
    upper = np.repeat([1.0, 0.0], 6)[:, None] * np.ones(12)
    exact_emd(upper, upper[::-1])  # large enough to use a coarser problem


def _emd(source: Floats, target: Floats, spacing: Sequence[float] | None, effort: StopCriteria) -> Transport:
    source, target = _checked(source, target)
    pixel = _pixel(source, spacing)
    surplus = source - target
    if (surplus > 0).sum() >= (surplus < 0).sum():
        return _transport(surplus, pixel, effort)
    # The distance is symmetric, and faster to compute with more sources than sinks.
    there = _transport(-surplus, pixel, effort)
    return Transport(there.lower, there.upper, there.places, there.origins, there.masses, -there.potential)


def _transport(surplus: Floats, pixel: tuple[float, ...], effort: StopCriteria) -> Transport:
    """Transport the positive masses of an image to the negative ones."""
    diameter = _diameter(surplus, pixel)
    if not ((surplus > 0).any() and (surplus < 0).any()):  # equal, up to rounding
        nothing = np.empty(0, np.intp)
        upper = float(np.abs(surplus).sum()) * diameter
        return Transport(0.0, upper, nothing, nothing, np.empty(0), np.zeros(surplus.shape))
    size = math.frexp(np.abs(surplus).max())[1]
    surplus = np.ldexp(surplus, -size)  # powers of two are exact, and keep sums in range
    net, unit = _integers(surplus)
    level = TransportProblem(net, pixel)
    plan, u = solve(level, effort.tolerance, effort)
    potential = _potential(level, u).reshape(surplus.shape)
    potential -= (potential.max() + potential.min()) / 2  # minimizes the effect of rounding differences
    rounding = math.fsum(np.abs(surplus - net * unit).ravel())  # rounding error of the plan's masses
    upper = math.fsum(level.lengths(plan) * plan.flows) * unit + diameter * rounding
    lower = min(max(math.fsum((potential * surplus).ravel()), 0.0), upper)  # larger only by rounding
    return Transport(
        lower=math.ldexp(lower, size),
        upper=math.ldexp(upper, size),
        origins=level.sources[plan.tails],
        places=level.sinks[plan.heads],
        masses=np.ldexp(plan.flows * unit, size),
        potential=potential,
    )


def _potential(level: TransportProblem, u: Floats) -> Floats:
    """Return a 1-Lipschitz function of all pixels, given the potentials of the sources."""
    pixels = level.points(np.arange(level.net.size))
    if sum(size > 1 for size in level.net.shape) < 3:
        return envelope(level.source_points, u, pixels)
    # Volumes have many more voxels with surplus than sinks, whose envelope is as good.
    return -envelope(level.sink_points, -sink_potentials(level, u, level.sink_points), pixels)


def _integers(surplus: Floats) -> tuple[Masses, float]:
    """Convert masses to integers that sum to exactly zero, at most about 2^60 on either side; also return their unit.

    If the sides differ by rounding, the larger side is reduced, the largest masses first.
    """
    power = 60 - math.frexp(max(np.maximum(surplus, 0.0).sum(), np.maximum(-surplus, 0.0).sum()))[1]
    net = np.rint(np.ldexp(surplus, power)).astype(np.int64).ravel()
    over = int(net.sum())
    sign = 1 if over > 0 else -1
    order = np.argsort(-sign * net, kind="stable")
    side = np.maximum(sign * net[order], 0)
    net[order] -= sign * np.clip(abs(over) - (np.cumsum(side) - side), 0, side)
    return net.reshape(surplus.shape), math.ldexp(1.0, -power)


def _pixel(image: Floats, spacing: Sequence[float] | None) -> tuple[float, ...]:
    return (1.0,) * image.ndim if spacing is None else tuple(map(float, spacing))


def _diameter(image: Floats, pixel: tuple[float, ...]) -> float:
    return math.hypot(*((size - 1) * length for size, length in zip(image.shape, pixel, strict=True)))


def _checked(source: Floats, target: Floats) -> tuple[Floats, Floats]:
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if source.ndim not in (2, 3) or source.shape != target.shape or source.size == 0:
        raise ValueError(
            "source and target must be two images [H, W] or volumes [D, H, W] of the same shape, got "
            f"{source.shape} and {target.shape}."
        )
    for name, image in (("source", source), ("target", target)):
        if not (np.isfinite(image).all() and (image >= 0).all()):
            raise ValueError(f"{name} must be finite and not negative, got values from {image.min()} to {image.max()}.")
    peak = max(source.max(), target.max()) or 1.0  # sums of huge values would overflow
    if not math.isclose((source / peak).sum(), (target / peak).sum(), rel_tol=1e-12):
        raise ValueError(
            f"source and target must have the same mass, got {source.sum()} and {target.sum()}. Normalize them first."
        )
    return source, target
