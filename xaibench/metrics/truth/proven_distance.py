"""The distance between two distributions over an image, proven, by whichever solver is the right one for its size.

Where few pixels are marked in a small image, as in XAI-TRIS at 8×8, many maps are solved in one compiled loop. Other
small problems go to the network simplex of POT, and large ones to that of :mod:`xaibench.metrics.w1`.

Numbers ``u_i``, ``v_j`` with ``u_i + v_j <= d(i, j)`` for all pairs make ``sum_i u_i p_i + sum_j v_j q_j`` a lower
bound of the cost of every plan from ``p`` to ``q``. Where it meets the cost of the plan at hand, that plan is the best
one. All solvers give such numbers, and the bound is computed from them, here and in :mod:`xaibench.metrics.w1`: that a
solver says it is done is not taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A lower and an upper bound of one distance.
Bounds: TypeAlias = tuple[float, float]

#: What :func:`xaibench.metrics.emd_perf` divides a distance by.
Diameter: TypeAlias = Literal["image", "released"]

#: Bounds that are no further apart than this part of the distance prove it.
_PROVEN = 1e-9
#: Problems with no more pairs of pixels than this go to POT: all that images of 16×16 can have. Once it is loaded, ours
#: is faster from some 15,000 on: by 0.4 ms a map at 20×20, by more than a second at 64×64. But loading it takes 0.6 s,
#: and compiling it 6 s, once for each installation, which those who only have small images need not pay.
FEW_PAIRS = 128 * 128
#: Maps over masks that mark no more pixels than this, in images small enough for the pairs above, are solved many at a
#: time: at 8 pixels of 8×8 some eight times as fast as POT's call, at 20 as fast.
FEW_PLACES = 16
#: Pivots that POT may take; problems of that size need some thousands.
_MAX_PIVOTS = 100_000_000


class TransportError(RuntimeError):
    """The optimum was not reached, or not in time; there is no score to give."""


def marks_few(masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[N]``: which of the masks ``[N, H, W]`` are a matter for :func:`wasserstein_to_few`."""
    marked: NDArray[np.intp] = masks.sum(axis=(1, 2))
    few: NDArray[np.bool_] = (marked > 0) & (marked <= FEW_PLACES) & (marked * masks[0].size <= FEW_PAIRS)
    return few


