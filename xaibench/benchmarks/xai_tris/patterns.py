"""The signal of XAI-TRIS: tetrominoes, their positions, smoothing, and ground-truth masks.

The *kind* of a sample is the index of its pattern among all patterns of its scenario.

==============  =======================================================  ====================
scenario        kinds                                                    class of kind ``k``
==============  =======================================================  ====================
lin, mult       T, L                                                     ``k``
xor             (T, L) signs (+,+), (−,−), (+,−), (−,+)                  ``k // 2``
rigid           T at each placement, then L at each placement            ``k // placements``
==============  =======================================================  ====================

A placement is a rotation and a top-left corner for which the whole shape is inside the image.

In LIN, MULT and XOR, T and L are at fixed placements, which are those of the paper in layout 0. A positive layout has
other ones, so that a constant map that fits the paper's layout fails (:func:`fixed_placements`).

Source: Clark, Wilming and Haufe (2023), section 2; the 8×8 sets of its appendix do not smooth the pattern.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

Scenario: TypeAlias = Literal["lin", "mult", "rigid", "xor"]
Size: TypeAlias = Literal[8, 64]
#: Row and column in the grid of 8×8 cells.
Cell: TypeAlias = tuple[int, int]

SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
SIZES: tuple[Size, ...] = get_args(Size)

#: T and L, one number per cell.
SHAPES = (np.array([[1, 0], [1, 1], [1, 0]]), np.array([[1, 0], [1, 0], [1, 1]]))
#: Class names, in the order of their index.
SHAPE_CLASSES = ("T", "L")
XOR_CLASSES = ("same sign", "opposite sign")
#: Signs of T and L in the four kinds of XOR.
SIGNS = ((1, 1), (-1, -1), (1, -1), (-1, 1))
#: The support of a pattern are the pixels above this fraction of its largest absolute value.
SUPPORT_CUT = 0.05
#: Weights of the Gaussian filters are multiples of this.
WEIGHT_STEP = 2.0**-22

#: Images of LIN, MULT and XOR have so many rows and columns of cells, at 8×8 pixels as at 64×64.
_GRID = 8
#: The patterns of a layout other than the paper's share at most so many of their 8 cells with those of the paper.
_MOST_SHARED = 2


class Placement(NamedTuple):
    """Position and orientation of a shape.

    Attributes:
        turns: Counterclockwise quarter turns.
        row: Row of the top-left corner.
        column: Column of the top-left corner.
    """

    turns: int
    row: int
    column: int


#: Placements of T and L in the paper, in cells.
_PAPER = (Placement(0, 1, 1), Placement(0, 4, 5))


def fixed_placements(layout: int) -> tuple[Placement, Placement]:
    """Return the placements of T and L in LIN, MULT and XOR, in cells of a grid of 8×8.

    The layouts 1, 2, ... are all pairs of placements, in a fixed pseudorandom order, for which

    * both shapes are whole and leave the outermost cells of the image empty, as in the paper,
    * an empty row or column of cells separates their bounding boxes, so that the smoothed shapes do not overlap,
    * at most 2 of the 8 cells are cells of the paper's patterns.

    There are 976 such pairs; they start again after the last one.

    Args:
        layout: Number of the layout; 0 = that of the paper.

    Returns:
        The placements of T and L.

    Example:
        >>> fixed_placements(0)
        (Placement(turns=0, row=1, column=1), Placement(turns=0, row=4, column=5))
        >>> fixed_placements(7) == fixed_placements(7 + 976) != fixed_placements(8)
        True
    """
    return _drawn_layouts()[(layout - 1) % len(_drawn_layouts())] if layout else _PAPER


@lru_cache
def _drawn_layouts() -> tuple[tuple[Placement, Placement], ...]:
    paper = frozenset[Cell]().union(*map(_cells, (0, 1), _PAPER))
    found = []
    for pair in itertools.product(_inner_placements(0), _inner_placements(1)):
        first, second = map(_cells, (0, 1), pair)
        if _is_separated(first, second) and len((first | second) & paper) <= _MOST_SHARED:
            found.append(pair)
    # The order of hashes is the same on every machine and with every version of NumPy.
    return tuple(sorted(found, key=lambda pair: hashlib.sha256(repr([*pair[0], *pair[1]]).encode()).digest()))


def _inner_placements(shape: int) -> list[Placement]:
    """Return all placements of a shape that leave the outermost cells empty."""
    sizes = [np.rot90(SHAPES[shape], turns).shape for turns in range(4)]
    return [
        Placement(turns, row, column)
        for turns, (height, width) in enumerate(sizes)
        for row in range(1, _GRID - height)
        for column in range(1, _GRID - width)
    ]


@cache
def _cells(shape: int, placement: Placement) -> frozenset[Cell]:
    """Return the cells of a shape."""
    turns, row, column = placement
    return frozenset((row + i, column + j) for i, j in np.argwhere(np.rot90(SHAPES[shape], turns)).tolist())


def _is_separated(one: frozenset[Cell], other: frozenset[Cell]) -> bool:
    """Return whether a row or column of cells is between the bounding boxes of two shapes."""
    return any(
        max(cell[axis] for cell in first) + 1 < min(cell[axis] for cell in second)
        for axis in (0, 1)
        for first, second in ((one, other), (other, one))
    )


@lru_cache
def smoothing_matrix(size: int, sigma: float) -> NDArray[np.float64]:
    """Return the matrix ``G`` for which ``G @ image @ G.T`` is ``scipy.ndimage.gaussian_filter(image, sigma)``.

    The filter is linear and separable, so it is determined by its response to the unit vectors, including the
    reflecting border. Smoothing is then two products of small matrices for any sigma. The weights are rounded to
    multiples of :data:`WEIGHT_STEP`, so that sums of products with them are exact.

    Example:
        >>> smoothing_matrix(8, 3.0).sum(axis=1)
        array([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    weights = gaussian_weights(sigma)
    radius = len(weights) // 2
    matrix = np.zeros((size, size))
    for offset, weight in zip(range(-radius, radius + 1), weights, strict=True):
        reached = np.arange(offset, size + offset) % (2 * size)
        matrix[np.arange(size), np.minimum(reached, 2 * size - 1 - reached)] += weight
    matrix.setflags(write=False)
    return matrix


def gaussian_weights(sigma: float) -> list[float]:
    """Return the weights of a Gaussian filter cut at 4 sigma, as multiples of :data:`WEIGHT_STEP` that sum to 1.

    A last-bit error of ``exp`` would have to be 2^28 times larger to change the rounding of a weight.
    """
    radius = int(4 * sigma + 0.5)
    exact = [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-radius, radius + 1)]
    total = math.fsum(exact)
    units = [round(each / total / WEIGHT_STEP) for each in exact]
    units[radius] += round(1 / WEIGHT_STEP) - sum(units)
    return [unit * WEIGHT_STEP for unit in units]


@dataclass(frozen=True)
class Patterns:
    """All patterns of one scenario and image size.

    Args:
        scenario: ``"lin"``, ``"mult"``, ``"rigid"`` or ``"xor"``.
        size: 8 or 64.
        layout: Number of the layout of LIN, MULT and XOR (:func:`fixed_placements`); ignored for RIGID.

    Example:
        >>> table, where = Patterns("lin", 8).render(np.array([0, 0, 0]))
        >>> table[where].shape
        (3, 8, 8)
        >>> table[0, :5, :4].astype(int)
        array([[0, 0, 0, 0],
               [0, 1, 0, 0],
               [0, 1, 1, 0],
               [0, 1, 0, 0],
               [0, 0, 0, 0]])
    """

    scenario: Scenario
    size: Size
    layout: int = 0

    @property
    def block(self) -> int:
        """Height and width of a cell of the tetromino in pixels."""
        if self.size == 8:
            return 1
        return 4 if self.scenario == "rigid" else 8

    @property
    def fixed(self) -> tuple[Placement, ...]:
        """Fixed placements of T and L in LIN, MULT and XOR, in pixels."""
        placed = fixed_placements(self.layout)
        return tuple(Placement(turns, row * self.block, column * self.block) for turns, row, column in placed)

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the Gaussian smoothing; None = not smoothed."""
        return None if self.size == 8 else 1.5

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """All placements in pixels for which the whole shape is inside the image."""
        return tuple(
            Placement(turns, row, column)
            for turns in range(4)
            for row in range(self.size - self._rotated_shapes[0, turns].shape[0] + 1)
            for column in range(self.size - self._rotated_shapes[0, turns].shape[1] + 1)
        )

    @property
    def cases(self) -> int:
        """Number of cases, which are equally frequent in every split: the classes, or for XOR the sign pairs."""
        return 4 if self.scenario == "xor" else 2

    @property
    def kinds(self) -> int:
        """Number of patterns, all equally frequent."""
        return self.cases * (len(self.placements) if self.scenario == "rigid" else 1)

    def draw(self, cases: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the kind of each sample, given its case. Random only for RIGID (uniform over placements)."""
        if self.scenario != "rigid":
            return cases
        return cases * len(self.placements) + rng.integers(len(self.placements), size=len(cases))

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their index."""
        return XOR_CLASSES if self.scenario == "xor" else SHAPE_CLASSES

    def targets(self, cases: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class of each case."""
        return cases // 2 if self.scenario == "xor" else cases

    def render(self, kinds: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the patterns of ``[N]`` kinds, in [−1, 1], smoothed and set to 0 outside of their support.

        Most samples share a few patterns, so every pattern is computed once. The result is a table ``[P, size, size]``
        and indices ``[N]`` into it; ``table[where]`` is ``[N, size, size]``.
        """
        unique, where = np.unique(kinds, return_inverse=True)
        patterns = np.stack([self._render_kind(int(kind)) for kind in unique])
        patterns[~support(patterns)] = 0
        return patterns, where

    def truth(self, table: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the ground-truth mask of each pattern of a rendered table, ``[P, size, size]``, True = important.

        For RIGID, the mask is the support of the sample's shape. Otherwise it is the union of the supports of T and L
        in every sample, because the absence of a shape is as informative as its presence. The sign of a pattern does
        not matter.
        """
        if self.scenario == "rigid":
            return np.asarray(table != 0)
        return np.broadcast_to(_both_supports(self.size, self.layout), table.shape)

    @cached_property
    def _rotated_shapes(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Both shapes in all rotations, in pixels: ``{(shape, quarter turns): [h, w]}``."""
        cell = np.ones((self.block, self.block))
        return {(shape, turns): np.kron(np.rot90(SHAPES[shape], turns), cell) for shape in (0, 1) for turns in range(4)}

    def _render_kind(self, kind: int) -> NDArray[np.float64]:
        """Return a smoothed pattern, before the cut to its support, by columns of the smoothing matrix."""
        smooth = np.eye(self.size) if self.sigma is None else smoothing_matrix(self.size, self.sigma)
        if self.scenario == "rigid":
            shape, placement = divmod(kind, len(self.placements))
            shown = [(shape, 1, *self.placements[placement])]
        elif self.scenario == "xor":
            shown = [(shape, SIGNS[kind][shape], *self.fixed[shape]) for shape in (0, 1)]
        else:
            shown = [(kind, 1, *self.fixed[kind])]
        image = np.zeros((self.size, self.size))
        for shape, sign, turns, row, column in shown:
            blocks = self._rotated_shapes[shape, turns]
            height, width = blocks.shape
            image += sign * (smooth[:, row : row + height] @ blocks @ smooth[:, column : column + width].T)
        return image


@lru_cache
def _both_supports(size: Size, layout: int) -> NDArray[np.bool_]:
    """Return the union of the supports of T and L at their fixed placements, ``[size, size]``."""
    table, _ = Patterns("lin", size, layout).render(np.array([0, 1]))
    return np.asarray((table != 0).any(axis=0))


def support(patterns: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return where ``|pattern|`` exceeds 5 % of its maximum, per pattern: ``[N, H, W]`` to bool ``[N, H, W]``.

    The paper truncates the infinite support of the smoothed pattern in this way. The absolute value keeps the negative
    patterns of XOR, which the released code loses.

    Example:
        >>> support(np.array([[[0.0, 0.04, -1.0]]]))
        array([[[False, False,  True]]])
    """
    magnitude = np.abs(patterns)
    return np.asarray(magnitude > SUPPORT_CUT * magnitude.max(axis=(1, 2), keepdims=True))
