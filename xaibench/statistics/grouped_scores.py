"""Scores of the same samples, as columns, and what differs between two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
#: Scores that differ by less than this share of their size are equal up to rounding: float32 knows seven digits, and
#: a score that goes by ranks has lost one or two more, where rounding has split a tie.
ROUNDING = 1e-5


def columns_of(scores: ArrayLike) -> tuple[Floats, bool]:
    """``[N, M]``, and whether a single column ``[N]`` was given.

    Raises:
        ValueError: For another shape.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"Expected scores [N] or [N, M], got {list(values.shape)}.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def paired_differences(first: Floats, second: Floats) -> Floats:
    """First minus second, 0 where they are equal up to :data:`ROUNDING` of the larger column's mean size.

    Args:
        first: ``[N, M]`` or ``[N]`` scores; ``nan`` where undefined.
        second: Of the same shape.

    Returns:
        Of the same shape; ``nan`` where either is undefined.

    Example:
        >>> paired_differences(np.array([0.5, 0.7]), np.array([0.5 + 1e-9, 0.4])).round(3).tolist()
        [0.0, 0.3]
    """
    difference = first - second
    known = ~np.isnan(difference)
    n = np.maximum(known.sum(axis=0), 1)
    size = np.maximum(*(np.where(known, np.abs(scores), 0.0).sum(axis=0) / n for scores in (first, second)))
    return np.asarray(np.where(np.abs(difference) <= ROUNDING * size, 0.0, difference), dtype=np.float64)
