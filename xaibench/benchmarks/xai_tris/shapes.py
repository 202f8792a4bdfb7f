"""The shapes of XAI-TRIS, which are four cells each, and where they are: tetrominoes in images, tetracubes in volumes.

====  =======================================  =================================================================
axes  shapes                                   rotations
====  =======================================  =================================================================
2     T, L                                     4 quarter turns
3     tripod: a cell with a neighbor along     the 24 rotations of a cube, of which the
      each axis; screw: a path of four cells   tripod has 8 different results, the screw 12
      along three axes
====  =======================================  =================================================================

Both tetracubes fit into a cube of 2×2×2 cells, and neither fits into a plane: no slice shows the whole shape.

A placement is a rotation and a corner for which the whole shape is inside the image. In LIN, MULT and XOR, both shapes
are at fixed placements. Layout 0 is that of the paper for tetrominoes; a positive layout has other ones, so that a
constant map that fits layout 0 fails (:func:`fixed_placements`).
"""

from __future__ import annotations

import hashlib
import itertools
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Indices of a cell in the grid of cells, one per axis.
Cell: TypeAlias = tuple[int, ...]

#: The two shapes by the number of axes, one number per cell.
SHAPES: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {
    2: (np.array([[1, 0], [1, 1], [1, 0]]), np.array([[1, 0], [1, 0], [1, 1]])),
    3: (np.array([[[1, 1], [1, 0]], [[1, 0], [0, 0]]]), np.array([[[1, 0], [1, 1]], [[0, 0], [0, 1]]])),
}
#: Names of the shapes, in the order of their index.
SHAPE_NAMES = {2: ("T", "L"), 3: ("tripod", "screw")}

#: Images of LIN, MULT and XOR have so many cells along each axis, at every size.
_GRID = 8
#: The shapes of a positive layout share at most so many of their 8 cells with those of layout 0.
_MOST_SHARED = 2


class Placement(NamedTuple):
    """Rotation and position of a shape.

    Attributes:
        turns: Number of the rotation (:func:`rotated`).
        corner: First cell or pixel of its bounding box along each axis.
    """

    turns: int
    corner: Cell


#: Placements of both shapes in layout 0, in cells.
_FIRST_LAYOUT = {
    2: (Placement(0, (1, 1)), Placement(0, (4, 5))),
    3: (Placement(0, (1, 1, 1)), Placement(0, (4, 5, 5))),
}


@cache
def _cube_rotations() -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return the rotations of a cube, each as an order of its axes and the axes that are reversed afterwards."""
    return tuple(
        (order, tuple(axis for axis in range(3) if reverse[axis]))
        for order in itertools.permutations(range(3))
        for reverse in itertools.product((0, 1), repeat=3)
        # A swap of two axes and the reversal of one are mirror images; two of them make a rotation.
        if (sum(order[i] > order[j] for i in range(3) for j in range(i + 1, 3)) + sum(reverse)) % 2 == 0
    )


def rotation_count(axes: int) -> int:
    """Return the number of rotations of the shapes.

    Example:
        >>> rotation_count(2), rotation_count(3)
        (4, 24)
    """
    return 4 if axes == 2 else len(_cube_rotations())


def rotated(cells: NDArray[np.int64], turns: int) -> NDArray[np.int64]:
    """Rotate a shape.

    Args:
        cells: One number per cell, ``[h, w]`` or ``[d, h, w]``.
        turns: Number of the rotation, of :func:`rotation_count`: counterclockwise quarter turns in a plane; 0 = none.

    Returns:
        The rotated cells.
    """
    if cells.ndim == 2:
        return np.rot90(cells, turns)
    order, reverse = _cube_rotations()[turns]
    return np.flip(cells.transpose(order), reverse)


def fixed_placements(layout: int, axes: int = 2) -> tuple[Placement, Placement]:
    """Return the placements of both shapes in LIN, MULT and XOR, in a grid of 8 cells along each axis.

    The positive layouts are pairs of placements in a fixed pseudorandom order for which

    * both shapes are whole and leave the outermost cells of the image empty, as in the paper,
    * an empty row, column or plane of cells separates their bounding boxes, so that smoothed shapes do not overlap,
    * at most 2 of the 8 cells are cells of the shapes of layout 0.

    In two axes, there are 976 such pairs, which start again after the last one; in three axes, there are millions.

    Args:
        layout: Number of the layout; 0 = that of the paper.
        axes: 2 for tetrominoes, 3 for tetracubes.

    Returns:
        The placements of the two shapes.

    Example:
        >>> fixed_placements(0)
        (Placement(turns=0, corner=(1, 1)), Placement(turns=0, corner=(4, 5)))
        >>> fixed_placements(7) == fixed_placements(7 + 976) != fixed_placements(8)
        True
    """
    if not layout:
        return _FIRST_LAYOUT[axes]
    if axes == 2:
        return _all_plane_layouts()[(layout - 1) % len(_all_plane_layouts())]
    return _drawn_layout(layout, axes)


@lru_cache
def _all_plane_layouts() -> tuple[tuple[Placement, Placement], ...]:
    pairs = itertools.product(_inner_placements(0, 2), _inner_placements(1, 2))
    found = [pair for pair in pairs if _is_layout(pair, 2)]

    # The order of hashes is the same on every machine and with every version of NumPy.
    def order(pair: tuple[Placement, Placement]) -> bytes:
        return hashlib.sha256(repr([n for turns, corner in pair for n in (turns, *corner)]).encode()).digest()

    return tuple(sorted(found, key=order))


@lru_cache
def _drawn_layout(layout: int, axes: int) -> tuple[Placement, Placement]:
    """Return the first pair of placements that is a layout, in a sequence that the hash of its number determines."""
    first, second = (_inner_placements(shape, axes) for shape in (0, 1))
    digests = (hashlib.sha256(repr([axes, int(layout), number]).encode()).digest() for number in itertools.count())
    numbers = ((int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")) for digest in digests)
    pairs = ((first[one % len(first)], second[other % len(second)]) for one, other in numbers)
    return next(pair for pair in pairs if _is_layout(pair, axes))


def _is_layout(pair: tuple[Placement, Placement], axes: int) -> bool:
    """Return whether two placements are apart, and apart from the placements of layout 0."""
    known = frozenset[Cell]().union(*(_cells(shape, each) for shape, each in enumerate(_FIRST_LAYOUT[axes])))
    first, second = (_cells(shape, each) for shape, each in enumerate(pair))
    return len((first | second) & known) <= _MOST_SHARED and _is_separated(first, second)


@cache
def _inner_placements(shape: int, axes: int) -> list[Placement]:
    """Return all placements of a shape that leave the outermost cells empty."""
    return [
        Placement(turns, corner)
        for turns in range(rotation_count(axes))
        for corner in itertools.product(*(range(1, _GRID - side) for side in rotated(SHAPES[axes][shape], turns).shape))
    ]


@cache
def _cells(shape: int, placement: Placement) -> frozenset[Cell]:
    """Return the cells of a shape."""
    turns, corner = placement
    found = np.argwhere(rotated(SHAPES[len(corner)][shape], turns)) + corner
    return frozenset(map(tuple, found.tolist()))


def _is_separated(one: frozenset[Cell], other: frozenset[Cell]) -> bool:
    """Return whether a row, column or plane of cells is between the bounding boxes of two shapes."""
    return any(
        max(cell[axis] for cell in first) + 1 < min(cell[axis] for cell in second)
        for axis in range(len(next(iter(one))))
        for first, second in ((one, other), (other, one))
    )
