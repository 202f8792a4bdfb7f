"""Locations of run folders: local paths, or URLs that fsspec supports, which are read without a local copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast


def resolve_location(folder: str | os.PathLike[str]) -> Path:
    """Return a path object for a run folder.

    Args:
        folder: A path, or a URL such as ``"s3://bucket/run"``. Of remote files, only the required parts are read, such
            as some columns of a table.

    Returns:
        A :class:`~pathlib.Path`, or for a URL an object with the same interface.

    Raises:
        ImportError: If it is a URL and ``universal-pathlib`` is not installed.
        ValueError: If fsspec does not support the URL.
    """
    if isinstance(folder, Path) or "://" not in str(folder):
        return cast("Path", folder) if not isinstance(folder, str) else Path(folder)
    try:
        from upath import UPath
    except ImportError as error:
        raise ImportError(
            f'{folder} is a URL; reading it needs universal-pathlib: pip install "xaibench[remote]", and the fsspec '
            "package for its protocol, such as s3fs."
        ) from error
    return cast("Path", UPath(str(folder)))
