"""HTTP downloads with checksums and resume. A file appears under its name only when it is complete."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from xaibench._version import __version__
from xaibench.core.files import name_folder_if_disk_full
from xaibench.data.disk.archives import unpack
from xaibench.data.disk.file_readers import DataFileError

try:
    import fcntl
except ImportError:  # Windows: concurrent processes are not locked there
    fcntl = None  # type: ignore[assignment]

_LOGGER = logging.getLogger("xaibench")

_CHUNK = 1 << 18
#: Stop after so many failures in a row without progress, or so many requests. Progress is at least ``_MIN_PROGRESS``
#: bytes per request.
_MAX_FAILURES, _MAX_REQUESTS, _MIN_PROGRESS = 3, 1000, 1 << 16
#: Timeout of the connection, and pause after the first failure, in seconds.
_TIMEOUT, _PAUSE = 60.0, 1.0
_RANGE_NOT_SATISFIABLE = 416
_CONNECTION_ERRORS = (URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class DownloadError(ConnectionError):
    """A download failed; the message names the address and the bytes received."""


def fetch_archive(
    url: str,
    root: str | os.PathLike[str],
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Download a zip or tar archive into ``root`` and unpack it there. The archive is kept.

    Args:
        url: ``http`` or ``https`` address; the last part of its path is the file name.
        root: The folder, created if needed.
        md5: Checksum, in hexadecimal.
        sha256: Another checksum.
        progress: Called with the bytes downloaded so far and their total.

    Raises:
        ValueError: If the address is not ``http`` or ``https``, or does not end in a file name.
        DownloadError: If the download fails.
        DataFileError: If a checksum is wrong, or the archive is damaged or unsafe.
        OSError: If the disk is full or the folder is not writable.
    """
    folder = Path(root)
    name = unquote(PurePosixPath(urlsplit(url).path).name)
    if name in ("", ".", "..") or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"url={url!r}: expected an address that ends in a file name, got {name!r}.")
    archive = folder / name
    if md5 is None and sha256 is None:
        _LOGGER.warning("%s is not verified, because no checksum is known.", url)
    fetch(url, archive, md5=md5, sha256=sha256, progress=progress)
    _LOGGER.info("Unpacking %s; the archive may be deleted afterwards.", archive)
    unpack(archive, folder)


def fetch(
    url: str,
    target: str | os.PathLike[str],
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Download a file unless it is on disk already.

    The file is written under a temporary name next to ``target``, and renamed when it is complete and its checksum is
    right. An interrupted download is resumed, in this call or in the next one, if there is a checksum to verify that
    both parts belong together; otherwise it starts again. If two processes download the same file, the second waits.

    Args:
        url: ``http`` or ``https`` address.
        target: The file. An existing file is kept if its checksum is right (or none is given), and replaced otherwise.
        md5: Checksum, in hexadecimal.
        sha256: Another checksum.
        progress: Called with the bytes downloaded so far and their total, as far as the server states it.

    Raises:
        ValueError: If the address is not ``http`` or ``https``.
        DownloadError: If the server returns an error, cannot be reached, or closes the connection repeatedly.
        DataFileError: If a checksum is wrong; the file is removed then.
        OSError: If the disk is full or the folder is not writable.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"url={url!r}: expected an address that begins with http:// or https://.")
    place = Path(target)
    checksums = {name: value.lower() for name, value in (("md5", md5), ("sha256", sha256)) if value is not None}
    partial = place.with_name(f".{place.name}.partial")
    with name_folder_if_disk_full(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(place.with_name(f".{place.name}.lock")):
            if place.exists() and not _checksum_error(place, checksums):
                return
            try:
                with open(partial, "ab") as stream:
                    _download_into(stream, url, resumable=bool(checksums), progress=progress)
                    stream.flush()
                    os.fsync(stream.fileno())
            except BaseException:
                if not checksums or partial.stat().st_size == 0:
                    partial.unlink()
                raise
            wrong = _checksum_error(partial, checksums)
            if wrong:
                partial.unlink()
                raise DataFileError(
                    f"{url} {wrong}; the file was removed. Try again; if that fails, its publishers changed the file."
                )
            os.replace(partial, place)


@contextmanager
def _exclusive_lock(lock: Path) -> Iterator[None]:
    """Hold a lock file inside the block; other processes wait. The lock is released if the process dies."""
    if fcntl is None:
        yield
        return
    while True:
        with open(lock, "ab") as stream:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX)
            if not _is_open(stream, lock):
                continue  # the previous holder removed the file; a third process may have created a new one
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def _is_open(stream: BinaryIO, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(file))
    except FileNotFoundError:
        return False


def _checksum_error(file: Path, checksums: dict[str, str]) -> str:
    """Describe the first wrong checksum; empty if all are right."""
    for name, expected in checksums.items():
        with open(file, "rb") as stream:
            found = hashlib.file_digest(stream, name).hexdigest()
        if found != expected:
            return f"has the {name} {found}, expected {expected}"
    return ""


def _download_into(stream: BinaryIO, url: str, *, resumable: bool, progress: Callable[[int, int], None] | None) -> None:
    """Append to the stream until the file is complete."""
    failures = tries = 0
    while True:
        tries += 1
        if not resumable:
            stream.truncate(0)
        before = stream.seek(0, os.SEEK_END)
        try:
            if _receive(stream, url, before, progress):
                return
            reason = "the connection was closed before the end"
        except HTTPError as error:
            if error.code != _RANGE_NOT_SATISFIABLE:
                raise DownloadError(
                    f"{url} cannot be downloaded: the server returned {error.code} {error.reason}."
                ) from error
            stream.truncate(0)  # the partial file is longer than the file on the server, so it is another file
            reason = "the file on the server is shorter than the partial download"
        except DownloadError:
            raise
        except _CONNECTION_ERRORS as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
        done = stream.seek(0, os.SEEK_END)
        failures = 0 if resumable and done - before >= _MIN_PROGRESS else failures + 1
        if failures == _MAX_FAILURES or tries == _MAX_REQUESTS:
            kept = f"; {done:,} bytes were received, and the next call resumes from there"
            raise DownloadError(f"{url} cannot be downloaded: {reason}{kept if resumable and done else ''}.")
        time.sleep(_PAUSE * failures)


def _receive(stream: BinaryIO, url: str, done: int, progress: Callable[[int, int], None] | None) -> bool:
    """Append the response from byte ``done`` on. Return whether it was complete, if the server states a length."""
    headers = {"User-Agent": f"xaibench/{__version__}"}
    if done:
        headers["Range"] = f"bytes={done}-"
    with urlopen(Request(url, headers=headers), timeout=_TIMEOUT) as response:
        if done and not (response.headers["Content-Range"] or "").startswith(f"bytes {done}-"):
            stream.truncate(0)  # the server does not support ranges and sends the whole file
            done = 0
        length = response.headers["Content-Length"]
        if length is not None and not length.strip().isdecimal():
            raise DownloadError(f"{url} cannot be downloaded: the server states {length!r} as its length.")
        total = 0 if length is None else done + int(length)
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, max(total, done))
    return done >= total
