"""Many maps over small masks: mass goes to few pixels, and computations for a mask are shared.

With ``k`` pixels that need mass and many pixels with surplus, a plan assigns a *cloud* of mass to each of the ``k``
pixels (called places). All that matters of it is a table of ``k * k`` costs: the additional cost of a unit that goes to
place ``j`` rather than ``i``, at the pixel of ``i``'s cloud where this is smallest. Each pixel first sends all of its
mass to the nearest place, after subtracting the *price* of each place. Then the surplus of places is sent, by the
shortest path through the table, to places with unmet demand. The prices are kept such that reduced costs are not
negative, so the final plan is optimal, and the prices prove it. These are the successive shortest paths of Ahuja,
Magnanti, Orlin: Network Flows, 1993, chapter 9, on a graph of ``k`` nodes.

Distances to the pixels of the mask depend only on the mask, and so do the initial prices, the prices of a constant
map. They are computed once for all maps of a mask. Masses are integers, so flows are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.compilation import kernel, subroutine
from xaibench.kernels.emd.pyramid import Floats, Indices, Ints, Masses, Points

#: Integer value of one unit of mass; sums of two units stay in range.
_UNIT = 2.0**60
#: Smaller differences in length are rounding error. Of paths of equal length the direct one is found first and kept: a
#: detour through another place moves at most that place's mass at a time, which may be a few integer units forever.
_TIE = 1e-13


class Clouds(NamedTuple):
    """A plan, and the cost of changing it.

    Attributes:
        flow: ``[k, m]`` mass from each pixel to each place.
        over: ``[k]`` surplus of each place; negative for unmet demand.
        ways: ``[k, k]`` smallest additional cost of a unit that goes to the second place rather than the first.
        via: ``[k, k]`` pixel where this is attained; -1 for an empty cloud.
    """

    flow: Masses
    over: Masses
    ways: Floats
    via: Ints


@kernel
def few_places_emd(
    maps: Floats,
    masks: NDArray[np.bool_],
    order: Indices,
    groups: Indices,
    pixels: Points,
    free_inside: bool,
    bounds: Floats,
) -> None:
    """Compute bounds of the distance between each map and its mask, both of mass one; they are equal up to rounding.

    Args:
        maps: ``[n, pixels]``; their magnitude is used.
        masks: ``[n, pixels]``, each with few pixels, and at least one.
        order: The samples, ordered so that all samples of one mask are consecutive. It does not affect the results.
        groups: ``[n]`` index of each sample's mask.
        pixels: Centers of all pixels.
        free_inside: Whether mass moves freely between the pixels of the mask.
        bounds: ``[n, 2]``, filled with the lower and the upper bound; unchanged for maps of zeros.
    """
    group = -1
    places, costs, prices = np.empty(0, np.intp), np.empty((0, 0)), np.empty(0)
    for sample in order:
        mask = masks[sample]
        if groups[sample] != group:
            group = groups[sample]
            places = np.flatnonzero(mask)
            costs = _distances(places, pixels)
            prices = np.zeros(len(places))
            _bounds(np.ones(len(mask)), mask, places, costs, prices, free_inside)
        peak = 0.0
        for value in maps[sample]:
            peak = max(peak, abs(value))
        if peak > 0:  # dividing by it avoids overflow and underflow of sums
            values = np.empty(len(mask))
            for pixel in range(len(mask)):
                values[pixel] = abs(maps[sample, pixel]) / peak
            bounds[sample, 0], bounds[sample, 1] = _bounds(values, mask, places, costs, prices.copy(), free_inside)


@subroutine
def _bounds(
    values: Floats, mask: NDArray[np.bool_], places: Indices, costs: Floats, prices: Floats, free_inside: bool
) -> tuple[float, float]:
    """Return bounds of the EMD of a map with values in [0, 1], and update ``prices`` to those of the optimal plan."""
    if free_inside:
        return _transport_outside(values, mask, places, costs, prices)
    net, moved = _surplus(values, mask)
    lower, upper = _transport(net, places, costs, prices)
    return moved * lower, moved * upper


@subroutine
def _distances(places: Indices, pixels: Points) -> Floats:
    """Return the distances ``[k, pixels]`` from each place to each pixel."""
    slices, rows, columns = pixels
    costs = np.empty((len(places), len(rows)))
    for j in range(len(places)):
        place, row, column = slices[places[j]], rows[places[j]], columns[places[j]]
        for pixel in range(len(rows)):
            deep, down, right = slices[pixel] - place, rows[pixel] - row, columns[pixel] - column
            costs[j, pixel] = np.sqrt(deep * deep + down * down + right * right)
    return costs


@subroutine
def _surplus(values: Floats, mask: NDArray[np.bool_]) -> tuple[Masses, float]:
    """Return the surplus of each pixel after removing common mass (the cost is a metric), and the mass that moves.

    The surplus is converted to integers that sum to zero. Each side is scaled by its own sum, because the sums differ
    by rounding. Loops compile many times faster than array expressions.
    """
    total = marked = 0.0
    for pixel in range(len(values)):
        total, marked = total + values[pixel], marked + mask[pixel]
    surplus = np.empty(len(values))
    moved = wanted = 0.0
    for pixel in range(len(values)):
        value = values[pixel] / total - mask[pixel] / marked
        surplus[pixel] = value
        moved, wanted = moved + max(value, 0.0), wanted + max(-value, 0.0)
    net = np.zeros(len(surplus), np.int64)
    if moved == 0 or wanted == 0:  # equal, up to rounding
        return net, 0.0
    over = largest = 0
    for pixel in range(len(net)):
        value = surplus[pixel]
        net[pixel] = np.int64(np.rint(value / (moved if value > 0 else wanted) * _UNIT))
        over += net[pixel]
        if net[pixel] > net[largest]:
            largest = pixel
    net[largest] -= over
    return net, moved


@subroutine
def _transport(net: Masses, places: Indices, costs: Floats, prices: Floats) -> tuple[float, float]:
    """Return bounds per unit of mass. ``prices [k]`` are initial prices, updated to the prices of the optimal plan."""
    rows, pixels = np.flatnonzero(net[places] < 0), np.flatnonzero(net > 0)
    cost = np.empty((len(rows), len(pixels)))
    for j in range(len(rows)):
        for r in range(len(pixels)):
            cost[j, r] = costs[rows[j], pixels[r]]
    price = prices[rows]
    bounds = _solve(cost, net[pixels], -net[places[rows]], price)
    for j in range(len(rows)):
        prices[rows[j]] = price[j]
    return bounds


@subroutine
def _solve(cost: Floats, supply: Masses, demand: Masses, price: Floats) -> tuple[float, float]:
    """Return bounds per unit of mass, and update the prices to the prices of the optimal plan.

    Args:
        cost: ``[k, m]`` of a unit from each pixel with supply to each place.
        supply: ``[m]``, with the same sum as the demand, :data:`_UNIT`.
        demand: ``[k]``.
        price: ``[k]`` initial prices.
    """
    clouds = _nearest(cost, supply, demand, price)
    while _send(clouds, cost, price):
        pass
    upper = lower = 0.0
    for j in range(len(price)):
        lower += price[j] * (demand[j] / _UNIT)
        for r in range(len(supply)):
            upper += cost[j, r] * (clouds.flow[j, r] / _UNIT)
    for r in range(len(supply)):
        least = np.inf
        for j in range(len(price)):
            least = min(least, cost[j, r] - price[j])
        lower += least * (supply[r] / _UNIT)
    return lower, upper


@subroutine
def _transport_outside(
    values: Floats, mask: NDArray[np.bool_], places: Indices, costs: Floats, prices: Floats
) -> tuple[float, float]:
    """Return bounds for a map whose mass moves freely inside the mask, and update the prices.

    The sources are the pixels outside and, last, the mass inside, at distance 0 from every place. Common mass cannot be
    removed first: mass on a pixel of the mask may make room for mass that comes from outside.
    """
    total = 0.0
    for pixel in range(len(values)):
        total += values[pixel]
    pixels = np.flatnonzero((values > 0) & ~mask)
    supply, demand = np.zeros(len(pixels) + 1, np.int64), np.zeros(len(places), np.int64)
    left, unmet = np.int64(_UNIT), np.int64(_UNIT)
    cost = np.zeros((len(places), len(pixels) + 1))
    for r in range(len(pixels)):
        supply[r] = min(np.int64(np.rint(values[pixels[r]] / total * _UNIT)), left)
        left -= supply[r]
        for j in range(len(places)):
            cost[j, r] = costs[j, pixels[r]]
    supply[-1] = left
    for j in range(len(places)):
        demand[j] = unmet // (len(places) - j)
        unmet -= demand[j]
    return _solve(cost, supply, demand, prices)


@subroutine
def _nearest(cost: Floats, supply: Masses, demand: Masses, price: Floats) -> Clouds:
    """Assign all mass to the nearest place, after subtracting prices."""
    k, m = cost.shape
    clouds = Clouds(np.zeros((k, m), np.int64), -demand, np.full((k, k), np.inf), np.full((k, k), -1, np.int32))
    for r in range(m):
        nearest = 0
        for j in range(1, k):
            if cost[j, r] - price[j] < cost[nearest, r] - price[nearest]:
                nearest = j
        clouds.flow[nearest, r] = supply[r]
        clouds.over[nearest] += supply[r]
        _join(clouds, cost, nearest, r)
    return clouds


@subroutine
def _join(clouds: Clouds, cost: Floats, place: int, pixel: int) -> None:
    """Add a pixel to the cloud of a place, and update the costs of leaving it."""
    for other in range(len(cost)):
        extra = cost[other, pixel] - cost[place, pixel]
        if extra < clouds.ways[place, other]:
            clouds.ways[place, other], clouds.via[place, other] = extra, pixel


@subroutine
def _leave(clouds: Clouds, cost: Floats, place: int, pixel: int) -> None:
    """Recompute the costs that were attained at a pixel which the cloud has lost."""
    for other in range(len(cost)):
        if clouds.via[place, other] == pixel:
            least, at = np.inf, -1
            for r in range(cost.shape[1]):
                if clouds.flow[place, r] > 0 and cost[other, r] - cost[place, r] < least:
                    least, at = cost[other, r] - cost[place, r], r
            clouds.ways[place, other], clouds.via[place, other] = least, at


@subroutine
def _send(clouds: Clouds, cost: Floats, price: Floats) -> bool:
    """Send mass from a place with surplus to the nearest one with unmet demand; return whether there was any."""
    end, before = _path(clouds, price)
    if end < 0:
        return False
    amount, top = -clouds.over[end], end
    while before[top] >= 0:
        amount = min(amount, clouds.flow[before[top], clouds.via[before[top], top]])
        top = before[top]
    amount = min(amount, clouds.over[top])
    clouds.over[top] -= amount
    clouds.over[end] += amount
    place = end
    while before[place] >= 0:
        above = before[place]
        pixel = clouds.via[above, place]
        clouds.flow[above, pixel] -= amount
        clouds.flow[place, pixel] += amount
        _join(clouds, cost, place, pixel)
        if clouds.flow[above, pixel] == 0:
            _leave(clouds, cost, above, pixel)
        place = above
    return True


@subroutine
def _path(clouds: Clouds, price: Floats) -> tuple[int, Ints]:
    """Find the shortest path from surplus to unmet demand (Dijkstra), and raise the prices along it.

    Returns:
        Its end (-1 if no place has surplus), and the predecessor of each place.
    """
    k = len(price)
    far, known, before = np.full(k, np.inf), np.zeros(k, np.bool_), np.full(k, -1, np.int32)
    end = -1
    for j in range(k):
        if clouds.over[j] > 0:
            far[j], end = 0.0, j
    if end < 0:
        return end, before
    while True:
        for j in range(k):
            if not known[j] and (known[end] or far[j] < far[end]):
                end = j
        known[end] = True
        if clouds.over[end] < 0:
            break
        for j in range(k):
            way = far[end] + max(clouds.ways[end, j] + price[end] - price[j], 0.0)  # smaller only by rounding
            if not known[j] and way < far[j] - _TIE:
                far[j], before[j] = way, end
    for j in range(k):
        price[j] += min(far[j], far[end])
    return end, before
