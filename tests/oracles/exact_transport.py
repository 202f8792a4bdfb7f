"""The earth mover's distance from the matrix of all costs, and the linear program it is."""

import numpy as np
import ot
from scipy.optimize import linprog
from scipy.spatial.distance import cdist


def costs(shape):
    pixels = np.argwhere(np.ones(shape))
    return cdist(pixels, pixels)


def by_full_matrix(source, target):
    """``ot.lp.emd`` on all pixels of both images; for images of mass one."""
    cost, log = ot.emd2(
        source.ravel() / source.sum(), target.ravel() / target.sum(), costs(source.shape), numItermax=10**8, log=True
    )
    assert log["result_code"] == 1, log["warning"]
    return float(cost)


def by_linear_program(source, target):
    """min sum_ij P_ij d_ij over P >= 0 with the images as row and column sums."""
    size = source.size
    rows = np.kron(np.eye(size), np.ones(size))
    columns = np.kron(np.ones(size), np.eye(size))
    result = linprog(
        costs(source.shape).ravel(),
        A_eq=np.concatenate([rows, columns]),
        b_eq=np.concatenate([source.ravel(), target.ravel()]),
        method="highs",
    )
    assert result.status == 0, result.message
    return float(result.fun)
