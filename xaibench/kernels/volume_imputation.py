"""Solver for the sparse linear system of imputed voxels: conjugate gradients on the grid of the volume.

The equations of a removed voxel involve its six direct neighbors, so an iteration is one pass over the volume. The
number of iterations grows with the distance to the nearest known voxels: some hundreds for 96 × 96 × 96. All numbers
are float64. The volume is stored slice by slice within a frame of zeros, which makes checks for missing neighbors
unnecessary; loops that index views from zero can be vectorized by the compiler.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.compilation import SUMS, kernel, part

Doubles: TypeAlias = NDArray[np.float64]

#: Squared norm of the residual at which the iteration ends; known values are in [-1, 1]. The error of a voxel is at
#: most this norm times about one and a half times the largest distance to known voxels.
_ENOUGH = 1e-24
#: Maximum number of iterations; volumes of 96 × 96 × 96 need at most some hundreds.
_MOST_STEPS = 20_000


def impute_in_volume(image: Doubles, removed: NDArray[np.bool_]) -> Doubles | None:
    """Replace each removed voxel by the mean of its direct neighbors; return None if it does not converge.

    Args:
        image: ``[C, D, H, W]``.
        removed: ``[D, H, W]``, not everywhere true.
    """
    free = np.pad(removed, 1).astype(np.float64)
    neighbors = np.zeros(free.shape)
    for axis in range(3):
        for step in (-1, 1):
            neighbors += np.roll(np.pad(np.ones(removed.shape), 1), step, axis)
    step, slice_step = free.shape[2], free.shape[1] * free.shape[2]
    filled = image.copy()
    for channel in filled:
        known = channel[~removed]
        low, high = float(known.min()), float(known.max())
        middle, half = low / 2 + high / 2, (high / 2 - low / 2) or 1.0
        framed = np.pad(np.where(removed, 0.0, (channel - middle) / half), 1)
        found = _solve(framed.ravel(), free.ravel(), (neighbors * free).ravel(), step, slice_step)
        if not len(found):
            return None
        inner = found.reshape(free.shape)[1:-1, 1:-1, 1:-1]
        np.copyto(channel, middle + half * inner, where=removed)
    return filled


@partial(kernel, freedom=SUMS)
def _solve(known: Doubles, free: Doubles, diagonal: Doubles, row: int, layer: int) -> Doubles:
    """Solve the system for ``known`` values; the solution is zero there and on the frame. Empty if not converged.

    Args:
        known: ``[size]`` the volume within its frame, zero at unknown voxels.
        free: ``[size]`` one at unknown voxels.
        diagonal: ``[size]`` the number of neighbors of unknown voxels.
        row: Distance of neighboring rows.
        layer: Distance of neighboring slices.
    """
    found, residual, direction, product = np.zeros((4, len(known)))
    _apply(known, free, diagonal, row, layer, residual)
    error = 0.0
    for i in range(len(known)):
        residual[i] = -residual[i]
        direction[i] = residual[i]
        error += residual[i] * residual[i]
    for _ in range(_MOST_STEPS):
        if error <= _ENOUGH:
            return found
        _apply(direction, free, diagonal, row, layer, product)
        curvature = 0.0
        for i in range(len(known)):
            curvature += direction[i] * product[i]
        length, before, error = error / curvature, error, 0.0
        for i in range(len(known)):
            found[i] += length * direction[i]
            residual[i] -= length * product[i]
            error += residual[i] * residual[i]
        for i in range(len(known)):
            direction[i] = residual[i] + error / before * direction[i]
    return np.zeros(0)


@partial(part, freedom=SUMS)
def _apply(values: Doubles, free: Doubles, diagonal: Doubles, row: int, layer: int, result: Doubles) -> None:
    """Compute ``result = matrix @ values``, including ``values`` at known voxels."""
    above, back, left = values, values[layer - row :], values[layer - 1 :]
    here, right, front, below = values[layer:], values[layer + 1 :], values[layer + row :], values[2 * layer :]
    free, diagonal, result = free[layer:], diagonal[layer:], result[layer:]
    for i in range(len(values) - 2 * layer):
        around = above[i] + back[i] + left[i] + right[i] + front[i] + below[i]
        result[i] = diagonal[i] * here[i] - free[i] * around
