"""Where what was slow to build is kept, and when it counts as the same."""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from xaibench.data.disk.file_readers import naming

_LOGGER = logging.getLogger("xaibench")


def default_cache_dir() -> Path:
    """``$XAIBENCH_CACHE``, or ``~/.cache/xaibench`` where it is not set."""
    named = os.environ.get("XAIBENCH_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "xaibench"


def cache_folder(name: str, folder: Path, *key: object) -> Path:
    """The folder, made if need be, for what is built from the set ``name`` in ``folder`` with the parameters ``key``.

    It lies below ``$XAIBENCH_CACHE`` (or ``~/.cache/xaibench``), not in the data, which may be read-only and shared.
    Where that cannot be written, a warning says so, and a folder takes its place that is removed when this process
    ends: everything works, and is built anew the next time.

    Raises:
        OSError: If there is no room for that either.
    """
    digest = hashlib.sha256(repr((os.fspath(folder.resolve()), key)).encode()).hexdigest()[:16]
    cache = default_cache_dir()
    place = cache / "sets" / f"{name}-{digest}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        spare = Path(_spare_folder(cache, error.strerror).name, place.name)
        spare.mkdir(exist_ok=True)
        # What others have built there is used all the same.
        for file in place.glob("*") if place.is_dir() else ():
            link = spare / file.name
            if not link.is_symlink() and not link.exists():
                link.symlink_to(file)
        return spare
    return place


@functools.cache
def _spare_folder(cache: Path, error: str) -> tempfile.TemporaryDirectory[str]:
    """One for each cache that cannot be written, and so one warning; removed when the process ends."""
    spare = tempfile.TemporaryDirectory(prefix="xaibench-cache-", ignore_cleanup_errors=True)
    _LOGGER.warning(
        "The cache %s cannot be written (%s): what is built is kept in %s, and lost when this process ends. Set "
        "XAIBENCH_CACHE to a folder that can be written.",
        cache,
        error,
        spare.name,
    )
    return spare


def stamp(files: Iterable[Path]) -> str:
    """A digest of the names, sizes and times of files: changes when one of them does.

    Raises:
        MissingDataError: If one of them is not there.
    """
    digest = hashlib.sha256()
    for file in files:
        with naming(file):
            status = file.stat()
        digest.update(_state(file.name, status))
    return digest.hexdigest()[:16]


def stamp_below(folder: Path, suffix: str | tuple[str, ...]) -> str:
    """As :func:`stamp`, of all files below a folder whose names end so (in lower case); hidden ones are passed over.

    A file that is overwritten where it lies changes no folder, so every file is asked: 1.5 s for the 244,000 slices of
    LIDC-IDRI.
    """
    start = len(os.fspath(folder))
    files = [
        _state(entry.path[start:], status)
        for entry, status in _files_below(folder)
        if entry.name.lower().endswith(suffix) and entry.name[0] != "."
    ]
    return hashlib.sha256(b"".join(sorted(files))).hexdigest()[:16]


def _files_below(folder: str | os.PathLike[str]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:  # what cannot be read is said by who needs it
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_below(entry.path)
                else:
                    yield entry, entry.stat()


def _state(name: str, status: os.stat_result) -> bytes:
    return f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape")
