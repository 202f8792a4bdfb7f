"""Where the store's files lie: in a folder of this machine, or wherever fsspec reaches (``s3://bucket/run``).

Both write a file as a whole or not at all: the folder by writing under a temporary name and renaming, the object store
by its nature (an upload is seen when it is complete).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from xaibench.core.atomic_files import whole_path


class StoreError(RuntimeError):
    """The disk refused to keep a result (full, read-only, no permission); what was there before is untouched."""


class Files(Protocol):
    """Whole files by name (``"score/1f3a.parquet"``), below one root."""

    def exists(self, name: str) -> bool:
        """Whether the file is there."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes from ``start`` to ``stop`` (fewer where the file ends).

        Raises:
            FileNotFoundError: If there is no such file.
        """

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """All of each file, in order; an exception in place of one that cannot be read."""

    def write(self, name: str, data: bytes) -> None:
        """Write the file, whole or not at all; raises :class:`StoreError`."""

    def rename(self, name: str, other: str) -> None:
        """Give the file another name."""

    def remove(self, name: str) -> None:
        """Remove the file, if it is there."""

    def listing(self, folder: str) -> dict[str, str]:
        """``{file name: fingerprint}`` of a folder, without its name; the fingerprint changes when the file does."""


def files_at(root: Path | str) -> Files:
    """The files below a local path, or below a URL that fsspec knows.

    Example:
        >>> files_at("runs/store"), files_at("s3://bucket/store")
        (LocalFiles(root=PosixPath('runs/store')), RemoteFiles(root='s3://bucket/store'))
    """
    if not is_remote(root):
        return LocalFiles(Path(str(root).removeprefix("file://")))
    return RemoteFiles(str(root).rstrip("/"))


def is_remote(root: Path | str) -> bool:
    """Whether fsspec is needed to reach it: a URL, but not ``file://``."""
    return "://" in str(root) and not str(root).startswith("file://")


@dataclass(frozen=True)
class LocalFiles:
    """Files in a folder, which is made when the first one is written."""

    root: Path

    def exists(self, name: str) -> bool:
        """See :class:`Files`."""
        return (self.root / name).exists()

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """See :class:`Files`."""
        with (self.root / name).open("rb") as file:
            file.seek(start)
            return file.read(-1 if stop is None else stop - start)

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """See :class:`Files`."""
        for name in names:
            try:
                yield self.read(name)
            except OSError as error:
                yield error

    def write(self, name: str, data: bytes) -> None:
        """See :class:`Files`."""
        # A result that a power cut leaves damaged is found by its seal and computed again: no need to sync each.
        write_atomic(self.root / name, data, durable=False)

    def rename(self, name: str, other: str) -> None:
        """See :class:`Files`."""
        (self.root / name).rename(self.root / other)

    def remove(self, name: str) -> None:
        """See :class:`Files`."""
        (self.root / name).unlink(missing_ok=True)

    def listing(self, folder: str) -> dict[str, str]:
        """See :class:`Files`."""
        found = {}
        try:
            with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        status = entry.stat()
                        found[entry.name] = f"{status.st_size}-{status.st_mtime_ns}"
        except (NotADirectoryError, PermissionError) as error:
            raise StoreError(f"Cannot read the store {self.root}: {error.strerror}; choose another folder.") from error
        return found


@dataclass(frozen=True)
class RemoteFiles:
    """Files below a URL; credentials and endpoints are those that fsspec finds in its configuration and environment."""

    root: str

    def _at(self, name: str) -> tuple[Any, str]:
        import fsspec

        try:
            # Without the cache of listings: other machines write here too.
            return fsspec.core.url_to_fs(f"{self.root}/{name}", use_listings_cache=False)  # type: ignore[no-any-return]
        except (ValueError, ImportError) as error:  # no such protocol; a package that it needs
            raise StoreError(
                f"Cannot reach the store {self.root}: {error}. Expected a folder, or a URL that fsspec knows."
            ) from error

    def exists(self, name: str) -> bool:
        """See :class:`Files`."""
        system, path = self._at(name)
        return bool(system.exists(path))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """See :class:`Files`."""
        system, path = self._at(name)
        try:
            return bytes(system.cat_file(path, start=start or None, end=stop))
        except OSError:
            raise
        except Exception as error:  # every object store has errors of its own
            raise OSError(f"Cannot read {self.root}/{name}: {type(error).__name__}: {error}") from error

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """See :class:`Files`; many at a time, as each takes its time to answer."""
        for i in range(0, len(names), 256):
            paths = [self._at(name) for name in names[i : i + 256]]
            found = paths[0][0].cat([path for _, path in paths], on_error="return")
            found = found if isinstance(found, dict) else {paths[0][1]: found}  # a single path gives its bytes alone
            yield from (found[path] for _, path in paths)

    def write(self, name: str, data: bytes) -> None:
        """See :class:`Files`."""
        system, path = self._at(name)
        try:
            system.pipe_file(path, data)
        except Exception as error:
            raise StoreError(
                f"Cannot write {self.root}/{name}: {type(error).__name__}: {error}. What is finished is kept; run "
                "the same command again when the store can be reached."
            ) from error

    def rename(self, name: str, other: str) -> None:
        """See :class:`Files`."""
        system, path = self._at(name)
        system.mv(path, self._at(other)[1])

    def remove(self, name: str) -> None:
        """See :class:`Files`."""
        system, path = self._at(name)
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(path)

    def listing(self, folder: str) -> dict[str, str]:
        """See :class:`Files`."""
        system, path = self._at(folder)
        try:
            found = system.find(path, detail=True)
        except Exception as error:
            raise StoreError(
                f"Cannot read the store {self.root}: {type(error).__name__}: {error}. Look at the address, and at the "
                "credentials and endpoint that fsspec finds in its configuration and environment."
            ) from error
        # An object store names the content (ETag); where one does not, size and time must do.
        return {
            name.rsplit("/", 1)[1]: str(
                info.get("ETag") or (info.get("size"), info.get("LastModified", info.get("created")))
            )
            for name, info in found.items()
        }


def write_atomic(path: Path, data: bytes | Callable[[Path], None], *, durable: bool = True) -> None:
    """Write ``data`` (or let it write itself to the path it is given) so that ``path`` is whole or not there.

    Raises:
        StoreError: If the disk is full, read-only or not permitted; nothing is left behind.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_path(path, durable=durable) as partial:
            if callable(data):
                data(partial)
            else:
                partial.write_bytes(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong inside the block went wrong in writing ``path``; says what to do.

    Raises:
        StoreError: If the disk is full, read-only or not permitted.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(_advice(path, error)) from error


def _advice(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space is left to write {path}; free some and run the same command again: what is finished is kept."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"Cannot write {path}: {error.strerror}; choose another folder with --out, or change its permissions."
    return f"Cannot write {path}: {error.strerror or error}; choose another folder with --out."
