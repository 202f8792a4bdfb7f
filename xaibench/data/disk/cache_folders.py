"""Where what was slow to build is kept, and when it counts as the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from xaibench.data.disk.file_readers import naming


def default_cache_dir() -> Path:
    """``$XAIBENCH_CACHE``, or ``~/.cache/xaibench`` where it is not set."""
    named = os.environ.get("XAIBENCH_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "xaibench"


def cache_folder(name: str, folder: Path, *key: object) -> Path:
    """The folder, made if need be, for what is built from the set ``name`` in ``folder`` with the parameters ``key``.

    It lies below ``$XAIBENCH_CACHE`` (or ``~/.cache/xaibench``), not in the data, which may be read-only and shared.

    Raises:
        OSError: If it cannot be made.
    """
    digest = hashlib.sha256(repr((os.fspath(folder.resolve()), key)).encode()).hexdigest()[:16]
    place = default_cache_dir() / "sets" / f"{name}-{digest}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def stamp(files: Iterable[Path]) -> str:
    """A digest of the names, sizes and times of files: changes when one of them does.

    Raises:
        MissingDataError: If one of them is not there.
    """
    digest = hashlib.sha256()
    for file in files:
        with naming(file):
            status = file.stat()
        digest.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
