"""The numbers behind a box: computed once for each group of scores, on plain arrays.

Everything here takes a one-dimensional array in which ``nan`` means "undefined", and leaves the undefined out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

#: Outliers drawn on each side of a box: enough to show the tail, few enough for millions of scores.
MAX_OUTLIERS = 8


@dataclass(frozen=True)
class Distribution:
    """What a box plot and a table row need to know of a group of scores.

    Attributes:
        n: Number of scores, undefined ones included.
        n_valid: Number of defined scores. All that follows is over these, and ``nan`` when there are none.
        mean: Arithmetic mean.
        std: Sample standard deviation (divided by ``n_valid - 1``); ``nan`` for fewer than two.
        low: Smallest score.
        q25: First quartile, linearly interpolated (as ``numpy.quantile``).
        median: Second quartile.
        q75: Third quartile.
        high: Largest score.
        whisker_low: Smallest score within 1.5 interquartile ranges below ``q25`` (Tukey).
        whisker_high: Largest score within 1.5 interquartile ranges above ``q75``.
        outliers: Some of the different scores outside the whiskers: the extreme one, and others evenly spaced in
            order, at most :data:`MAX_OUTLIERS` a side.
    """

    n: int
    n_valid: int
    mean: float
    std: float
    low: float
    q25: float
    median: float
    q75: float
    high: float
    whisker_low: float
    whisker_high: float
    outliers: tuple[float, ...]


def describe(values: Floats) -> Distribution:
    """Describe one group of scores.

    Args:
        values: ``[N]``; ``nan`` where undefined.

    Example:
        >>> d = describe(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
        >>> d.n, d.n_valid, d.median, d.q75, d.whisker_high, d.outliers
        (6, 5, 3.0, 4.0, 4.0, (100.0,))
    """
    valid = np.sort(values[~np.isnan(values)].astype(np.float64))
    n_valid = len(valid)
    if n_valid == 0:
        nothing = (np.nan,) * 9
        return Distribution(len(values), 0, *nothing, ())
    q25, median, q75 = (float(q) for q in np.quantile(valid, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q75 - q25)
    first = int(np.searchsorted(valid, q25 - reach, side="left"))
    last = int(np.searchsorted(valid, q75 + reach, side="right"))
    return Distribution(
        n=len(values),
        n_valid=n_valid,
        mean=float(valid.mean()),
        std=float(valid.std(ddof=1)) if n_valid > 1 else np.nan,
        low=float(valid[0]),
        q25=q25,
        median=median,
        q75=q75,
        high=float(valid[-1]),
        # Interpolated quartiles may lie beyond every score within reach; a whisker never points into its box.
        whisker_low=min(float(valid[first]), q25),
        whisker_high=max(float(valid[last - 1]), q75),
        outliers=(*_thin(np.unique(valid[:first])), *_thin(np.unique(valid[last:])[::-1])),
    )


def _thin(outliers: Floats) -> list[float]:
    """At most :data:`MAX_OUTLIERS` of them, the first (most extreme) among them."""
    if len(outliers) > MAX_OUTLIERS:
        outliers = outliers[np.linspace(0, len(outliers) - 1, MAX_OUTLIERS).round().astype(int)]
    return [float(value) for value in outliers]


def groups(codes: NDArray[np.integer[Any]], values: Floats) -> Iterator[tuple[int, Floats]]:
    """Split ``values`` by group number, with one stable sort rather than one pass for each group.

    Args:
        codes: ``[N]`` group numbers.
        values: ``[N]``.

    Yields:
        ``(code, values of that group in their order)``, by rising code.

    Example:
        >>> [(code, part.tolist()) for code, part in groups(np.array([2, 0, 2]), np.array([0.1, 0.2, 0.3]))]
        [(0, [0.2]), (2, [0.1, 0.3])]
    """
    if len(codes) == 0:
        return
    order = np.argsort(codes, kind="stable")
    codes, values = codes[order], values[order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield int(codes[start]), values[start:stop]


def lexicographic_rank(first: Floats, second: Floats) -> Floats:
    """Rank 1 for the largest ``first``; ties by the largest ``second``; what is still tied shares the average rank.

    Args:
        first: ``[N]``; ``nan`` gets no rank.
        second: ``[N]``.

    Returns:
        ``[N]`` ranks from 1, ``nan`` where ``first`` is ``nan``.

    Example:
        >>> lexicographic_rank(np.array([0.5, 0.9, 0.5, np.nan, 0.5]), np.array([0.4, 0.1, 0.6, 0.9, 0.4]))
        array([3.5, 1. , 2. , nan, 3.5])
    """
    ranks = np.full(len(first), np.nan)
    known = np.flatnonzero(~np.isnan(first))
    if len(known) == 0:
        return ranks
    # Rounded, so that the order in which a mean was summed cannot break a tie.
    keys = np.round(np.stack([-first[known], -second[known]], axis=1), 12) + 0.0
    _, code, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    ranks[known] = (np.cumsum(count) - (count - 1) / 2)[code.ravel()]
    return ranks
