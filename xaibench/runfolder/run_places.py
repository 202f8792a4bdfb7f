"""Where a run folder lies: on this machine, or at any address that fsspec knows, where it is read without a copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast


def place_of(folder: str | os.PathLike[str]) -> Path:
    """A run folder as something to read from.

    Args:
        folder: A path, or a URL such as ``"s3://bucket/run"``, whose files are read as far as they are asked for: of a
            table some columns, of a missing file nothing.

    Returns:
        A path, or what is used like one.

    Raises:
        ImportError: If it is a URL, and ``universal-pathlib`` is not installed.
        ValueError: If fsspec knows no such address.
    """
    if isinstance(folder, Path) or "://" not in str(folder):
        return cast("Path", folder) if not isinstance(folder, str) else Path(folder)
    try:
        from upath import UPath
    except ImportError as error:
        raise ImportError(
            f'{folder} is an address, and reading from there needs universal-pathlib: pip install "xaibench[remote]", '
            "and what fsspec needs for it, such as s3fs."
        ) from error
    return cast("Path", UPath(str(folder)))
