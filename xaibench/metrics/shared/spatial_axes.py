"""Spatial axes of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence


def without_unit_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the spatial axes ``shape`` without axes of size one, as long as two are left.

    Metrics whose definition depends on the number of axes, such as that of the neighbors of a pixel, use it so that a
    volume of one slice is an image to them.

    Example:
        >>> without_unit_axes((1, 8, 9)), without_unit_axes((5, 8, 9)), without_unit_axes((1, 1, 9))
        ((8, 9), (5, 8, 9), (1, 9))
    """
    sides = list(shape)
    while len(sides) > 2 and 1 in sides:
        sides.remove(1)
    return tuple(sides)
