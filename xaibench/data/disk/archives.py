"""Safe unpacking of archives: no file outside the target folder, no links, and all files or none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from xaibench.core.files import name_folder_if_disk_full
from xaibench.data.disk.file_readers import BoundedFile, DataFileError, wrap_file_errors

_CHUNK = 1 << 20

#: Maximum unpacked size: a multiple of the size of the archive, or a number of bytes if that is more. Deflate can reach
#: a ratio of 1,000, which decompression bombs use.
_MAX_RATIO, _MIN_LIMIT = 100, 1 << 30
#: Memory limit of the xz decoder; its largest preset needs 65 MB.
_XZ_MEMORY = 1 << 28
#: Maximum folder depth and number of characters of a member name.
_MAX_DEPTH, _MAX_LENGTH = 64, 1024


def unpack(archive: str | os.PathLike[str], into: str | os.PathLike[str]) -> None:
    """Unpack a zip or tar archive (plain or compressed) into a folder.

    Members are unpacked into a temporary folder inside ``into`` and moved from there at the end. An interrupted call
    leaves no partial result, and two calls may run at the same time. Existing folders are merged; existing files are
    replaced atomically.

    Args:
        archive: The file; its format is detected from its content.
        into: The folder, created if needed.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is not an archive or is damaged (all checksums are verified); if it has a member with
            an absolute path, a path with ``..``, an empty or very long name, a link, a device or a sparse file; or if
            it unpacks to more than 100 times its size (from 1 GiB on). Nothing is unpacked then.
        OSError: If the disk is full or the folder is not writable.
    """
    source, target = Path(archive), Path(into)
    with name_folder_if_disk_full(target):
        target.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target))
        try:
            limit = _SizeLimit(source)
            for name, chunks in _read_members(source):
                place = temporary.joinpath(*_split_name(name, source, is_folder=chunks is None))
                _write_member(place, None if chunks is None else limit.count(chunks))
            _merge_folders(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class _SizeLimit:
    """Counts the unpacked bytes and raises an error if they exceed the limit."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._left = max(_MIN_LIMIT, _MAX_RATIO * source.stat().st_size) if source.exists() else 0

    def count(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise DataFileError(
                    f"{self._source} unpacks to more than {_MAX_RATIO} times its size, which is unsafe; get the file "
                    "again."
                )
            yield chunk


def _write_member(place: Path, chunks: Iterator[bytes] | None) -> None:
    """Write a file from its chunks; create a folder if ``chunks`` is None."""
    if chunks is None:
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place, "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)


def _merge_folders(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if not entry.is_dir():
            os.replace(entry, place)
            continue
        try:
            os.rename(entry, place)  # the whole folder in one step, if the target does not exist
        except OSError:
            if not place.is_dir():
                raise
            _merge_folders(entry, place)


def _read_members(source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    """Yield the name and content of each file, and the name and None of each folder."""
    with _wrap_archive_errors(source), BoundedFile(source) as stream:
        is_zip = zipfile.is_zipfile(stream)
        stream.seek(0)
        yield from _read_zip(stream, source) if is_zip else _read_tar(stream, source)


def _read_zip(stream: IO[bytes], source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataFileError(
                    f"{source} contains a link or a device, {member.filename!r}, which is unsafe; get the file again."
                )
            if member.is_dir():
                yield member.filename, None
            else:
                with archive.open(member) as content:
                    yield member.filename, _read_chunks(content, source)


def _read_tar(stream: IO[bytes], source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    readable = _BoundedReader(_decompress(stream))
    with tarfile.open(fileobj=readable, mode="r:") as archive:
        for member in archive:
            sound = member.isreg() and not member.issparse()
            content = archive.extractfile(member) if sound else None
            if content is not None:
                yield member.name, _read_chunks(content, source)
            elif member.isdir():
                yield member.name, None
            else:
                raise DataFileError(
                    f"{source} contains a link, a device or a sparse file, {member.name!r}, which is unsafe; get the "
                    "file again."
                )
        # The checksum of a compressed file comes after everything that tarfile reads, so read to the end.
        for _ in _read_chunks(readable, source):
            pass


def _decompress(stream: IO[bytes]) -> IO[bytes]:
    """Return the decompressed stream. tarfile would also try legacy LZMA, whose header may request 4 GB of memory."""
    start = stream.read(_CHUNK)
    stream.seek(0)
    if start.startswith(b"\xfd7zXZ\0"):
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY).decompress(start, max_length=1)
        return cast("IO[bytes]", lzma.LZMAFile(stream))
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return cast("IO[bytes]", bz2.BZ2File(stream)) if start.startswith(b"BZh") else stream


class _BoundedReader(io.BufferedIOBase):
    """A stream with bounded reads, since tarfile reads a long name at once, at the size that its header states."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int | None = _CHUNK, /) -> bytes:
        requested = -1 if size is None else size
        if not 0 <= requested <= _CHUNK:
            raise tarfile.TarError(f"A name has a stated length of {requested:,} bytes.")
        return self._stream.read(requested)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _read_chunks(content: IO[bytes] | io.BufferedIOBase, source: Path) -> Iterator[bytes]:
    with _wrap_archive_errors(source):
        while chunk := content.read(_CHUNK):
            yield chunk


def _split_name(name: str, source: Path, *, is_folder: bool) -> list[str]:
    """Return the components of a member name, checked for safety."""
    parts = re.split(r"[/\\]", name)
    kept = [part for part in parts if part not in ("", ".")]
    if not parts[0] or ".." in parts or ":" in parts[0] or "\0" in name or not (kept or is_folder):
        raise DataFileError(
            f"{source} contains {name!r}, which may be outside the folder and is unsafe; get the file again."
        )
    if len(kept) > _MAX_DEPTH or len(name) > _MAX_LENGTH:
        raise DataFileError(
            f"{source} contains a name of {len(name)} characters in {len(kept)} folders, {name[:40]!r}..., which is "
            "unsafe; get the file again."
        )
    return kept


@contextmanager
def _wrap_archive_errors(source: Path) -> Iterator[None]:
    try:
        with wrap_file_errors(source):
            yield
    except (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(": .")
        raise DataFileError(f"{source} is not a complete zip or tar archive ({reason}); get the file again.") from error
