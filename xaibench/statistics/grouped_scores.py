"""Score matrices with one column per method, and paired differences of their columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
#: Relative difference below which scores are considered equal. float32 has seven digits, and rank-based scores lose one
#: or two more where rounding breaks a tie.
ROUNDING = 1e-5


def as_columns(scores: ArrayLike) -> tuple[Floats, bool]:
    """Convert scores ``[N]`` or ``[N, M]`` to ``[N, M]``, and return whether they were ``[N]``.

    Raises:
        ValueError: If the scores have another number of dimensions.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"Expected scores [N] or [N, M], got {list(values.shape)}.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def paired_differences(first: Floats, second: Floats) -> Floats:
    """Return first minus second, with differences that are due to rounding set to 0.

    A difference counts as rounding up to :data:`ROUNDING` times the larger mean magnitude of the two columns.

    Args:
        first: Scores ``[N, M]`` or ``[N]``; ``nan`` where undefined.
        second: Scores of the same shape.

    Returns:
        Differences of the same shape; ``nan`` where either score is undefined.

    Example:
        >>> paired_differences(np.array([0.5, 0.7]), np.array([0.5 + 1e-9, 0.4])).round(3).tolist()
        [0.0, 0.3]
    """
    difference = first - second
    known = ~np.isnan(difference)
    n = np.maximum(known.sum(axis=0), 1)
    magnitude = np.maximum(*(np.where(known, np.abs(scores), 0.0).sum(axis=0) / n for scores in (first, second)))
    return np.asarray(np.where(np.abs(difference) <= ROUNDING * magnitude, 0.0, difference), dtype=np.float64)
