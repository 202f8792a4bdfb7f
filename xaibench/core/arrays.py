"""Checks of NumPy arrays given by a user, before anything is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain_array(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Check that an array can be converted to torch without loss.

    Args:
        values: Any array.
        name: Name of the array in errors.

    Returns:
        The array itself; numbers wider than float64 are converted to float64.

    Raises:
        TypeError: For a masked array, whose hidden values would be used like any others.
        ValueError: For numbers beyond the range of float64.

    Example:
        >>> plain_array(np.ma.masked_equal([1.0, 0.0], 0.0), "maps")
        Traceback (most recent call last):
            ...
        TypeError: maps: got a masked array, expected plain numbers; fill its holes first, such as maps.filled(0).
    """
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: got a masked array, expected plain numbers; fill its holes first, such as {name}.filled(0)."
        )
    if values.dtype.kind != "f" or values.dtype.itemsize <= 8:
        return values
    with np.errstate(over="ignore"):
        found = values.astype(np.float64)
    if (np.isfinite(values) & ~np.isfinite(found)).any():
        raise ValueError(f"{name}: got {values.dtype} numbers beyond the range of float64; scale them down.")
    return found
