"""Distances between neighboring pixels, for metrics that measure distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xaibench.core.types import Array

#: Distance between neighboring pixels, in any unit of length: None (1 along every axis), one positive number per
#: spatial axis in the order of the axes, such as ``(5.0, 0.7, 0.7)`` millimeters for D, H and W, or a row of them per
#: sample, ``[N, axes]``.
Spacing: TypeAlias = "Sequence[float] | Array | None"


def pixel_spacing(spacing: Spacing, shape: Sequence[int]) -> NDArray[np.float64]:
    """Return the spacing along every axis for every sample, ``[N, axes]``.

    Args:
        spacing: As the caller of a metric gave it.
        shape: Shape of the maps: N and the spatial axes.

    Raises:
        ValueError: If the shape does not match the maps, or a number is not positive and finite.
        TypeError: If it does not hold real numbers.

    Example:
        >>> pixel_spacing((5.0, 0.5), (3, 8, 8)).tolist()
        [[5.0, 0.5], [5.0, 0.5], [5.0, 0.5]]
    """
    count, axes = shape[0], len(shape) - 1
    if spacing is None:
        return np.ones((count, axes))
    given = np.asarray(spacing)
    if given.dtype.kind not in "fiu":
        raise TypeError(f"spacing must hold real numbers, got {spacing!r}.")
    if given.shape not in ((axes,), (count, axes)):
        hint = " A single volume is [1, D, H, W]." if axes == 2 and given.shape == (3,) else ""
        raise ValueError(
            f"spacing must hold {axes} numbers, one per spatial axis, or a row of them per sample, [{count}, {axes}], "
            f"got the shape {list(given.shape)}.{hint}"
        )
    lengths = np.broadcast_to(given.astype(np.float64), (count, axes))
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"spacing must be positive and finite, got values from {lengths.min()} to {lengths.max()}.")
    return lengths
