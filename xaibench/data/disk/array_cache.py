"""Cache files of arrays: read back completely, or computed again if they are damaged."""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.core.files import atomic_file

_LOGGER = logging.getLogger("xaibench")
_T = TypeVar("_T")

#: Exceptions that NumPy and its zip container (which has checksums) raise for damaged files.
DAMAGED_FILE_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, zlib.error)


def read_cached(file: Path, make: Callable[[Mapping[str, NDArray[Any]]], _T]) -> _T | None:
    """Return ``make(arrays)`` for the arrays in ``file``; None if the file is missing or (with a warning) damaged.

    ``make`` raises ``ValueError`` if the arrays are not as expected; the file then counts as damaged. Pickled arrays
    are rejected, so nothing in the file is executed.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            return make(archive)
    except FileNotFoundError:
        return None
    except DAMAGED_FILE_ERRORS as error:
        _LOGGER.warning("The cache file %s is damaged (%s); it is built again.", file, error)
        return None


def write_cached(file: Path, what: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to ``file`` atomically. If that fails, log a warning that ``what`` could not be cached."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as stream:
            np.savez(stream, **cast("dict[str, Any]", arrays))
    except OSError as error:
        _LOGGER.warning("%s could not be cached in %s (%s); they are built again next time.", what, file, error)
