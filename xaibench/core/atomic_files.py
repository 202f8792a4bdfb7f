"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary stream that becomes the file ``path`` when the block ends well, and leaves nothing when it does not.

    The stream writes under a temporary name beside it; the last step renames, which replaces an older file at once.

    Args:
        path: The file.
        durable: File and folder are on the disk when the block has ended, so that a power cut leaves the old file or
            the new one. That takes some milliseconds a file; False leaves it to the system, for many small files that
            are checked when they are read and can be made again.

    Raises:
        OSError: If the disk is full, the folder cannot be written, or it does not exist.
    """
    with whole_path(path, durable=durable) as temporary, open(temporary, "xb") as stream:
        yield stream


@contextmanager
def whole_path(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """As :func:`whole_file`, for what writes to a path: the temporary one, which does not exist yet.

    Raises:
        OSError: If the disk is full, the folder cannot be written, or it does not exist.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        with written_to(target):
            yield temporary
            if durable:
                _to_disk(temporary, os.O_RDWR)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        with suppress(OSError):  # Windows opens no folder, and some network disks sync none: then the rename must do
            _to_disk(target.parent, os.O_RDONLY)


def _to_disk(path: Path, how: int) -> None:
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Errors of writing. The system names the file only where it cannot be opened.
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def written_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """A disk that fills up, or fails, inside the block is said to have done so as ``path`` was written.

    Raises:
        OSError: If there is one.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_WRITING:
            error.filename = os.fspath(path)
        raise


@contextmanager
def disk_of(folder: str | os.PathLike[str]) -> Iterator[None]:
    """A disk that fills up inside the block is said to be that of the folder.

    Raises:
        OSError: If it does.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = f"The disk of {os.fspath(folder)} is full; make room on it and try again."
        raise OSError(error.errno, message) from error
