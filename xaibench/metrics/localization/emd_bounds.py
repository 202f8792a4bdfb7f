"""Wasserstein distance between two distributions over an image, with a proof; the solver depends on the problem size.

Masks with few pixels in small images, as in XAI-TRIS at 8×8, are solved for many maps in one compiled loop. Other small
problems use the network simplex of POT, large ones the one of :mod:`xaibench.kernels.emd`.

Numbers ``u_i``, ``v_j`` with ``u_i + v_j <= d(i, j)`` for all pairs make ``sum_i u_i p_i + sum_j v_j q_j`` a lower
bound of the cost of every plan from ``p`` to ``q``. If it equals the cost of a plan, that plan is optimal. All solvers
return such numbers, and the bound is computed from them, here and in :mod:`xaibench.kernels.emd`; the solver's own
report of success is not relied on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Bools, Floats
from xaibench.kernels.compilation import kernels_enabled
from xaibench.metrics.shared.inputs import flat, without_unit_axes

#: A lower and an upper bound of one distance.
Bounds: TypeAlias = tuple[float, float]

#: The normalization of :func:`xaibench.metrics.emd_perf`.
Diameter: TypeAlias = Literal["image", "released"]

#: Relative difference of bounds at which the distance counts as proven.
_PROVEN = 1e-9
#: Rounding error of a distance, in pixels, if nearly all mass is on the mask, where it is free.
ROUNDING = 1e-12
#: Problems with at most this many pairs of pixels are solved by POT: all problems of 16×16 images. Our solver is faster
#: from about 15,000 pairs on: by 0.4 ms per map at 20×20, by more than a second at 64×64. But loading it takes 0.6 s,
#: and compiling it 6 s once per installation, which users with small images avoid.
FEW_PAIRS = 128 * 128
#: Maps with masks of at most this many pixels, in images small enough for the pairs above, are solved many at a time:
#: for 8 pixels of 8×8 about eight times as fast as POT, for 20 pixels as fast.
FEW_PLACES = 16
#: Volumes with more pairs of voxels get bounds from merged voxels: at 96×96×96 about 0.5 % apart if mass moves far.
_PAIRS_OF_BOUNDS = 2**24
#: Volumes with more pairs of voxels have no exact distance: 2^24 pairs take 15 s, and the time grows faster than they.
_PAIRS_OF_EXACT = 2**28
#: Maximum number of pivots in POT; problems of that size need some thousands.
_MAX_PIVOTS = 100_000_000


class TransportError(RuntimeError):
    """The optimum was not reached, or not within the time limit, so the score is not known."""


def marks_few(masks: Bools) -> Bools:
    """Return ``[N]`` bool: which of the masks :func:`wasserstein_to_few` should solve."""
    marked: NDArray[np.intp] = flat(masks).sum(axis=1)
    few: Bools = (marked > 0) & (marked <= FEW_PLACES) & (marked * masks[0].size <= FEW_PAIRS)
    return few & kernels_enabled()


def group_masks(masks: Bools, spacing: Floats) -> tuple[list[int], NDArray[np.intp]]:
    """Return the index of the first mask of each group of equal ones, and the group ``[N]`` of each mask.

    Args:
        masks: ``[N, H, W]``.
        spacing: ``[N, axes]``; masks of different spacing are not equal.

    Example:
        >>> group_masks(np.array([[[True]], [[False]], [[True]]]), np.ones((3, 2)))
        ([0, 1], array([0, 1, 0]))
    """
    numbers: dict[bytes, int] = {}
    firsts: list[int] = []
    groups = np.empty(len(masks), np.intp)
    for sample, packed in enumerate(np.packbits(flat(masks), axis=1)):
        number = numbers.setdefault(packed.tobytes() + spacing[sample].tobytes(), len(firsts))
        if number == len(firsts):
            firsts.append(sample)
        groups[sample] = number
    return firsts, groups


def wasserstein_to_few(
    samples: NDArray[np.intp], maps: Floats, masks: Bools, spacing: Floats, *, free_inside: bool = False
) -> Floats:
    """Return W1 between maps and masks, both normalized to a mass of one, for masks with few pixels.

    Each sample is solved independently, so that a distance does not depend on other maps. Computations that depend only
    on the mask are shared between its maps.

    Args:
        samples: ``[N]``, indices of the maps in errors.
        maps: ``[N, H, W]``; their magnitude is used.
        masks: Same shape, none empty.
        spacing: ``[N, axes]``.
        free_inside: Whether mass moves freely between the pixels of the mask.

    Returns:
        Lower and upper bounds ``[N, 2]``; the upper bounds are the distances. NaN for maps of zeros.

    Raises:
        TransportError: If a distance could not be proven.
    """
    bounds = np.full((len(maps), 2), np.nan)
    for lengths in np.unique(spacing, axis=0):
        same = (spacing == lengths).all(axis=1)
        bounds[same] = _bounds_to_few(samples[same], maps[same], masks[same], lengths, free_inside)
    return bounds


def _bounds_to_few(samples: NDArray[np.intp], maps: Floats, masks: Bools, lengths: Floats, free_inside: bool) -> Floats:
    """Return the bounds of maps of one spacing."""
    from xaibench.kernels.emd.few_pixels import few_places_emd  # loads numba
    from xaibench.kernels.emd.pyramid import centers

    shape = maps.shape[1:]
    # A fixed layout, and writeable: the solver would be compiled again for each other type of array.
    marked = np.require(flat(masks), requirements=["C", "W"])
    groups = group_masks(masks, np.empty((len(masks), 0)))[1]
    order, pixels = np.argsort(groups, kind="stable"), centers(np.arange(marked.shape[1]), shape, lengths.tolist())
    bounds = np.full((len(maps), 2), np.nan)
    few_places_emd(flat(maps), marked, order, groups, pixels, free_inside, bounds)
    check_proven(samples, bounds, ROUNDING * lengths.max() if free_inside else 0.0)
    np.minimum(bounds[:, 1], largest_distance(shape, lengths), out=bounds[:, 1])  # larger only by rounding
    np.minimum(bounds[:, 0], bounds[:, 1], out=bounds[:, 0])
    return bounds


def check_proven(samples: NDArray[np.intp], bounds: Floats, absolute: float = 0.0) -> None:
    """Check that bounds differ by a relative error of at most 1e-9.

    Args:
        samples: ``[N]``, indices of the maps in errors.
        bounds: ``[N, 2]``, lower and upper bounds.
        absolute: Difference that is accepted in addition.

    Raises:
        TransportError: If they differ by more.
    """
    unproven = bounds[:, 1] - bounds[:, 0] > _PROVEN * bounds[:, 1] + absolute
    if unproven.any():
        first = unproven.argmax()
        raise TransportError(f"Map {samples[first]}: {_transport_error(*bounds[first])}")


def wasserstein(
    source: Floats,
    target: Floats,
    spacing: Floats,
    *,
    exact: bool = True,
    time_limit: float | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Bounds:
    """Return bounds of W1, in units of the spacing, between two distributions over the same image.

    The cost is a metric, so the mass that both have in common can stay in place: W1(p, q) = W1((p - q)+, (q - p)+).
    Each pixel is then on one side only.

    Args:
        source: ``[H, W]`` or ``[D, H, W]``, of mass one.
        target: Same shape, of mass one.
        spacing: ``[axes]``, the distance between neighboring pixels along each axis.
        exact: Compute bounds with a relative difference of at most 1e-9; the upper one is the distance. Otherwise 0.3
            %, or what merged voxels give for volumes of more than 2^24 pairs of voxels: about 0.5 % at 96×96×96.
        time_limit: Seconds, after which the bounds reached so far are returned; with ``exact`` an error is raised.
        progress: Called with bounds from time to time.

    Returns:
        A lower and an upper bound.

    Raises:
        TransportError: If the optimum was not reached, or could not be proven.
        ValueError: If an exact distance is requested in a volume of more than 2^28 pairs of voxels.
    """
    surplus = source - target  # the mass that has to move
    supply, demand = np.maximum(surplus, 0.0), np.maximum(-surplus, 0.0)
    moved, wanted = float(supply[supply > 0].sum()), float(demand[demand > 0].sum())
    if moved == 0 or wanted == 0:  # equal, up to rounding
        return 0.0, 0.0
    supply /= moved  # each side by its own sum, because they differ by rounding
    demand /= wanted
    largest = largest_distance(source.shape, spacing)
    if not kernels_enabled() or np.count_nonzero(supply) * np.count_nonzero(demand) <= FEW_PAIRS:
        lower, upper = _by_pot(supply, demand, spacing)
    else:
        report = progress and (lambda lower, upper: progress(moved * lower, min(moved * upper, largest)))
        lower, upper = _by_levels(supply, demand, spacing, exact, time_limit, report)
    proven = upper - lower <= _PROVEN * upper
    upper = min(moved * upper, largest)  # larger only by rounding
    lower = min(moved * lower, upper)
    if proven or not exact:
        return lower, upper
    raise _transport_error(lower, upper, time_limit)


def _transport_error(lower: float, upper: float, time_limit: float | None = None) -> TransportError:
    known = f"the distance is between {lower:.9g} and {upper:.9g} pixels (or units of the spacing)"
    if time_limit is None:
        return TransportError(f"The optimum was not reached: {known}. Please report this map.")
    return TransportError(
        f"The time limit of {time_limit} s was reached: {known}. Allow more time, or pass exact=False."
    )


def largest_distance(shape: Sequence[int], spacing: Floats) -> float:
    """Return the largest distance between two pixels of an image or volume of this shape."""
    return math.hypot(*((size - 1) * length for size, length in zip(shape, spacing.tolist(), strict=True)))


def diameters(shape: Sequence[int], spacing: Floats, kind: Diameter) -> Floats:
    """Return the distances by which performances are normalized: the largest of an image, or that of the released code.

    Args:
        shape: Shape of the images.
        spacing: ``[N, axes]``.
        kind: Which one.

    Returns:
        ``[N]``; 1 for an image of one pixel, where all distances are 0.

    Raises:
        ValueError: For ``"released"`` and images that are not square, or pixels that are not of length one.
    """
    if kind == "image":
        return np.array([largest_distance(shape, lengths) or 1.0 for lengths in spacing])
    if len(shape) != 2 or shape[0] != shape[1]:
        sizes = "×".join(map(str, shape))
        raise ValueError(f"diameter='released' is defined for square images, got {sizes}. Use diameter='image'.")
    if (spacing != 1).any():
        raise ValueError("diameter='released' is in pixels, got a spacing. Use diameter='image', or spacing=None.")
    return np.full(len(spacing), math.sqrt(2 * shape[0] * shape[1]))


def _by_pot(supply: Floats, demand: Floats, spacing: Floats) -> Bounds:
    """Return bounds from the full cost matrix. The smaller side forms the rows, which is faster."""
    from scipy.spatial.distance import cdist

    if np.count_nonzero(supply) > np.count_nonzero(demand):
        supply, demand = demand, supply
    costs = cdist(np.argwhere(supply) * spacing, np.argwhere(demand) * spacing)
    return solve_with_pot(supply[supply > 0], demand[demand > 0], costs)


def solve_with_pot(supply: Floats, demand: Floats, costs: Floats) -> Bounds:
    """Return bounds of the smallest cost of a plan, by the network simplex of POT.

    Args:
        supply: ``[n]``, of mass one.
        demand: ``[m]``, of mass one.
        costs: ``[n, m]`` of a unit.

    Raises:
        TransportError: If the simplex ended without an optimum.
    """
    # Imported on use: POT loads torch if it is installed, and no other metric of maps and masks needs either.
    from ot.lp import emd

    _, log = emd(
        supply,
        demand,
        costs,
        numItermax=_MAX_PIVOTS,
        log=True,
        center_dual=False,
        check_marginals=False,  # they sum to one by construction
    )
    if log["result_code"] != 1:
        raise TransportError(
            f"The network simplex of POT ended without an optimum ({log['warning'] or 'unknown cause'}) for "
            f"{len(supply)}×{len(demand)} pixels. Please report this map."
        )
    u = np.asarray(log["u"])
    v = (costs - u[:, None]).min(axis=0)  # the largest feasible values for u
    return float(u @ supply + v @ demand), float(log["cost"])


def check_exact_size(shape: Sequence[int], pairs: int) -> None:
    """Raise a ValueError for a volume with more pairs of voxels than an exact distance is feasible for."""
    if _is_volume(shape) and pairs > _PAIRS_OF_EXACT:
        raise ValueError(
            f"A volume of {'×'.join(map(str, shape))} voxels has {pairs:,} pairs of voxels between which mass can "
            f"move, expected at most {_PAIRS_OF_EXACT:,} for an exact distance. Resize maps and masks, such as to half "
            "of the size, or use emd or emd_perf with exact=False."
        )


def _is_volume(shape: Sequence[int]) -> bool:
    return len(without_unit_axes(shape)) > 2


def _by_levels(
    supply: Floats,
    demand: Floats,
    spacing: Floats,
    exact: bool,
    time_limit: float | None,
    progress: Callable[[float, float], None] | None,
) -> Bounds:
    """Return bounds from coarse to fine, without the cost matrix."""
    from xaibench.kernels import emd as w1

    if exact:
        check_exact_size(supply.shape, int(np.count_nonzero(supply)) * int(np.count_nonzero(demand)))

    def report(state: w1.SolverProgress) -> None:
        if progress is not None and state.shape == supply.shape:  # coarser problems have other bounds
            progress(state.lower, state.upper)

    if time_limit is not None:
        w1.warm_up()  # compilation does not count towards the limit
    most_pairs = _PAIRS_OF_BOUNDS if _is_volume(supply.shape) else math.inf
    solve = w1.exact_emd if exact else functools.partial(w1.interval_emd, most_pairs=most_pairs)
    bounds = solve(
        supply, demand, spacing=spacing.tolist(), time_limit=time_limit, progress=report if progress else None
    )
    return bounds.lower, bounds.upper
