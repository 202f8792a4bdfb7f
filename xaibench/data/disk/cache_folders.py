"""Folders of the cache, and digests of files by which cached results are found again."""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from xaibench.core.files import default_cache_dir
from xaibench.data.disk.file_readers import wrap_file_errors

_LOGGER = logging.getLogger("xaibench")


def cache_folder(name: str, folder: Path, *key: object) -> Path:
    """Return the cache folder of the data set ``name`` in ``folder`` with the parameters ``key``, created if needed.

    It is below ``$XAIBENCH_CACHE`` (or ``~/.cache/xaibench``) and not next to the data, which may be read-only and
    shared. If the cache is not writable, a warning is logged and a temporary folder is used, which is removed when the
    process ends.

    Raises:
        OSError: If the temporary folder cannot be created either.
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
        # Results that are already in the cache are still used.
        for file in place.glob("*") if place.is_dir() else ():
            link = spare / file.name
            if not link.is_symlink() and not link.exists():
                link.symlink_to(file)
        return spare
    return place


@functools.cache
def _spare_folder(cache: Path, error: str) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder, removed when the process ends. Cached, so that there is one warning per cache."""
    spare = tempfile.TemporaryDirectory(prefix="xaibench-cache-", ignore_cleanup_errors=True)
    _LOGGER.warning(
        "The cache %s is not writable (%s). Results are cached in %s until this process ends. Set XAIBENCH_CACHE to a "
        "writable folder.",
        cache,
        error,
        spare.name,
    )
    return spare


def digest_files(files: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and modification times of files.

    Raises:
        MissingDataError: If a file is missing.
    """
    digest = hashlib.sha256()
    for file in files:
        with wrap_file_errors(file):
            status = file.stat()
        digest.update(_state(file.name, status))
    return digest.hexdigest()[:16]


def hash_contents(files: Sequence[Path]) -> list[str]:
    """Return a string per file that is equal for files with the same bytes. Files of a unique size are not read.

    Raises:
        MissingDataError: If a file is missing.
        DataFileError: If a file cannot be read.
    """
    sizes = []
    for file in files:
        with wrap_file_errors(file):
            sizes.append(file.stat().st_size)
    counts = Counter(sizes)
    return [
        str(size) if counts[size] == 1 else f"{size} {_hash_file(file)}"
        for file, size in zip(files, sizes, strict=True)
    ]


def _hash_file(file: Path) -> str:
    with wrap_file_errors(file), open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_folder(folder: Path, suffix: str | tuple[str, ...]) -> str:
    """Return the digest of all files below a folder with this suffix (lower case), without hidden files.

    Overwriting a file does not change the times of its folder, so the status of every file is read: 1.5 s for the
    244,000 slices of LIDC-IDRI.
    """
    start = len(os.fspath(folder))
    files = [
        _state(entry.path[start:], status)
        for entry, status in _files_below(folder)
        if entry.name.lower().endswith(suffix) and entry.name[0] != "."
    ]
    return hashlib.sha256(b"".join(sorted(files))).hexdigest()[:16]


def _files_below(folder: str | os.PathLike[str]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:  # whoever reads the file will report the error
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_below(entry.path)
                else:
                    yield entry, entry.stat()


def _state(name: str, status: os.stat_result) -> bytes:
    return f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape")
