"""Fetching files over HTTP: checked, resumed, and never half under their name."""

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
from xaibench.core.atomic_files import disk_of
from xaibench.data.disk.archives import unpack
from xaibench.data.disk.file_readers import DataFileError

try:
    import fcntl
except ImportError:  # Windows: two processes at once are not kept apart there
    fcntl = None  # type: ignore[assignment]

_LOGGER = logging.getLogger("xaibench")

#: ``progress(done, total)`` in bytes.
Progress = Callable[[int, int], None]

_CHUNK = 1 << 18
#: Failures in a row, with hardly a byte gained, after which it is given up; tries in all; and what counts as a gain.
_ATTEMPTS, _TRIES, _GAIN = 3, 1000, 1 << 16
#: Seconds: until a silent connection counts as broken, and of waiting after the first failure.
_TIMEOUT, _PAUSE = 60.0, 1.0
_NO_SUCH_RANGE = 416
_BROKEN = (URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class DownloadError(ConnectionError):
    """A file that could not be fetched; names its address, and says how far it came."""


def fetch_archive(
    url: str,
    root: str | os.PathLike[str],
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Fetch a zip or tar file into ``root`` and unpack it there; the file is kept.

    Args:
        url: Its address; the last part of its path names the file.
        root: The folder, made if need be.
        md5: Checksum, in hexadecimal.
        sha256: Another checksum.
        progress: Called while it is fetched.

    Raises:
        ValueError: For another kind of address.
        DownloadError: If it cannot be fetched.
        DataFileError: If a checksum is wrong, or the archive is damaged or unsafe.
        OSError: If the disk is full or the folder cannot be written.
    """
    folder = Path(root)
    name = unquote(PurePosixPath(urlsplit(url).path).name)
    if name in ("", ".", "..") or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"url={url!r}: expected an address that ends in the name of a file, got {name!r}.")
    archive = folder / name
    if md5 is None and sha256 is None:
        _LOGGER.warning("%s has no checksum to hold it against; what it holds is taken as it comes.", url)
    fetch(url, archive, md5=md5, sha256=sha256, progress=progress)
    _LOGGER.info("Unpacking %s; it may be deleted afterwards.", archive)
    unpack(archive, folder)


def fetch(
    url: str,
    target: str | os.PathLike[str],
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Fetch a file, unless it is there already.

    It grows under a temporary name beside its own, and is renamed when it is whole and its checksum right. A broken
    connection is taken up again where it broke, by this call and by the next one, if there is a checksum to tell that
    both parts are of one file; without one it starts anew. A second process that wants the same file waits for the
    first.

    Args:
        url: ``http`` or ``https``.
        target: The file. One that exists is kept if its checksum is right (or none is given), else replaced.
        md5: Checksum, in hexadecimal.
        sha256: Another checksum.
        progress: Called with the bytes that are here, and all of them (as far as the server tells).

    Raises:
        ValueError: For another kind of address.
        DownloadError: If the server refuses, cannot be reached, or breaks off time and again.
        DataFileError: If a checksum is wrong; nothing of the file is left then.
        OSError: If the disk is full or the folder cannot be written.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"url={url!r}: expected an address that begins with http:// or https://.")
    place = Path(target)
    checksums = {name: value.lower() for name, value in (("md5", md5), ("sha256", sha256)) if value is not None}
    partial = place.with_name(f".{place.name}.partial")
    with disk_of(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place.with_name(f".{place.name}.lock")):
            if place.exists() and not _wrong(place, checksums):
                return
            try:
                with open(partial, "ab") as stream:
                    _fill(stream, url, resumable=bool(checksums), progress=progress)
                    stream.flush()
                    os.fsync(stream.fileno())
            except BaseException:
                if not checksums or partial.stat().st_size == 0:
                    partial.unlink()
                raise
            wrong = _wrong(partial, checksums)
            if wrong:
                partial.unlink()
                raise DataFileError(
                    f"{url} {wrong}; nothing was kept. Try again; if it stays so, its publishers changed the file."
                )
            os.replace(partial, place)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Whoever comes second waits until the first has left the block. The lock of a process that dies goes with it."""
    if fcntl is None:
        yield
        return
    while True:
        with open(lock, "ab") as stream:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX)
            if not _is_open(stream, lock):
                continue  # the first removed it on leaving; a third may have made another since
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


def _wrong(file: Path, checksums: dict[str, str]) -> str:
    """What is wrong with a file's checksums; empty if they are right."""
    for name, expected in checksums.items():
        with open(file, "rb") as stream:
            found = hashlib.file_digest(stream, name).hexdigest()
        if found != expected:
            return f"has the {name} {found}, expected {expected}"
    return ""


def _fill(stream: BinaryIO, url: str, *, resumable: bool, progress: Progress | None) -> None:
    """Append to the stream until all of the file is there."""
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
            if error.code != _NO_SUCH_RANGE:
                raise DownloadError(f"{url} cannot be fetched: the server says {error.code} {error.reason}.") from error
            stream.truncate(0)  # what is here is longer than the file there, so it is of another one
            reason = "the server has less of the file than is here"
        except DownloadError:
            raise
        except _BROKEN as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
        done = stream.seek(0, os.SEEK_END)
        failures = 0 if resumable and done - before >= _GAIN else failures + 1
        if failures == _ATTEMPTS or tries == _TRIES:
            kept = f"; the {done:,} bytes that are here are kept, and the next try goes on from them"
            raise DownloadError(f"{url} cannot be fetched: {reason}{kept if resumable and done else ''}.")
        time.sleep(_PAUSE * failures)


def _receive(stream: BinaryIO, url: str, done: int, progress: Progress | None) -> bool:
    """Append what the server sends from byte ``done`` on; whether that is all (as far as it tells)."""
    headers = {"User-Agent": f"xaibench/{__version__}"}
    if done:
        headers["Range"] = f"bytes={done}-"
    with urlopen(Request(url, headers=headers), timeout=_TIMEOUT) as response:
        if done and not (response.headers["Content-Range"] or "").startswith(f"bytes {done}-"):
            stream.truncate(0)  # it knows no ranges, and sends the file from its beginning
            done = 0
        length = response.headers["Content-Length"]
        if length is not None and not length.strip().isdecimal():
            raise DownloadError(f"{url} cannot be fetched: the server says that {length!r} bytes come, no number.")
        total = 0 if length is None else done + int(length)
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, max(total, done))
    return done >= total
