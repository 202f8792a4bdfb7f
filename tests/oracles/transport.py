"""Earth mover's distance, literally: every pixel a row, every pixel a column, no mass canceled."""

import math

import numpy as np
import ot
from scipy.optimize import linprog


def distributions(values, mask):
    """The two sides of the problem: ``|s| / sum |s|`` and ``F+ / |F+|``, flat."""
    magnitude = np.abs(np.asarray(values, dtype=np.float64)).ravel()
    marked = np.asarray(mask, dtype=np.float64).ravel()
    return magnitude / magnitude.sum(), marked / marked.sum()


def pixel_distances(height, width):
    """Euclidean distance between any two pixels, ``[HW, HW]``."""
    pixels = [(row, column) for row in range(height) for column in range(width)]
    return np.array([[math.dist(one, other) for other in pixels] for one in pixels])


def emd_by_simplex(values, mask):
    """POT's network simplex on the full cost matrix."""
    source, target = distributions(values, mask)
    plan, log = ot.lp.emd(source, target, pixel_distances(*mask.shape), numItermax=10_000_000, log=True)
    assert log["result_code"] == 1
    return float((plan * pixel_distances(*mask.shape)).sum())


def emd_by_linear_program(values, mask):
    """The definition as a linear program (HiGHS); for tiny images."""
    source, target = distributions(values, mask)
    n = len(source)
    rows = np.kron(np.eye(n), np.ones((1, n)))  # sum_j P_ij = source_i
    columns = np.kron(np.ones((1, n)), np.eye(n))  # sum_i P_ij = target_j
    solution = linprog(
        pixel_distances(*mask.shape).ravel(),
        A_eq=np.vstack([rows, columns])[:-1],  # the last equation follows from the others
        b_eq=np.concatenate([source, target])[:-1],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert solution.status == 0, solution.message
    return float(solution.fun)
