"""Agreement of rankings: Kendall's tau."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def kendall_tau(values: ArrayLike) -> NDArray[np.float64]:
    """Compute Kendall's tau-b between every two rows.

    Kendall: The treatment of ties in ranking problems, Biometrika 1945: the number of concordant pairs minus the number
    of discordant pairs, divided by the geometric mean of the numbers of untied pairs of the two rows.

    Args:
        values: ``[..., S, M]``: S rows that rank M items by their values.

    Returns:
        ``[..., S, S]`` in [-1, 1]: 1 for the same order, about 0 for unrelated orders; ``nan`` if a row is constant.

    Example:
        >>> kendall_tau([[1, 2, 3, 4], [1, 2, 4, 3], [4, 3, 2, 1]]).round(2).tolist()
        [[1.0, 0.67, -1.0], [0.67, 1.0, -0.67], [-1.0, -0.67, 1.0]]
    """
    rows = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(rows.shape[-1], 1)
    signs = np.sign(rows[..., first] - rows[..., second])
    untied = (signs != 0).sum(axis=-1).astype(np.float64)
    balance = signs @ np.swapaxes(signs, -1, -2)  # concordant minus discordant pairs
    largest = np.sqrt(untied[..., :, None] * untied[..., None, :])
    tau: NDArray[np.float64] = np.divide(balance, largest, out=np.full(balance.shape, np.nan), where=largest > 0)
    return tau
