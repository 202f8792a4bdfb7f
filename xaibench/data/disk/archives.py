"""Unpacking what others packed: nothing outside the folder, no links, and never half."""

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

from xaibench.core.atomic_files import disk_of
from xaibench.data.disk.file_readers import BoundedFile, DataFileError, naming

_CHUNK = 1 << 20

#: What an archive may hold at most: so many times its own size, or so many bytes where that is more. Deflate can make a
#: thousand of one, and a bomb does.
_TIMES, _ALWAYS = 100, 1 << 30
#: The memory that unpacking may ask for before there is anything: xz takes 65 MB with its largest setting.
_DICTIONARY = 1 << 28
#: Folders in a name, and its characters.
_DEPTH, _LENGTH = 64, 1024


def unpack(archive: str | os.PathLike[str], into: str | os.PathLike[str]) -> None:
    """Unpack a zip or tar file (plain or compressed) into a folder.

    Everything is unpacked into a temporary folder inside ``into`` and moved from there when all is well: a stopped
    unpacking leaves nothing that looks whole, and two at once do no harm. Folders that exist are merged; a file that
    exists is replaced at once by the one of the archive.

    Args:
        archive: The file; its content says what it is, whatever its suffix.
        into: The folder, made if need be.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no archive or a damaged one (its own checksums are read to the end), or holds an
            absolute name, a name with ``..``, none at all or a very long one, a link, a device or a sparse file, or
            more than 100 times its own size (from 1 GiB on). Nothing is unpacked then.
        OSError: If the disk is full or the folder cannot be written.
    """
    source, target = Path(archive), Path(into)
    with disk_of(target):
        target.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target))
        try:
            room = _Room(source)
            for name, chunks in _members(source):
                place = temporary.joinpath(*_parts(name, source, is_folder=chunks is None))
                _write(place, None if chunks is None else room.counted(chunks))
            _merge(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class _Room:
    """Counts what comes out of an archive, and refuses what no sound one holds."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._left = max(_ALWAYS, _TIMES * source.stat().st_size) if source.exists() else 0

    def counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise DataFileError(
                    f"{self._source} holds more than {_TIMES} times its own size, refused as unsafe; get the file anew."
                )
            yield chunk


def _write(place: Path, chunks: Iterator[bytes] | None) -> None:
    """A file of these chunks; a folder, if there are none to come."""
    if chunks is None:
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place, "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)


def _merge(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if not entry.is_dir():
            os.replace(entry, place)
            continue
        try:
            os.rename(entry, place)  # the whole folder in one step, unless there is one already
        except OSError:
            if not place.is_dir():
                raise
            _merge(entry, place)


def _members(source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    """Name and content of each file, name and None of each folder."""
    with _reading(source), BoundedFile(source) as stream:
        is_zip = zipfile.is_zipfile(stream)
        stream.seek(0)
        yield from _zip_members(stream, source) if is_zip else _tar_members(stream, source)


def _zip_members(stream: IO[bytes], source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataFileError(
                    f"{source} holds a link or a device, {member.filename!r}, refused as unsafe; get the file anew."
                )
            if member.is_dir():
                yield member.filename, None
            else:
                with archive.open(member) as content:
                    yield member.filename, _chunks(content, source)


def _tar_members(stream: IO[bytes], source: Path) -> Iterator[tuple[str, Iterator[bytes] | None]]:
    readable = _CautiousReader(_decompressed(stream))
    with tarfile.open(fileobj=readable, mode="r:") as archive:
        for member in archive:
            sound = member.isreg() and not member.issparse()
            content = archive.extractfile(member) if sound else None
            if content is not None:
                yield member.name, _chunks(content, source)
            elif member.isdir():
                yield member.name, None
            else:
                raise DataFileError(
                    f"{source} holds a link, a device or a sparse file, {member.name!r}, refused as unsafe; get the "
                    "file anew."
                )
        # The checksum of a compressed file stands behind all that tar reads of it.
        for _ in _chunks(readable, source):
            pass


def _decompressed(stream: IO[bytes]) -> IO[bytes]:
    """What is in it. Left to itself, tarfile tries old LZMA too, whose first bytes may ask for 4 GB."""
    start = stream.read(_CHUNK)
    stream.seek(0)
    if start.startswith(b"\xfd7zXZ\0"):
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY).decompress(start, max_length=1)
        return cast("IO[bytes]", lzma.LZMAFile(stream))
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return cast("IO[bytes]", bz2.BZ2File(stream)) if start.startswith(b"BZh") else stream


class _CautiousReader(io.BufferedIOBase):
    """What tarfile reads from: it asks for a long name as a whole, of whatever size its header claims."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int | None = _CHUNK, /) -> bytes:
        asked = -1 if size is None else size
        if not 0 <= asked <= _CHUNK:
            raise tarfile.TarError(f"A name claims to take {asked:,} bytes.")
        return self._stream.read(asked)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _chunks(content: IO[bytes] | io.BufferedIOBase, source: Path) -> Iterator[bytes]:
    with _reading(source):
        while chunk := content.read(_CHUNK):
            yield chunk


def _parts(name: str, source: Path, *, is_folder: bool) -> list[str]:
    """The folders and the file that a name consists of."""
    parts = re.split(r"[/\\]", name)
    kept = [part for part in parts if part not in ("", ".")]
    if not parts[0] or ".." in parts or ":" in parts[0] or "\0" in name or not (kept or is_folder):
        raise DataFileError(
            f"{source} holds {name!r}, which may lie outside the folder, refused as unsafe; get the file anew."
        )
    if len(kept) > _DEPTH or len(name) > _LENGTH:
        raise DataFileError(
            f"{source} holds a name of {len(name)} characters in {len(kept)} folders, {name[:40]!r}..., refused as "
            "unsafe; get the file anew."
        )
    return kept


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        with naming(source):
            yield
    except (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(": .")
        raise DataFileError(f"{source} is no whole zip or tar archive ({reason}); get the file anew.") from error