def wasserstein_to_few(
    samples: NDArray[np.intp], maps: NDArray[np.float64], masks: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """W1 in pixels between maps and masks, both normed to a mass of one, where masks mark few pixels.

    Each is solved by itself, so that no distance depends on the other maps; what depends on the mask alone is done once
    for all maps that share it.

    Args:
        samples: ``[N]``, what errors call the maps.
        maps: ``[N, H, W]``, taken by magnitude.
        masks: The same, none empty.

    Returns:
        Lower and upper bounds ``[N, 2]``, the latter the distances; ``nan`` for maps that are zero everywhere.

    Raises:
        TransportError: If one could not be proven.
    """
    from xaibench.metrics.w1.few_places import few_places_emd  # loads numba

    height, width = maps.shape[1:]
    # Of one layout, and writeable: for each other kind of array the solver would be compiled anew.
    flat = np.require(masks.reshape(len(masks), -1), requirements=["C", "W"])
    groups = np.unique(np.packbits(flat, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    bounds = np.full((len(maps), 2), np.nan)
    few_places_emd(maps.reshape(len(maps), -1), flat, np.argsort(groups, kind="stable"), groups, width, bounds)
    unproven = bounds[:, 1] - bounds[:, 0] > _PROVEN * bounds[:, 1]
    if unproven.any():
        first = unproven.argmax()
        raise TransportError(f"Map {samples[first]}: {_not_reached(*bounds[first])}")
    np.minimum(bounds[:, 1], largest_distance(height, width), out=bounds[:, 1])  # no way is longer; rounding may be
    np.minimum(bounds[:, 0], bounds[:, 1], out=bounds[:, 0])
    return bounds


def wasserstein(
    source: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    exact: bool = True,
    time_limit: float | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Bounds:
    """W1 in pixels between two distributions over the same image.

    The cost is a metric, so the mass that both have in common can stay: W1(p, q) = W1((p - q)+, (q - p)+). Each pixel
    is then on one side only.

    Args:
        source: ``[H, W]``, of mass one.
        target: The same.
        exact: Bounds at most 1e-9 of the distance apart, the upper one of which is the distance. Else 0.3 %.
        time_limit: Seconds; then the bounds reached so far, or if ``exact`` the error.
        progress: Told bounds now and then.

    Returns:
        A lower and an upper bound.

    Raises:
        TransportError: If the optimum was not reached, or could not be proven.
    """
    surplus = source - target  # what has to move
    supply, demand = np.maximum(surplus, 0.0), np.maximum(-surplus, 0.0)
    moved, wanted = float(supply[supply > 0].sum()), float(demand[demand > 0].sum())
    if moved == 0 or wanted == 0:  # equal, up to rounding
        return 0.0, 0.0
    supply /= moved  # each side by its own sum: they differ by rounding, which would count where little moves
    demand /= wanted
    largest = largest_distance(*source.shape)
    if np.count_nonzero(supply) * np.count_nonzero(demand) <= FEW_PAIRS:
        lower, upper = _by_pot(supply, demand)
    else:
        report = progress and (lambda lower, upper: progress(moved * lower, min(moved * upper, largest)))
        lower, upper = _by_levels(supply, demand, exact, time_limit, report)
    proven = upper - lower <= _PROVEN * upper
    upper = min(moved * upper, largest)  # no way is longer; rounding may be
    lower = min(moved * lower, upper)
    if proven or not exact:
        return lower, upper
    raise _not_reached(lower, upper, time_limit)


def _not_reached(lower: float, upper: float, time_limit: float | None = None) -> TransportError:
    known = f"the distance lies between {lower:.9g} and {upper:.9g} pixels"
    if time_limit is None:
        return TransportError(f"The optimum was not reached: {known}. Please report this map.")
    return TransportError(f"{time_limit} s were not enough: {known}. Allow more time, or pass exact=False for bounds.")


def largest_distance(height: int, width: int) -> float:
    """The largest distance between two pixels."""
    return math.hypot(height - 1, width - 1)


def diameter_of(height: int, width: int, kind: Diameter) -> float:
    """The distance that a performance is relative to: the largest of the image, or that of the released code.

    Raises:
        ValueError: For ``"released"`` and an image that is not square.
    """
    if kind == "image":
        return largest_distance(height, width)
    if height != width:
        raise ValueError(
            f"diameter='released' is defined for square images, got {height}×{width}. Use diameter='image'."
        )
    return math.sqrt(2 * height * width)


def _by_pot(supply: NDArray[np.float64], demand: NDArray[np.float64]) -> Bounds:
    """Bounds from the full cost matrix. The smaller side makes the rows, which is the faster orientation."""
    # Imported here: POT loads torch where it is installed, and no other metric needs either.
    from ot.lp import emd
    from scipy.spatial.distance import cdist

    if np.count_nonzero(supply) > np.count_nonzero(demand):
        supply, demand = demand, supply
    costs = cdist(np.argwhere(supply), np.argwhere(demand))
    supply, demand = supply[supply > 0], demand[demand > 0]
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
    v = (costs - u[:, None]).min(axis=0)  # the largest that u allows
    return float(u @ supply + v @ demand), float(log["cost"])


def _by_levels(
    supply: NDArray[np.float64],
    demand: NDArray[np.float64],
    exact: bool,
    time_limit: float | None,
    progress: Callable[[float, float], None] | None,
) -> Bounds:
    """Bounds from coarse to fine, without the matrix."""
    from xaibench.metrics import w1  # loads numba

    def report(state: w1.SolverProgress) -> None:
        if progress is not None and state.shape == supply.shape:  # coarser problems bound something else
            progress(state.lower, state.upper)

    if time_limit is not None:
        w1.warm_up()  # no limit should have to pay for it
    solve = w1.exact_emd if exact else w1.interval_emd
    found = solve(supply, demand, time_limit=time_limit, progress=report if progress else None)
    return found.lower, found.upper
