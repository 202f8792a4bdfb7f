"""Arrays that were slow to make, kept in one file: read back whole, or made anew."""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.core.atomic_files import whole_file

_LOGGER = logging.getLogger("xaibench")
_T = TypeVar("_T")

#: What numpy and its zip container (which carries checksums) raise on damaged files.
DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, zlib.error)


def read_kept(file: Path, make: Callable[[Mapping[str, NDArray[Any]]], _T]) -> _T | None:
    """What ``make`` makes of the arrays in ``file``; None if there is no file, or (with a warning) a damaged one.

    ``make`` raises ``ValueError`` where the arrays are not what they should be: that is damage too. Nothing in the file
    is executed: pickled arrays are refused.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            return make(archive)
    except FileNotFoundError:
        return None
    except DAMAGE as error:
        _LOGGER.warning("The cache file %s is damaged (%s); it is made anew.", file, error)
        return None


def keep(file: Path, what: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Keep arrays in ``file``, whole or not at all; where it cannot be written, a warning says ``what`` is lost."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            np.savez(stream, **cast("dict[str, Any]", arrays))
    except OSError as error:
        _LOGGER.warning("%s could not be kept in %s (%s); they are made anew next time.", what, file, error)
