"""Download and unpacking of the archives of data sets."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from xaibench._version import __version__
from xaibench.core.files import name_folder_if_disk_full
from xaibench.core.progress import ProgressBar, announce, format_bytes
from xaibench.data.disk.file_readers import DataFileError

#: Seconds without a byte after which a connection counts as cut.
_TIMEOUT = 60.0
#: Connections in a row that may bring nothing, and the seconds before the second one, which double from then on.
_ATTEMPTS, _PAUSE = 4, 1.0
_CHUNK = 1 << 20
_OTHER_FOLDER = "Choose another folder: root=... (--root), or the environment variable XAIBENCH_DATA."


@dataclass(frozen=True)
class Archive:
    """A tar archive of a data set on a server.

    Attributes:
        url: Its address; the last part of the path is the file name.
        md5: Its checksum, in hexadecimal.
        size: Its size in bytes.
    """

    url: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """The file name."""
        return PurePosixPath(urlsplit(self.url).path).name


def fetch_archives(archives: Sequence[Archive], root: str | os.PathLike[str]) -> None:
    """Download archives, unless they are there, and unpack them in this order next to them. The archives are kept.

    A download whose connection is cut is continued, up to four times if nothing more arrives, and then by the next
    call. An archive is unpacked into a temporary folder first, so that an interrupted call leaves no partial data set.

    Args:
        archives: The archives. A file with another checksum is downloaded again.
        root: The folder, created if needed.

    Raises:
        ConnectionError: If a server cannot be reached or breaks off; what has arrived is kept.
        DataFileError: If a server sends another file, or a member of an archive would be outside of the folder or is a
            device.
        OSError: If there is too little space for the archives and their content, or the folder is not writable.
    """
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [archive for archive in archives if not _has_checksum(folder / archive.name, archive.md5)]
    arrived = sum(file.stat().st_size for one in missing if (file := _partial(one, folder)).exists())
    needed = sum(one.size for one in missing) - arrived + sum(one.size for one in archives)  # and what is unpacked
    if (free := shutil.disk_usage(folder).free) < needed:
        raise OSError(
            errno.ENOSPC,
            f"{folder} has {format_bytes(free)} of free space, and the data set and its archives need "
            f"{format_bytes(needed)}. {_OTHER_FOLDER}",
        )
    with name_folder_if_disk_full(folder):
        for archive in missing:
            _download(archive, folder)
        for archive in archives:
            _unpack(folder / archive.name)


@contextmanager
def one_process(folder: Path, name: str) -> Iterator[None]:
    """Run the block while no other process runs it for the data set ``name`` in ``folder``; wait for that.

    Raises:
        OSError: If the folder cannot be created or written.
    """
    from filelock import FileLock, Timeout  # comes with torch

    lock = FileLock(folder / f".{name}.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        announce(f"Another process is downloading {name} into {folder}; waiting for it.", always=True)
        lock.acquire()
    except NotImplementedError:  # a network file system without locks: all download
        pass
    except OSError as error:
        message = f"{name} cannot be downloaded into {folder} ({error.strerror}). {_OTHER_FOLDER}"
        raise OSError(error.errno, message) from None
    try:
        yield
    finally:
        lock.release()


def _partial(archive: Archive, folder: Path) -> Path:
    return folder / f"{archive.name}.partial"


def _has_checksum(file: Path, md5: str) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5


def _download(archive: Archive, folder: Path) -> None:
    partial, size, failures = _partial(archive, folder), archive.size, 0
    announce(f"Downloading {archive.name} ({format_bytes(size)}) into {folder}", always=True)
    partial.touch()
    options = {"unit_scale": True, "unit_divisor": 1000}
    with partial.open("r+b") as stream, ProgressBar(archive.name, size, "B", keep=True, options=options) as bar:
        stream.seek(0, os.SEEK_END)
        while (start := stream.tell()) < size:
            ended = _receive(archive, stream, _report(archive, bar))
            failures = 0 if stream.tell() > start else failures + 1
            if failures == _ATTEMPTS:
                raise ConnectionError(
                    f"{archive.url} cannot be downloaded: {ended}. {format_bytes(stream.tell())} of "
                    f"{format_bytes(size)} are in {partial}; the same call continues."
                )
            if stream.tell() < size:
                time.sleep(_PAUSE * 2**failures)
    if not _has_checksum(partial, archive.md5):
        partial.unlink()
        raise DataFileError(
            f"What {archive.url} sent has another checksum than {archive.md5}: it was damaged on its way, or replaced. "
            "It was deleted. Try again, or download it by hand."
        )
    os.replace(partial, folder / archive.name)


def _report(archive: Archive, bar: ProgressBar) -> Callable[[int], None]:
    """Return a function that shows how many bytes are there; where no bar is visible, by a line per tenth."""
    tenths = 10 * bar.done // archive.size

    def report(done: int) -> None:
        nonlocal tenths
        bar.advance(done - bar.done)
        if 10 * done // archive.size > tenths:
            tenths = 10 * done // archive.size
            announce(f"{archive.name}: {format_bytes(done)} of {format_bytes(archive.size)}")

    return report


def _receive(archive: Archive, stream: BinaryIO, report: Callable[[int], None]) -> str:
    """Append to the stream what the server sends, until it is complete or the connection ends; return what ended it."""
    start = stream.tell()
    headers = {"User-Agent": f"xaibench/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(archive.url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        ended = f"the server answers {error.code} {error.reason}"
        if error.code < 500 and error.code not in (408, 429):  # it will answer the same again
            raise ConnectionError(f"{archive.url} cannot be downloaded: {ended}. Download it by hand.") from error
        return ended
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", error))
    with answer:
        continued = answer.status == http.client.PARTIAL_CONTENT
        unit, _, total = answer.headers.get("Content-Range", "").partition("/")
        size = total if continued else answer.headers.get("Content-Length", "")
        kind = answer.headers.get_content_type()
        if (size.isdecimal() and int(size) != archive.size) or kind == "text/html":
            raise DataFileError(
                f"{archive.url} was answered with {size or 'an unknown number of'} bytes of type {kind} instead of "
                f"{archive.size}: the file was replaced, or a login page or a proxy answered. Open the address in a "
                "browser, or download the file by hand."
            )
        if continued and not unit.startswith(f"bytes {start}-"):
            return f"the server continues with {unit} instead of byte {start}"
        if not continued:
            stream.seek(0)
            stream.truncate()
        while stream.tell() < archive.size:
            report(stream.tell())
            try:
                chunk = answer.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                return str(error)
            if not chunk:
                return "the connection was cut"
            stream.write(chunk[: archive.size - stream.tell()])
        report(stream.tell())
    return ""


def _unpack(archive: Path) -> None:
    announce(f"Unpacking {archive}")
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=archive.parent) as temporary:
        try:
            with tarfile.open(archive) as opened:
                opened.extractall(temporary, filter="data")
            for entry in Path(temporary).iterdir():
                shutil.copytree(entry, archive.parent / entry.name, copy_function=os.replace, dirs_exist_ok=True)
        except (tarfile.TarError, KeyError, FileExistsError, NotADirectoryError) as error:  # or a name is there twice
            raise DataFileError(f"{archive} cannot be unpacked safely ({error}).") from error
