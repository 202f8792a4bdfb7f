"""Shapes of the parts and of the clutter, as integer tests of points.

Coordinates are integers, so that every machine draws the same pixels. x points to the right, y down; half the side of
an image is :data:`HALF` units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: Units of half the side of an image.
HALF = 8192

#: Coordinates of points, int64.
Points = NDArray[np.int64]


@dataclass(frozen=True)
class Ellipse:
    """An ellipse with axes along x and y.

    Attributes:
        x: Center.
        y: Center.
        width: Half-axis along x, at most ``2 * HALF``.
        height: Half-axis along y, at most ``2 * HALF``.
    """

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: Points, y: Points) -> NDArray[np.bool_]:
        """Return which points are inside, or on the boundary."""
        across, down = (x - self.x) * self.height, (y - self.y) * self.width
        inside: NDArray[np.bool_] = across * across + down * down <= (self.width * self.height) ** 2
        return inside


@dataclass(frozen=True)
class Polygon:
    """A convex polygon.

    Attributes:
        corners: At least three corners ``(x, y)``, clockwise as seen on the screen.
    """

    corners: tuple[tuple[int, int], ...]

    def contains(self, x: Points, y: Points) -> NDArray[np.bool_]:
        """Return which points are inside, or on the boundary."""
        inside = np.ones(x.shape, dtype=bool)
        for (x0, y0), (x1, y1) in pairwise((*self.corners, self.corners[0])):
            inside &= (x1 - x0) * (y - y0) >= (y1 - y0) * (x - x0)
        return inside


#: Convex pieces whose union is a shape.
Shape = Sequence[Ellipse | Polygon]


def covers(shape: Shape, x: Points, y: Points) -> NDArray[np.bool_]:
    """Return which points are in a shape."""
    inside = shape[0].contains(x, y)
    for piece in shape[1:]:
        inside |= piece.contains(x, y)
    return inside


def grid(size: int) -> tuple[Points, Points]:
    """Return the coordinates of the pixel centers of an image: x ``[1, size]`` and y ``[size, 1]``.

    Example:
        >>> x, y = grid(4)
        >>> x.tolist()
        [[-6144, -2048, 2048, 6144]]
    """
    places = (2 * np.arange(size, dtype=np.int64) + 1 - size) * HALF // size
    return places[None], places[:, None]


@dataclass(frozen=True)
class Pose:
    """Position, size, rotation and direction of an object.

    Attributes:
        x: Center of the object in the image.
        y: Center of the object in the image.
        scale: Size, times 1024.
        turn: Tangent of half the angle of rotation, times 64: 16 is a rotation by 28 degrees.
        mirrored: Whether left and right are exchanged.
    """

    x: int
    y: int
    scale: int
    turn: int
    mirrored: bool

    def own_coordinates(self, x: Points, y: Points) -> tuple[Points, Points]:
        """Return the coordinates of points of the image in the frame of the object, rounded down to integers."""
        # Cosine and sine are rational functions of the tangent of half the angle; here times 4096.
        tangent = 64
        whole = tangent * tangent + self.turn * self.turn
        cosine = 4096 * (tangent * tangent - self.turn * self.turn) // whole
        sine = 4096 * 2 * tangent * self.turn // whole
        across, down = x - self.x, y - self.y
        own_x = (cosine * across + sine * down) // (4 * self.scale)
        own_y = (cosine * down - sine * across) // (4 * self.scale)
        return (-own_x if self.mirrored else own_x), own_y
