"""Multigrid solver for the sparse linear system of imputed pixels, on the grid of the image.

Conjugate gradients, preconditioned by a multigrid cycle (Briggs, Henson, McCormick: A Multigrid Tutorial, 2000): damped
Jacobi steps on grids that halve in size, bilinear interpolation that is cut off at known pixels, and on every coarser
grid the matrix of the finer one between two interpolations (Galerkin). For any mask, a cycle reduces the error to about
a tenth, so a dozen cycles suffice, each linear in the number of pixels. The time and memory of a factorization grow
faster.

A cycle need not be exact and is computed in float32; residuals and the solution are float64. All grids are stored one
after the other in one array, row by row, each within a frame of zeros. The frame makes checks for missing neighbors
unnecessary. Loops that index views from zero can be vectorized by the compiler.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.kernels.compilation import SUMS, kernel, subroutine

Doubles: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

#: Error in the energy norm at which the iteration ends; known values are in [-1, 1]. The largest error of a pixel is
#: about the same; along a row of 224 pixels with one known end it may be 36 times as large.
_ERROR = 3e-11
_ENOUGH = 12 * _ERROR**2  # its square; 12 is the diagonal of the matrix
#: Maximum number of cycles; no known mask needs 20.
_MOST_CYCLES = 60
_ENDS = (np.min, np.inf), (np.max, -np.inf)
#: Longest side of the coarsest grid, and its number of Jacobi steps.
_COARSEST, _STEPS = 4, 4
#: A Jacobi step divides by the diagonal, or by this share of the row's sum of magnitudes if that is larger. Above 1/2
#: no error grows, for any mask.
_DAMPING = np.float32(0.55)
_HALF, _TWO = np.float32(0.5), np.float32(2)


class Grids(NamedTuple):
    """All grids, one after the other.

    Attributes:
        places: ``[levels + 1, 3]`` height, width and start of each; the last row contains only the end.
        matrix: ``[9, size]`` the weights of a pixel's neighbors, row by row; the fifth is its own. For the finest grid
            only the diagonal is stored: the others are -2 and, diagonally, -1.
        steps: ``[size]`` factor of the residual in a Jacobi step.
        free: ``[size]`` one at unknown pixels.
        found: ``[size]`` the solution of the cycle for ``wanted``; the frame is scratch memory.
        wanted: ``[size]`` the right-hand side.
        left: ``[size]`` scratch memory for the residual.
        row: Scratch memory.
    """

    places: Ints
    matrix: Singles
    steps: Singles
    free: Singles
    found: Singles
    wanted: Singles
    left: Singles
    row: Singles


def impute_on_grid(image: Doubles, removed: NDArray[np.bool_]) -> Doubles | None:
    """Replace each removed pixel by the weighted mean of its neighbors; return None if it does not converge.

    Args:
        image: ``[C, H, W]``.
        removed: ``[H, W]``, not everywhere true.
    """
    grids = _grids(removed)
    _set_up(grids)
    filled = image.copy()
    framed = np.zeros((removed.shape[0] + 2, removed.shape[1] + 2))
    for channel in filled:
        low, high = (float(end(channel, where=~removed, initial=start)) for end, start in _ENDS)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        np.divide(channel - middle, half or 1.0, out=framed[1:-1, 1:-1])
        framed[1:-1, 1:-1][removed] = 0
        found = _solve(framed.ravel(), grids)
        if found is None:
            return None
        np.copyto(channel, middle + half * found.reshape(framed.shape)[1:-1, 1:-1], where=removed)
    return filled


def _grids(removed: NDArray[np.bool_]) -> Grids:
    (height, width), start, places = removed.shape, 0, []
    while True:
        places.append((height, width, start))
        start += (height + 2) * (width + 2)
        if max(height, width) <= _COARSEST:
            break
        height, width = (height + 1) // 2, (width + 1) // 2
    matrix, row = np.zeros((9, start), np.float32), np.zeros(removed.shape[1] + 2, np.float32)
    steps, free, found, wanted, left = np.zeros((5, start), np.float32)
    grids = Grids(np.array([*places, (0, 0, start)]), matrix, steps, free, found, wanted, left, row)
    grids.free[: (removed.shape[0] + 2) * (removed.shape[1] + 2)] = np.pad(removed, 1).ravel()
    return grids


def _solve(known: Doubles, grids: Grids) -> Doubles | None:
    """Solve the system for ``known`` values by conjugate gradients; the solution is zero there and on the frame."""
    size = len(known)
    free, diagonal = grids.free[:size].astype(np.float64), grids.matrix[4, :size].astype(np.float64)
    found, direction, product = np.zeros(size), np.zeros(size), np.zeros(size)
    _apply(known, free, diagonal, int(grids.places[0, 1]) + 2, product)
    residual, error = -product, np.inf
    grids.wanted[:size] = residual
    for _ in range(_MOST_CYCLES):
        _cycle(grids)
        error = _advance(grids, free, diagonal, direction, product, residual, found, error)
        if not error > _ENOUGH:
            return found if error >= 0 else None
    return None


@partial(subroutine, freedom=SUMS)
def _residual(level: int, g: Grids) -> None:
    """Compute ``left = wanted - matrix @ found``."""
    height, width, start = g.places[level]
    s = width + 2
    above, here, below = g.found[start:], g.found[start + s :], g.found[start + 2 * s :]
    start += s + 1
    left, wanted, free, diagonal = g.left[start:], g.wanted[start:], g.free[start:], g.matrix[4][start:]
    n = height * s - 2
    if level == 0:
        for i in range(n):
            straight = above[i + 1] + here[i] + here[i + 2] + below[i + 1]
            slanted = above[i] + above[i + 2] + below[i] + below[i + 2]
            left[i] = wanted[i] - diagonal[i] * here[i + 1] + free[i] * (_TWO * straight + slanted)
        return
    for i in range(n):
        left[i] = wanted[i]
    for k in range(3):  # one row of neighbors at a time: with more arrays the loop is not vectorized
        near = g.found[start - s - 1 + k * s :]
        a, b, c = g.matrix[3 * k][start:], g.matrix[3 * k + 1][start:], g.matrix[3 * k + 2][start:]
        for i in range(n):
            left[i] -= a[i] * near[i] + b[i] * near[i + 1] + c[i] * near[i + 2]


@partial(subroutine, freedom=SUMS)
def _step(level: int, g: Grids) -> None:
    """Take a Jacobi step."""
    start, end = g.places[level, 2], g.places[level + 1, 2]
    found, steps, left = g.found[start:end], g.steps[start:end], g.left[start:end]
    for i in range(len(found)):
        found[i] += steps[i] * left[i]


@partial(subroutine, freedom=SUMS)
def _first_step(level: int, g: Grids) -> None:
    """Take a Jacobi step from zero."""
    start, end = g.places[level, 2], g.places[level + 1, 2]
    found, steps, wanted = g.found[start:end], g.steps[start:end], g.wanted[start:end]
    for i in range(len(found)):
        found[i] = steps[i] * wanted[i]


@partial(subroutine, freedom=SUMS)
def _restrict(level: int, g: Grids) -> None:
    """Restrict the residual to the right-hand side of the next grid: the transpose of the interpolation."""
    height, width, start = g.places[level]
    h, w, coarse = g.places[level + 1]
    s, row = width + 2, g.row
    if height % 2 == 0:
        last = g.left[start + height * s :]
        for j in range(s):
            last[j] *= _TWO
    if width % 2 == 0:
        for i in range(1, height + 1):
            g.left[start + i * s + width] *= _TWO
    for i in range(h):
        k = start + 2 * i * s
        above, here, below = g.left[k:], g.left[k + s :], g.left[k + 2 * s :]
        for j in range(s):
            row[j] = here[j] + _HALF * (above[j] + below[j])
        wanted = g.wanted[coarse + (i + 1) * (w + 2) + 1 :]
        for j in range(w):
            wanted[j] = row[2 * j + 1] + _HALF * (row[2 * j] + row[2 * j + 2])


@partial(subroutine, freedom=SUMS)
def _interpolate(level: int, g: Grids) -> None:
    """Add the solution of the next grid, whose pixels are every second one, starting with the first."""
    height, width, start = g.places[level]
    h, w, coarse = g.places[level + 1]
    s, row = w + 2, g.row
    if height % 2 == 0:  # the last row has no next one: repeat the one before
        last, beyond = g.found[coarse + h * s :], g.found[coarse + (h + 1) * s :]
        for j in range(s):
            beyond[j] = last[j]
    if width % 2 == 0:
        for i in range(1, h + 2):
            g.found[coarse + i * s + w + 1] = g.found[coarse + i * s + w]
    for i in range(height):
        k = coarse + (i // 2 + 1) * s
        here, below = g.found[k:], g.found[k + (i % 2) * s :]
        for j in range(s):
            row[j] = _HALF * (here[j] + below[j])
        k = start + (i + 1) * (width + 2) + 1
        found, free = g.found[k:], g.free[k:]
        for j in range(width // 2):
            found[2 * j] += free[2 * j] * row[j + 1]
            found[2 * j + 1] += free[2 * j + 1] * _HALF * (row[j + 1] + row[j + 2])
        if width % 2:
            found[width - 1] += free[width - 1] * row[w]


@partial(kernel, freedom=SUMS)
def _cycle(g: Grids) -> None:
    """Run one multigrid cycle: ``found`` approximates the solution, and is linear and symmetric in ``wanted``."""
    level, coarsest = int(np.int64(0)), len(g.places) - 2  # a literal 0 would compile the loops again for another type
    visits = np.zeros(coarsest, np.int64)
    _first_step(level, g)
    while True:
        # Two visits from every second grid compensate for the cut-off interpolation, which corrects too little.
        if level < coarsest and visits[level] < (2 if level > 0 and level % 2 == 0 else 1):
            visits[level] += 1
            _residual(level, g)
            _restrict(level, g)
            level += 1
            _first_step(level, g)
            if level < coarsest:
                visits[level] = 0
                continue
            for _ in range(_STEPS):
                _residual(level, g)
                _step(level, g)
        elif level > 0:
            level -= 1
            _interpolate(level, g)
            _residual(level, g)
            _step(level, g)
        else:
            return


@partial(kernel, freedom=SUMS)
def _set_up(g: Grids) -> None:
    """Compute the matrices of all grids from the unknown pixels of the finest."""
    height, width, _ = g.places[0]
    for i in range(1, height + 1):
        for j in range(1, width + 1):
            near = (2 + (i > 1) + (i < height)) * (2 + (j > 1) + (j < width)) - 4
            g.matrix[4, i * (width + 2) + j] = near * g.free[i * (width + 2) + j]
    for level in range(len(g.places) - 1):
        height, width, start = g.places[level]
        end, s = g.places[level + 1, 2], width + 2
        if level == 0:  # a row's sum of magnitudes is the diagonal plus the row applied to -free
            for i in range(end):
                g.found[i] = g.free[i]
            _residual(level, g)
            for i in range(end):
                g.left[i] = g.left[i] + _TWO * g.matrix[4, i]
        else:
            for i in range(start):
                g.wanted[i] = 0
            for first in range(9):  # pixels three apart share no neighbor, so a ninth of them is done at a time
                for i in range(g.places[level - 1, 2], end):
                    g.found[i] = 0
                for i in range(1 + first // 3, height + 1, 3):
                    for j in range(1 + first % 3, width + 1, 3):
                        g.found[start + i * s + j] = 1
                _interpolate(level - 1, g)
                _residual(level - 1, g)
                _restrict(level - 1, g)
                for i in range(1, height + 1):
                    for j in range(1, width + 1):
                        k = start + i * s + j
                        weight = -g.wanted[k]
                        g.matrix[3 * ((first // 3 - i + 2) % 3) + (first % 3 - j + 2) % 3, k] = weight
            for i in range(start, end):
                g.left[i] = 0
                for k in range(9):
                    g.left[i] += abs(g.matrix[k, i])
        for i in range(start, end):
            if g.matrix[4, i] > 0:
                g.free[i] = 1
                g.steps[i] = 1 / max(g.matrix[4, i], _DAMPING * g.left[i])
    for i in range(len(g.found)):
        g.found[i] = g.wanted[i] = g.left[i] = 0


@partial(kernel, freedom=SUMS)
def _apply(values: Doubles, free: Doubles, diagonal: Doubles, s: int, result: Doubles) -> None:
    """Compute ``result = matrix @ values``, including ``values`` at known pixels."""
    above, here, below = values, values[s:], values[2 * s :]
    free, diagonal, result = free[s + 1 :], diagonal[s + 1 :], result[s + 1 :]
    for i in range(len(values) - 2 * s - 2):
        straight = above[i + 1] + here[i] + here[i + 2] + below[i + 1]
        slanted = above[i] + above[i + 2] + below[i] + below[i + 2]
        result[i] = diagonal[i] * here[i + 1] - free[i] * (2 * straight + slanted)


@partial(kernel, freedom=SUMS)
def _advance(
    g: Grids,
    free: Doubles,
    diagonal: Doubles,
    direction: Doubles,
    product: Doubles,
    residual: Doubles,
    found: Doubles,
    before: float,
) -> float:
    """Take a step of conjugate gradients along the preconditioned residual; return about the squared error norm."""
    n, step = len(found), g.found
    error = 0.0
    for i in range(n):
        error += residual[i] * step[i]
    if not error > _ENOUGH:
        return error
    for i in range(n):
        direction[i] = step[i] + error / before * direction[i]
    _apply(direction, free, diagonal, g.places[0, 1] + 2, product)
    curvature = 0.0
    for i in range(n):
        curvature += direction[i] * product[i]
    length = error / curvature
    for i in range(n):
        found[i] += length * direction[i]
        residual[i] -= length * product[i]
        g.wanted[i] = residual[i]
    return error
