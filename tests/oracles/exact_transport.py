"""The earth mover's distance from the matrix of all costs, and the linear program it is."""

import numpy as np
import ot
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
