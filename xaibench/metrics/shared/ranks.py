"""Order of the pixels of a map: near ties, the largest pixels, and rank correlation.

The same map computed on two machines differs in its last bits. Pixels that are equal by construction, for example by
symmetry, then come in an order that is decided by rounding, and a score that depends on the order can change by much
more than the map. So values whose difference is at most :data:`TOLERANCE` of the largest magnitude of their map are
tied, and ties are resolved without looking at the values: their share counts, or the order of the pixels.

The tolerance is some 50,000 times the largest difference that was measured between the maps of two code paths
(2e-14), and smaller than the distance of two neighboring float32 numbers near the largest magnitude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Bools, Floats

if TYPE_CHECKING:
    from torch import Tensor

#: Difference of two values, relative to the largest magnitude of their map, up to which they count as equal.
TOLERANCE = 1e-9


def tie_tolerance(values: Floats) -> Floats:
    """Return the absolute difference ``[N, 1]`` up to which values of each row of ``[N, P]`` count as equal."""
    largest: Floats = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    return TOLERANCE * largest


class TopPixels(NamedTuple):
    """The k largest pixels of each map, where ties at the cut are left open.

    Attributes:
        above: ``[N, P]``: the pixels that are among the k largest in any case.
        tied: ``[N, P]``: the pixels whose value ties with the k-th largest.
        n_tied: ``[N]``: how many of the tied pixels complete the k.
    """

    above: Bools
    tied: Bools
    n_tied: NDArray[np.int64]


def top_pixels(values: Floats, k: NDArray[np.int64]) -> TopPixels:
    """Return the ``k`` largest of the values of each row of ``[N, P]``; values tie up to the tolerance.

    Example:
        >>> top = top_pixels(np.array([[9.0, 1.0, 1.0, 0.0]]), np.array([2]))
        >>> top.above.tolist(), top.tied.tolist(), top.n_tied.tolist()
        ([[True, False, False, False]], [[False, True, True, False]], [1])
    """
    ascending = np.sort(values, axis=1)
    cut = np.take_along_axis(ascending, (values.shape[1] - np.maximum(k, 1))[:, None], axis=1)
    tolerance = tie_tolerance(values)
    above, tied = values > cut + tolerance, np.abs(values - cut) <= tolerance
    return TopPixels(above, tied, k - above.sum(axis=1))


def ascending_steps(ascending: Floats) -> Floats:
    """Return the difference ``[N, P - 1]`` of each value to the next; infinite if it exceeds the largest float."""
    with np.errstate(over="ignore"):
        return np.diff(ascending, axis=1)


def merge_ties(values: Floats) -> Floats:
    """Return ``[N, P]`` with near ties made equal: each value becomes the smallest one that it is tied with.

    Values are tied if they are neighbors in ascending order and their difference is at most the tolerance, and if a
    chain of such neighbors connects them.

    Example:
        >>> merge_ties(np.array([[3.0, 1.0, 1.0 + 1e-12, -2.0]])).tolist()
        [[3.0, 1.0, 1.0, -2.0]]
    """
    steps = ascending_steps(np.sort(values, axis=1))
    if not ((steps > 0) & (steps <= tie_tolerance(values))).any():
        return values
    order = np.argsort(values, axis=1, kind="stable")
    ascending = np.take_along_axis(values, order, axis=1)
    opens = np.zeros(values.shape, dtype=np.intp)  # the place of the first value of each group
    opens[:, 1:] = np.where(steps > tie_tolerance(values), np.arange(1, values.shape[1]), 0)
    merged = np.empty_like(values)
    np.put_along_axis(
        merged, order, np.take_along_axis(ascending, np.maximum.accumulate(opens, axis=1), axis=1), axis=1
    )
    return merged


def order_descending(values: Tensor) -> Tensor:
    """Return the indices ``[N, P]`` that sort each row of ``[N, P]``, the largest first; ties in the order of indices.

    Values are tied as in :func:`merge_ties`. Infinite values are tied with their equals.

    Example:
        >>> import torch
        >>> order_descending(torch.tensor([[0.5, 2.0, 2.0 + 1e-12, 3.0]], dtype=torch.float64)).tolist()
        [[3, 1, 2, 0]]
    """
    import torch  # imported on use: users of numpy need not load it

    descending, order = values.sort(dim=1, descending=True, stable=True)
    if values.shape[1] < 2:
        return order
    largest = torch.where(values.isfinite(), values.abs(), 0).amax(1, keepdim=True)
    steps = descending[:, :-1] - descending[:, 1:]  # NaN between infinite values, which are in order
    # A look at the values would make an accelerator wait; there, the second sort costs less.
    if values.device.type == "cpu" and not ((steps > 0) & (steps <= TOLERANCE * largest)).any():
        return order
    group = torch.zeros_like(order)
    group[:, 1:] = (steps > TOLERANCE * largest).cumsum(1)
    within = (group * values.shape[1] + order).argsort(dim=1)
    return order.gather(1, within)


def centered_ranks(values: Tensor) -> Floats:
    """Return the centered ranks of ``[N, ...]`` as ``[N, P]``; all zero where all values are equal.

    Values that differ by rounding only are tied (:mod:`xaibench.metrics.shared.ranks`).

    Example:
        >>> import torch
        >>> centered_ranks(torch.tensor([[5.0, 7.0, 7.0]])).tolist()
        [[-1.0, 0.5, 0.5]]
    """
    from scipy.stats import rankdata

    flat = merge_ties(values.flatten(1).cpu().numpy())
    ranks: Floats = rankdata(flat, axis=1)
    ranks -= (flat.shape[1] + 1) / 2
    return ranks


def correlation(one: Floats, other: Floats) -> Floats:
    """Return Spearman's correlation per sample from centered ranks ``[N, P]``; NaN if either is constant."""
    size = np.sqrt((one**2).sum(1)) * np.sqrt((other**2).sum(1))
    coefficients = np.full(len(one), np.nan)
    np.divide((one * other).sum(1), size, out=coefficients, where=size > 0)
    np.clip(coefficients, -1.0, 1.0, out=coefficients)  # rounding may exceed the range
    return coefficients
