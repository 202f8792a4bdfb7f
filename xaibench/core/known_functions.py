"""Functions of an image of which all is known: which pixels they use, and the exact Shapley value of each pixel.

The networks that compute them (:mod:`xaibench.models.certified`) and the images that are labelled by them
(:mod:`xaibench.data.certified`) both build on this.

An image is cut into cells of 2×2 pixels, of which every other one counts, as on a chessboard. Each of those adds what
a :class:`CellFunction` makes of its four pixels, those in odd rows minus half of it. So the Shapley values are those of
four players in each cell by itself: they are summed up over all 16 coalitions, a pixel that is left out being 0.

All weights are sums of a few powers of two, and so are the outputs for pixels of -1, 0 and 1: they are exact, and what
cancels, cancels exactly.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: Pixels along the side of a cell, and in it.
SIDE, PIXELS = 2, 4

#: Added to the evidence, which else would be 0 for many images: then they would have no class.
OFFSET = 0.125

_T = TypeVar("_T", bound=np.generic)
_Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class Unit:
    """``out · max(0, weights · pixels + bias)``: one hidden neuron of a network that computes the function."""

    out: float
    weights: _Four
    bias: float = 0.0


@dataclass(frozen=True)
class CellFunction:
    """What a cell makes of its four pixels (row by row): the sum of some units.

    Attributes:
        label: Name as printed in tables and figures.
        meaning: In words, which pixels do what.
        used: Which of the pixels ever make a difference.
        units: The sum of these it is, but for what ``linear`` adds.
        linear: Where the function is linear: its weights. The units are then pairs that make the same of them.
    """

    label: str
    meaning: str
    used: tuple[bool, bool, bool, bool]
    units: tuple[Unit, ...]
    linear: _Four | None = None

    def __call__(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its values ``[...]``.

        Args:
            pixels: ``[..., 4]``.
        """
        weights = np.array([unit.weights for unit in self.units])
        inputs = pixels @ weights.T + [unit.bias for unit in self.units]
        start = np.maximum([unit.bias for unit in self.units], 0)  # at pixels of 0 the function is 0
        values: NDArray[np.float64] = (np.maximum(inputs, 0) - start) @ [unit.out for unit in self.units]
        return values

    def shapley(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The exact Shapley values ``[..., 4]`` of the pixels ``[..., 4]``, left out as 0 (Shapley 1953).

        They sum to the function's value, and are exactly 0 where a pixel makes no difference to any coalition.
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


def _both_ways(weights: _Four) -> tuple[Unit, Unit]:
    """A linear function as two units: max(0, w·p) - max(0, -w·p)."""
    a, b, c, d = weights
    return Unit(1, weights), Unit(-1, (-a, -b, -c, -d))


def _zigzag(pixel: int) -> tuple[Unit, ...]:
    """A function of one pixel that rises from -1 to 1 in the slopes -3, 5, -3, 5, 5, -3, 5, -3, a quarter each."""
    slopes = (-3, 5, -3, 5, 5, -3, 5, -3)
    along: list[float] = [0.0] * PIXELS
    along[pixel] = 1.0
    weights = (along[0], along[1], along[2], along[3])
    changes = [slopes[0], *(after - before for before, after in itertools.pairwise(slopes))]
    # The first hinge lies far below, so that the slope at -1 is the first one's.
    hinges = [-2.0, *(-1 + number / 4 for number in range(1, 8))]
    return tuple(Unit(change, weights, -hinge) for change, hinge in zip(changes, hinges, strict=True) if change)


#: Every function by name.
FUNCTIONS = {
    "additive": CellFunction(
        "Additive",
        "The first pixel counts for the class, the second half as much against it.",
        (True, True, False, False),
        _both_ways((1, -0.5, 0, 0)),
        linear=(1, -0.5, 0, 0),
    ),
    "and": CellFunction(
        "Interaction (AND)",
        "Counts only where the first two pixels are both 1; either alone says nothing.",
        (True, True, False, False),
        (Unit(1, (1, 1, 0, 0), -1),),
    ),
    "xor": CellFunction(
        "Interaction (XOR)",
        "Counts where the first two pixels differ. Where they agree, each has the Shapley value 0.",
        (True, True, False, False),
        (Unit(0.5, (1, -1, 0, 0)), Unit(0.5, (-1, 1, 0, 0))),
    ),
    "or": CellFunction(
        "Redundancy (OR)",
        "Counts where either of the first two pixels is 1. Where both are, neither is missed.",
        (True, True, False, False),
        (Unit(1, (1, 0, 0, 0)), Unit(1, (0, 1, 0, 0)), Unit(-1, (1, 1, 0, 0), -1)),
    ),
    "saturation": CellFunction(
        "Saturation",
        "The sum of the first three pixels, but at least 0 and at most 1: flat on either side.",
        (True, True, True, False),
        (Unit(1, (1, 1, 1, 0)), Unit(-1, (1, 1, 1, 0), -1)),
    ),
    "cancellation": CellFunction(
        "Cancellation",
        "The third pixel minus the fourth, beside the first. The second goes through two neurons that cancel exactly: "
        "it is connected, and has no effect.",
        (True, False, True, True),
        (
            *_both_ways((1, 0, 0, 0)),
            *_both_ways((0, 0, 1, -1)),
            Unit(1, (0, 1, 0, 0), 0.5),
            Unit(-1, (0, 1, 0, 0), 0.5),
        ),
    ),
    "absence": CellFunction(
        "Pertinent negatives",
        "Counts where the first two pixels are both -1: what speaks for the class is that something is not there.",
        (True, True, False, False),
        (Unit(1, (-1, -1, 0, 0), -1),),
    ),
    "shattered": CellFunction(
        "Shattered gradients",
        "The first and the fourth pixel, each along a zigzag: it rises on the whole, and falls at -1 and 1.",
        (True, False, False, True),
        (*_zigzag(0), *_zigzag(3)),
    ),
}


def counting_cells(height: int, width: int) -> NDArray[np.float64]:
    """What each cell counts, ``[height / 2, width / 2]``: 1 in even rows, -1/2 in odd ones, 0 where it does not.

    Raises:
        ValueError: If the image cannot be cut into cells, or is smaller than 4×4.
    """
    if height % SIDE or width % SIDE or min(height, width) < 2 * SIDE:
        raise ValueError(f"images are {height}×{width}, expected even sides of at least {2 * SIDE} pixels.")
    rows, columns = np.indices((height // SIDE, width // SIDE))
    return np.where((rows + columns) % 2 == 0, np.where(rows % 2, -0.5, 1.0), 0.0)


def used_pixels(function: CellFunction, height: int, width: int) -> NDArray[np.bool_]:
    """``[H, W]``: the pixels that make a difference to the evidence of some image."""
    cells = counting_cells(height, width)[..., None] != 0
    found: NDArray[np.bool_] = _as_image((cells & np.array(function.used))[None])[0]
    return found


def evidence(function: CellFunction, images: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N]``: how much speaks for class 1 rather than for class 0 in the images ``[N, H, W]``."""
    scales = counting_cells(*images.shape[1:])
    found: NDArray[np.float64] = (scales * function(_as_cells(images))).sum((1, 2)) + OFFSET
    return found


def shapley_values(function: CellFunction, images: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, H, W]``: the exact Shapley values of the evidence; they sum to it, less its offset.

    Args:
        function: What each cell computes.
        images: ``[N, H, W]``, any values.

    Example:
        >>> image = np.zeros((1, 4, 4))
        >>> image[0, 0, :2] = 1  # both pixels of the first cell
        >>> shapley_values(FUNCTIONS["and"], image)[0, 0].tolist()
        [0.5, 0.5, 0.0, 0.0]
    """
    scales = counting_cells(*images.shape[1:])
    return _as_image(scales[..., None] * function.shapley(_as_cells(images)))


def _as_cells(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, H, W]`` as ``[N, H / 2, W / 2, 4]``."""
    count, height, width = images.shape
    cut = images.reshape(count, height // SIDE, SIDE, width // SIDE, SIDE)
    return cut.transpose(0, 1, 3, 2, 4).reshape(count, height // SIDE, width // SIDE, PIXELS)


def _as_image(cells: NDArray[_T]) -> NDArray[_T]:
    """The other way."""
    count, rows, columns, _ = cells.shape
    laid = cells.reshape(count, rows, columns, SIDE, SIDE).transpose(0, 1, 3, 2, 4)
    return laid.reshape(count, rows * SIDE, columns * SIDE)
