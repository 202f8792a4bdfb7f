"""Atomic writing of files, and clear errors when a disk is full."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def default_cache_dir() -> Path:
    """Return ``$XAIBENCH_CACHE``, or if that is not set ``xaibench`` in the user's cache, such as ``~/.cache``."""
    named = os.environ.get("XAIBENCH_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "xaibench")
    return Path(named).expanduser()


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that contains the annotated data sets, which need not exist.

    Args:
        root: The folder given by the user; None = ``$XAIBENCH_DATA`` or, if that is not set, ``data`` in the cache.

    Returns:
        The folder, with ``~`` expanded.

    Raises:
        TypeError: If the folder is not a path.
    """
    if not isinstance(root, str | os.PathLike | None):
        raise TypeError(f"root: got {type(root).__name__}, expected the path of a folder.")
    given = root if root is not None else os.environ.get("XAIBENCH_DATA") or default_cache_dir() / "data"
    return Path(given).expanduser()


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise an error for a pipe or a device, which would be read forever.

    Args:
        path: A path; it need not exist.

    Raises:
        OSError: If it is neither a file nor a folder; names the path.
    """
    is_address = not isinstance(path, str | os.PathLike)  # of another file system, which has no pipes
    if not is_address and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, _NOT_A_FILE, os.fspath(path))


_NOT_A_FILE = "It is a pipe or a device, expected a file"


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a binary stream whose content becomes the file ``path`` if the block succeeds; otherwise nothing is left.

    The stream writes to a temporary file in the same folder, which is renamed at the end and replaces an older file.

    Args:
        path: The file.
        durable: Whether file and folder are flushed to disk before the block ends, so that after a power cut either the
            old or the new file exists. This takes some milliseconds per file. False is for many small files that are
            verified when they are read and can be computed again.

    Raises:
        OSError: If the disk is full, or the folder does not exist or is not writable.
    """
    with atomic_path(path, durable=durable) as temporary, open(temporary, "xb") as stream:
        yield stream


def write_file(path: str | os.PathLike[str], content: str | bytes, *, durable: bool = False) -> None:
    """Write a file as :func:`atomic_file` does, and make its folder if it does not exist."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, durable=durable) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Like :func:`atomic_file`, but yield the temporary path, for code that writes to a path. It does not exist yet.

    Raises:
        OSError: If the disk is full, or the folder does not exist or is not writable.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        with name_file_in_errors(target):
            yield temporary
            if durable:
                _flush_to_disk(temporary, os.O_RDWR)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        with suppress(OSError):  # Windows cannot open folders and some network file systems cannot sync them
            _flush_to_disk(target.parent, os.O_RDONLY)


def _flush_to_disk(path: Path, how: int) -> None:
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Errors of writing. The system does not name the file in these.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def name_file_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add ``path`` as the file name to errors of writing (disk full, disk failure) that are raised inside the block.

    Raises:
        OSError: If writing fails.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _WRITE_ERRORS:
            error.filename = os.fspath(path)
        raise


@contextmanager
def name_folder_if_disk_full(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a disk-full error inside the block into one whose message names the folder.

    Raises:
        OSError: If the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = f"The disk of {os.fspath(folder)} is full; make room on it and try again."
        raise OSError(error.errno, message) from error
