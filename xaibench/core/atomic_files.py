"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary stream that becomes the file ``path`` when the block ends well, and leaves nothing when it does not.

    The stream writes under a temporary name beside it; the last step renames, which replaces an older file at once.

    Raises:
        OSError: If the disk is full, the folder cannot be written, or it does not exist.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
