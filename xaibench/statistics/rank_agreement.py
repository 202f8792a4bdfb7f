"""How alike are orders of the same things?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def kendall_tau(values: ArrayLike) -> NDArray[np.float64]:
    """Kendall's tau-b between every two rows.

    Kendall: The treatment of ties in ranking problems, Biometrika 1945: pairs in the same order less pairs in the
    opposite one, over the geometric mean of the pairs that each row does not tie.

    Args:
        values: ``[..., S, M]``: S rows that put M things in order.

    Returns:
        ``[..., S, S]`` in [-1, 1]: 1 for the same order, about 0 for unrelated ones; ``nan`` where a row ties all.

    Example:
        >>> kendall_tau([[1, 2, 3, 4], [1, 2, 4, 3], [4, 3, 2, 1]]).round(2).tolist()
        [[1.0, 0.67, -1.0], [0.67, 1.0, -0.67], [-1.0, -0.67, 1.0]]
    """
    rows = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(rows.shape[-1], 1)
    signs = np.sign(rows[..., first] - rows[..., second])
    untied = (signs != 0).sum(axis=-1).astype(np.float64)
    agreed = signs @ np.swapaxes(signs, -1, -2)
    most = np.sqrt(untied[..., :, None] * untied[..., None, :])
    tau: NDArray[np.float64] = np.divide(agreed, most, out=np.full(agreed.shape, np.nan), where=most > 0)
    return tau
