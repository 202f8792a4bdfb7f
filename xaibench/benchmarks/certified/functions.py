"""Synthetic functions of an image whose used pixels and exact Shapley values are known.

The networks that compute them (:mod:`xaibench.models.certified`) and the images that are labeled by them
(:mod:`xaibench.benchmarks.certified`) are both built on this module.

An image is divided into cells of 2×2 pixels, and every other cell is active, as on a chessboard. Each active cell adds
the value of a :class:`CellFunction` of its four pixels, with weight 1 in even rows of cells and -1/2 in odd rows. So
Shapley values can be computed for the four pixels of each cell separately, as sums over all 16 coalitions. Absent
pixels are set to 0.

All weights, and the outputs for pixels of -1, 0 and 1, are sums of few powers of two. They are exact in floating point,
and so are cancellations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: Side length of a cell, and its number of pixels.
SIDE, PIXELS = 2, 4

#: Added to the evidence, which would otherwise be 0 for many images, so that they had no class.
OFFSET = 0.125

_T = TypeVar("_T", bound=np.generic)
_Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class Unit:
    """One hidden neuron of a network that computes the function: ``out · max(0, weights · pixels + bias)``."""

    out: float
    weights: _Four
    bias: float = 0.0


@dataclass(frozen=True)
class CellFunction:
    """Function of the four pixels of a cell (row by row), as a sum of units.

    Attributes:
        label: Name in tables and figures.
        meaning: Effect of the pixels, in words.
        used: Whether each pixel ever makes a difference.
        units: The function is the sum of these, minus their value at zero.
        linear: Weights of the function if it is linear. The units are then pairs that compute the same.
    """

    label: str
    meaning: str
    used: tuple[bool, bool, bool, bool]
    units: tuple[Unit, ...]
    linear: _Four | None = None

    def __call__(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values ``[...]`` of the function.

        Args:
            pixels: ``[..., 4]``.
        """
        weights = np.array([unit.weights for unit in self.units])
        inputs = pixels @ weights.T + [unit.bias for unit in self.units]
        start = np.maximum([unit.bias for unit in self.units], 0)  # the function is 0 if all pixels are 0
        values: NDArray[np.float64] = (np.maximum(inputs, 0) - start) @ [unit.out for unit in self.units]
        return values

    def shapley(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the exact Shapley values ``[..., 4]`` of the pixels ``[..., 4]``; absent pixels are 0 (Shapley 1953).

        They sum to the function's value, and are exactly 0 for a pixel that makes no difference to any coalition.
        """
        values = np.zeros(pixels.shape)
        for player in range(PIXELS):
            others = [other for other in range(PIXELS) if other != player]
            for size in range(PIXELS):
                share = math.factorial(size) * math.factorial(PIXELS - size - 1) / math.factorial(PIXELS)
                for coalition in itertools.combinations(others, size):
                    without = np.isin(np.arange(PIXELS), coalition)
                    joined = without | (np.arange(PIXELS) == player)
                    values[..., player] += share * (self(pixels * joined) - self(pixels * without))
        return values


def _linear_units(weights: _Four) -> tuple[Unit, Unit]:
    """Return a linear function as two units: max(0, w·p) - max(0, -w·p)."""
    a, b, c, d = weights
    return Unit(1, weights), Unit(-1, (-a, -b, -c, -d))


def _zigzag_units(pixel: int) -> tuple[Unit, ...]:
    """Return a function of one pixel, with slopes -3, 5, -3, 5, 5, -3, 5, -3 on intervals of 1/4 from -1 to 1."""
    slopes = (-3, 5, -3, 5, 5, -3, 5, -3)
    along: list[float] = [0.0] * PIXELS
    along[pixel] = 1.0
    weights = (along[0], along[1], along[2], along[3])
    changes = [slopes[0], *(after - before for before, after in itertools.pairwise(slopes))]
    # The first hinge is far below -1, so that the slope at -1 is the first one.
    hinges = [-2.0, *(-1 + number / 4 for number in range(1, 8))]
    return tuple(Unit(change, weights, -hinge) for change, hinge in zip(changes, hinges, strict=True) if change)


#: Every function by name.
FUNCTIONS = {
    "additive": CellFunction(
        "Additive",
        "The first pixel is evidence for the class, the second is evidence against it with half the weight.",
        (True, True, False, False),
        _linear_units((1, -0.5, 0, 0)),
        linear=(1, -0.5, 0, 0),
    ),
    "and": CellFunction(
        "Interaction (AND)",
        "Evidence only if the first two pixels are both 1; one alone has no effect.",
        (True, True, False, False),
        (Unit(1, (1, 1, 0, 0), -1),),
    ),
    "xor": CellFunction(
        "Interaction (XOR)",
        "Evidence if the first two pixels differ. If they agree, both have the Shapley value 0.",
        (True, True, False, False),
        (Unit(0.5, (1, -1, 0, 0)), Unit(0.5, (-1, 1, 0, 0))),
    ),
    "or": CellFunction(
        "Redundancy (OR)",
        "Evidence if at least one of the first two pixels is 1. If both are, removing one has no effect.",
        (True, True, False, False),
        (Unit(1, (1, 0, 0, 0)), Unit(1, (0, 1, 0, 0)), Unit(-1, (1, 1, 0, 0), -1)),
    ),
    "saturation": CellFunction(
        "Saturation",
        "The sum of the first three pixels, clipped to [0, 1]: constant below and above.",
        (True, True, True, False),
        (Unit(1, (1, 1, 1, 0)), Unit(-1, (1, 1, 1, 0), -1)),
    ),
    "cancellation": CellFunction(
        "Cancellation",
        "The first pixel plus the third minus the fourth. The second is connected to two neurons that cancel exactly, "
        "so it has no effect.",
        (True, False, True, True),
        (
            *_linear_units((1, 0, 0, 0)),
            *_linear_units((0, 0, 1, -1)),
            Unit(1, (0, 1, 0, 0), 0.5),
            Unit(-1, (0, 1, 0, 0), 0.5),
        ),
    ),
    "absence": CellFunction(
        "Pertinent negatives",
        "Evidence if the first two pixels are both -1: the absence of something is evidence for the class.",
        (True, True, False, False),
        (Unit(1, (-1, -1, 0, 0), -1),),
    ),
    "shattered": CellFunction(
        "Shattered gradients",
        "A zigzag function of the first pixel and of the fourth: increasing overall, but decreasing at -1 and 1.",
        (True, False, False, True),
        (*_zigzag_units(0), *_zigzag_units(3)),
    ),
}


def cell_weights(height: int, width: int) -> NDArray[np.float64]:
    """Return the weight of each cell, ``[height / 2, width / 2]``: 1 in even rows, -1/2 in odd rows, 0 if inactive.

    Raises:
        ValueError: If the image cannot be divided into cells, or is smaller than 4×4.
    """
    if height % SIDE or width % SIDE or min(height, width) < 2 * SIDE:
        raise ValueError(f"images are {height}×{width}, expected even sides of at least {2 * SIDE} pixels.")
    rows, columns = np.indices((height // SIDE, width // SIDE))
    return np.where((rows + columns) % 2 == 0, np.where(rows % 2, -0.5, 1.0), 0.0)


def used_pixels(function: CellFunction, height: int, width: int) -> NDArray[np.bool_]:
    """Return ``[H, W]``: the pixels that change the evidence of at least one image."""
    cells = cell_weights(height, width)[..., None] != 0
    found: NDArray[np.bool_] = _join_cells((cells & np.array(function.used))[None])[0]
    return found


def evidence(function: CellFunction, images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the evidence ``[N]`` for class 1, as opposed to class 0, of the images ``[N, H, W]``."""
    scales = cell_weights(*images.shape[1:])
    found: NDArray[np.float64] = (scales * function(_split_into_cells(images))).sum((1, 2)) + OFFSET
    return found


def shapley_values(function: CellFunction, images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the exact Shapley values ``[N, H, W]`` of the evidence; they sum to the evidence without its offset.

    Args:
        function: Function of each cell.
        images: ``[N, H, W]``, any values.

    Example:
        >>> image = np.zeros((1, 4, 4))
        >>> image[0, 0, :2] = 1  # both pixels of the first cell
        >>> shapley_values(FUNCTIONS["and"], image)[0, 0].tolist()
        [0.5, 0.5, 0.0, 0.0]
    """
    scales = cell_weights(*images.shape[1:])
    return _join_cells(scales[..., None] * function.shapley(_split_into_cells(images)))


def _split_into_cells(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reshape ``[N, H, W]`` to ``[N, H / 2, W / 2, 4]``."""
    count, height, width = images.shape
    cut = images.reshape(count, height // SIDE, SIDE, width // SIDE, SIDE)
    return cut.transpose(0, 1, 3, 2, 4).reshape(count, height // SIDE, width // SIDE, PIXELS)


def _join_cells(cells: NDArray[_T]) -> NDArray[_T]:
    """Reshape ``[N, H / 2, W / 2, 4]`` to ``[N, H, W]``."""
    count, rows, columns, _ = cells.shape
    laid = cells.reshape(count, rows, columns, SIDE, SIDE).transpose(0, 1, 3, 2, 4)
    return laid.reshape(count, rows * SIDE, columns * SIDE)
