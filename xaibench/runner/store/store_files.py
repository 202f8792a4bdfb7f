"""File access of the store: a local folder, or a URL that fsspec supports (``s3://bucket/run``).

Both write a file completely or not at all: locally by writing to a temporary name and renaming, in object stores
because an upload becomes visible only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from xaibench.core.files import atomic_path


class StoreError(RuntimeError):
    """The store cannot be read or written (disk full, read-only, no permission). Existing results are unchanged."""


class Files(Protocol):
    """Files below one root, by name (``"score/1f3a.parquet"``)."""

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Read the bytes from ``start`` to ``stop``, or to the end of the file if it is shorter.

        Raises:
            FileNotFoundError: If the file does not exist.
        """

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """Yield the content of each file in order, or the exception if a file cannot be read."""

    def write(self, name: str, data: bytes) -> None:
        """Write the file completely or not at all; raises :class:`StoreError`."""

    def rename(self, name: str, other: str) -> None:
        """Rename the file."""

    def remove(self, name: str) -> None:
        """Remove the file if it exists."""

    def listing(self, folder: str) -> dict[str, str]:
        """Return ``{file name: fingerprint}`` of a folder; the fingerprint changes when the file changes."""


def files_at(root: Path | str) -> Files:
    """Return access to the files below a local path, or below a URL that fsspec supports.

    Example:
        >>> files_at("runs/store"), files_at("s3://bucket/store")
        (LocalFiles(root=PosixPath('runs/store')), RemoteFiles(root='s3://bucket/store'))
    """
    if not is_remote(root):
        return LocalFiles(Path(str(root).removeprefix("file://")))
    return RemoteFiles(str(root).rstrip("/"))


def is_remote(root: Path | str) -> bool:
    """Return whether ``root`` needs fsspec: a URL other than ``file://``."""
    return "://" in str(root) and not str(root).startswith("file://")


@dataclass(frozen=True)
class LocalFiles:
    """Files in a local folder, which is created when the first file is written."""

    root: Path

    def exists(self, name: str) -> bool:
        """Implement :class:`Files`."""
        return (self.root / name).exists()

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Implement :class:`Files`."""
        with (self.root / name).open("rb") as file:
            file.seek(start)
            return file.read(-1 if stop is None else stop - start)

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """Implement :class:`Files`."""
        for name in names:
            try:
                yield self.read(name)
            except OSError as error:
                yield error

    def write(self, name: str, data: bytes) -> None:
        """Implement :class:`Files`."""
        # No fsync: a result damaged by a power failure is detected by its checksum and computed again.
        write_atomic(self.root / name, data, durable=False)

    def rename(self, name: str, other: str) -> None:
        """Implement :class:`Files`."""
        (self.root / name).rename(self.root / other)

    def remove(self, name: str) -> None:
        """Implement :class:`Files`."""
        (self.root / name).unlink(missing_ok=True)

    def listing(self, folder: str) -> dict[str, str]:
        """Implement :class:`Files`."""
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
    """Files below a URL. fsspec takes credentials and endpoints from its configuration and environment."""

    root: str

    def _resolve(self, name: str) -> tuple[Any, str]:
        import fsspec

        try:
            # No listings cache, because other machines write here too.
            return fsspec.core.url_to_fs(f"{self.root}/{name}", use_listings_cache=False)  # type: ignore[no-any-return]
        except (ValueError, ImportError) as error:  # unknown protocol, or a missing package
            raise StoreError(
                f"Cannot reach the store {self.root}: {error}. Expected a folder, or a URL that fsspec supports."
            ) from error

    def exists(self, name: str) -> bool:
        """Implement :class:`Files`."""
        system, path = self._resolve(name)
        return bool(system.exists(path))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Implement :class:`Files`."""
        system, path = self._resolve(name)
        try:
            return bytes(system.cat_file(path, start=start or None, end=stop))
        except OSError:
            raise
        except Exception as error:  # every object store has its own exception types
            raise OSError(f"Cannot read {self.root}/{name}: {type(error).__name__}: {error}") from error

    def read_many(self, names: Sequence[str]) -> Iterator[bytes | Exception]:
        """Implement :class:`Files`; requests are sent in groups, to hide the latency of each."""
        for i in range(0, len(names), 256):
            paths = [self._resolve(name) for name in names[i : i + 256]]
            found = paths[0][0].cat([path for _, path in paths], on_error="return")
            found = found if isinstance(found, dict) else {paths[0][1]: found}  # fsspec returns bytes for one path
            yield from (found[path] for _, path in paths)

    def write(self, name: str, data: bytes) -> None:
        """Implement :class:`Files`."""
        system, path = self._resolve(name)
        try:
            system.pipe_file(path, data)
        except Exception as error:
            raise StoreError(
                f"Cannot write {self.root}/{name}: {type(error).__name__}: {error}. Finished results are kept; run "
                "the same command again when the store can be reached."
            ) from error

    def rename(self, name: str, other: str) -> None:
        """Implement :class:`Files`."""
        system, path = self._resolve(name)
        system.mv(path, self._resolve(other)[1])

    def remove(self, name: str) -> None:
        """Implement :class:`Files`."""
        system, path = self._resolve(name)
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(path)

    def listing(self, folder: str) -> dict[str, str]:
        """Implement :class:`Files`."""
        system, path = self._resolve(folder)
        try:
            found = system.find(path, detail=True)
        except Exception as error:
            raise StoreError(
                f"Cannot read the store {self.root}: {type(error).__name__}: {error}. Check the address, and the "
                "credentials and endpoint in fsspec's configuration and environment."
            ) from error
        # Object stores report a content hash (ETag); otherwise use size and time.
        return {
            name.rsplit("/", 1)[1]: str(
                info.get("ETag") or (info.get("size"), info.get("LastModified", info.get("created")))
            )
            for name, info in found.items()
        }


def write_atomic(path: Path, data: bytes | Callable[[Path], None], *, durable: bool = True) -> None:
    """Write a file completely or not at all.

    Args:
        path: The file.
        data: The content, or a function that writes it to the temporary path that it receives.
        durable: Whether to sync the file to disk.

    Raises:
        StoreError: If the disk is full, read-only or not permitted; no partial file remains.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, durable=durable) as partial:
            if callable(data):
                data(partial)
            else:
                partial.write_bytes(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an :class:`OSError` inside the block, which writes ``path``, to a :class:`StoreError` with advice.

    Raises:
        StoreError: If the disk is full, read-only or not permitted.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(_advice(path, error)) from error


def _advice(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space is left to write {path}; free some and run the same command again. Finished results are kept."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"Cannot write {path}: {error.strerror}; choose another folder with --out, or change its permissions."
    return f"Cannot write {path}: {error.strerror or error}; choose another folder with --out."
