"""Orthogonal slices of volumes, for pictures."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)


def heaviest_slices(mass: NDArray[Any], *, middle: bool = False) -> tuple[int, ...]:
    """Return the slice along each axis with the largest sum; the first one if several are equal.

    Args:
        mass: ``[D, H, W]``, such as the magnitude of a map or a mask.
        middle: Return the middle one of several equal slices, for masks of simple shapes.

    Returns:
        One index per axis.

    Example:
        >>> mass = np.zeros((3, 4, 5))
        >>> mass[:, 2, 3:] = 1
        >>> heaviest_slices(mass), heaviest_slices(mass, middle=True)
        ((0, 2, 3), (1, 2, 3))
    """
    axes = range(mass.ndim)
    sums = [mass.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    equal = [np.flatnonzero(one == one.max()) for one in sums]
    return tuple(int(numbers[(len(numbers) - 1) // 2 if middle else 0]) for numbers in equal)


def cut_slices(volume: NDArray[_T], slices: tuple[int, ...]) -> tuple[NDArray[_T], NDArray[_T], NDArray[_T]]:
    """Return three orthogonal slices of a volume.

    Args:
        volume: ``[D, H, W, ...]``.
        slices: Slice d, row h and column w, where the volume is cut.

    Returns:
        Slice d ``[H, W, ...]``; column w ``[H, D, ...]``, which belongs to its right; and row h ``[D, W, ...]``, which
        belongs below.
    """
    d, h, w = slices
    return volume[d], volume[:, :, w].swapaxes(0, 1), volume[:, h]


def name_slices(slices: tuple[int, ...]) -> list[str]:
    """Name three orthogonal slices by their axes.

    Example:
        >>> name_slices((7, 30, 12))
        ['slice d = 7', 'row h = 30', 'column w = 12']
    """
    return [f"{name} = {number}" for name, number in zip(("slice d", "row h", "column w"), slices, strict=True)]
