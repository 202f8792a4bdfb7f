"""How the inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_FREEDOM = {"nnan", "nsz"}

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile ``function`` with numba: kept on disk for the next process, and free of the interpreter's lock.

    There is no nan in here and the sign of a zero does not matter, which lets minima become vector operations.
    Sums are not reordered. Where no folder for the cache can be written, each process compiles anew.
    """
    try:
        return cast(_F, njit(cache=True, nogil=True, fastmath=_FREEDOM)(function))
    except RuntimeError:  # numba found no folder for its cache
        return cast(_F, njit(nogil=True, fastmath=_FREEDOM)(function))
