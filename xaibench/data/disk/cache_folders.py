"""Folders of the cache, and digests of files by which cached results are found again."""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.core.files import atomic_file, default_cache_dir
from xaibench.data.disk.file_readers import DAMAGED_FILE_ERRORS, DataFileError, MissingDataError, wrap_file_errors
from xaibench.tensors.workers import worker_context

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
    directory = cache / "sets" / f"{name}-{digest}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        spare = Path(_spare_folder(cache, error.strerror).name, directory.name)
        spare.mkdir(exist_ok=True)
        # Results that are already in the cache are still used.
        for file in directory.glob("*") if directory.is_dir() else ():
            link = spare / file.name
            if not link.is_symlink() and not link.exists():
                link.symlink_to(file)
        return spare
    return directory


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


_T = TypeVar("_T")


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


#: The cached arrays of one part.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class IndexEntry:
    """A part of a data set, such as a patient, that is indexed on its own.

    Attributes:
        name: Name for messages.
        file: The cache file; its name contains a digest of the files that the part is built from.
        arguments: Arguments of the build function.
    """

    name: str
    file: Path
    arguments: tuple[Any, ...]


def build_entries(
    entries: Sequence[IndexEntry],
    build: Callable[..., Arrays],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[IndexEntry]:
    """Build the parts whose cache file is missing. A part that cannot be built is left out with a warning.

    Files are written atomically. Two processes that build at the same time do the same work twice, which is harmless.

    Args:
        entries: All parts of the index.
        build: ``build(*entry.arguments)``, a module-level function that returns the arrays to cache.
        workers: Number of processes.
        progress: ``progress(done, total)``; parts that were cached already count as done.

    Returns:
        The parts that are cached, in order.

    Raises:
        DataFileError: If no part could be built; the message has the first error.
        OSError: If the cache is not writable or its disk is full.
        ValueError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise ValueError(f"workers={workers!r}: expected 1 or more.")
    missing = [entry for entry in entries if not entry.file.exists()]
    report = progress or (lambda done, total: None)
    n_cached = len(entries) - len(missing)
    report(n_cached, len(entries))
    failed: dict[Path, str] = {}
    if workers == 1 or len(missing) < 2:
        for done, entry in enumerate(missing, n_cached + 1):
            if (error := _build_entry(entry, build)) is not None:
                failed[entry.file] = error
            report(done, len(entries))
    else:
        with ProcessPoolExecutor(min(workers, len(missing)), mp_context=worker_context(build.__module__)) as pool:
            futures = {pool.submit(_build_entry, entry, build): entry for entry in missing}
            try:
                for done, future in enumerate(as_completed(futures), n_cached + 1):
                    if (error := future.result()) is not None:
                        failed[futures[future].file] = error
                    report(done, len(entries))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return _drop_failed(entries, failed)


def load_entry(entry: IndexEntry, build: Callable[..., Arrays], *names: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part as :func:`load_arrays` does, and build a damaged part again.

    Raises:
        DataFileError: If the part cannot be built.
        OSError: If the cache is not writable.
    """
    try:
        return load_arrays(entry.file, *names)
    except DataFileError as error:
        _LOGGER.warning("%s", error)
        build_entries([entry], build)
        return load_arrays(entry.file, *names)


def load_arrays(file: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read the named arrays (all, if no name is given) from the cache file of a part.

    Raises:
        DataFileError: If the file is damaged or missing. It is removed, so that it is built again next time.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in names or archive.files}
    except DAMAGED_FILE_ERRORS as error:
        file.unlink(missing_ok=True)
        raise DataFileError(f"The cache file {file} is damaged ({error}); it is built again.") from error


def _build_entry(entry: IndexEntry, build: Callable[..., Arrays]) -> str | None:
    """Build and cache a part. Return an error message if that fails, otherwise None."""
    try:
        arrays = build(*entry.arguments)
    except (DataFileError, MissingDataError) as error:
        return str(error)
    try:
        with atomic_file(entry.file) as stream:
            np.savez_compressed(stream, **cast("dict[str, Any]", arrays))
    except OSError as error:
        raise OSError(
            error.errno,
            f"{entry.file} cannot be written ({error}); free disk space, or set XAIBENCH_CACHE to another folder.",
        ) from error
    return None


def _drop_failed(entries: Sequence[IndexEntry], failed: Mapping[Path, str]) -> list[IndexEntry]:
    for entry in entries:
        if entry.file in failed:
            _LOGGER.warning("%s is left out: %s", entry.name, failed[entry.file])
    built = [entry for entry in entries if entry.file not in failed]
    if failed and not built:
        raise DataFileError(f"None of {len(entries)} could be read; the first error: {next(iter(failed.values()))}")
    if failed:
        _LOGGER.warning(
            "%d of %d could not be read and are left out; they are tried again next time.", len(failed), len(entries)
        )
    return built
