"""Scores of the same samples, as columns and as sums over groups: what intervals and tests are worked out from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def columns_of(scores: ArrayLike) -> tuple[Floats, bool]:
    """``[N, M]``, and whether a single column ``[N]`` was given.

    Raises:
        ValueError: For another shape.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"Expected scores [N] or [N, M], got {list(values.shape)}.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def by_group(columns: Floats, groups: ArrayLike | None) -> tuple[Floats, Floats]:
    """``[G, M]`` sums and numbers of the defined scores of each group; each sample is one where there are no groups.

    Raises:
        ValueError: If there is not one group for each sample.
    """
    defined = ~np.isnan(columns)
    filled = np.where(defined, columns, 0.0)
    if groups is None:
        return filled, defined.astype(np.float64)
    of = np.asarray(groups)
    if of.shape != columns.shape[:1]:
        raise ValueError(f"Expected groups [{len(columns)}], one for each sample; got {list(of.shape)}.")
    names, index = np.unique(of, return_inverse=True)
    sums, counts = (np.zeros((len(names), columns.shape[1])) for _ in range(2))
    np.add.at(sums, index, filled)
    np.add.at(counts, index, defined)
    return sums, counts
