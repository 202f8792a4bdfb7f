"""File access of the store: a local folder, or a URL that fsspec supports (``s3://bucket/run``).

Both write a file completely or not at all: locally by writing to a temporary name and renaming, in object stores
because an upload becomes visible only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xaibench.core.files import atomic_path


class StoreError(RuntimeError):
    """The store cannot be read or written (disk full, read-only, no permission). Existing results are unchanged."""


def files_at(root: Path | str) -> LocalFiles | RemoteFiles:
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
        """Return whether the file exists."""
        return (self.root / name).exists()

    def read(self, name: str) -> bytes:
        """Return the content; raises :class:`FileNotFoundError`."""
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write the file completely or not at all; raises :class:`StoreError`."""
        # No fsync: a result damaged by a power failure is detected by its checksum and computed again.
        write_atomic(self.root / name, data, durable=False)

    def rename(self, name: str, other: str) -> None:
        """Rename the file."""
        (self.root / name).rename(self.root / other)

    def remove(self, name: str) -> None:
        """Remove the file if it exists."""
        (self.root / name).unlink(missing_ok=True)

    def listing(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        try:
            return [name for name in os.listdir(self.root / folder) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except (NotADirectoryError, PermissionError) as error:
            raise StoreError(f"Cannot read the store {self.root}: {error.strerror}; choose another folder.") from error


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
        """See :class:`LocalFiles`."""
        system, path = self._resolve(name)
        return bool(system.exists(path))

    def read(self, name: str) -> bytes:
        """See :class:`LocalFiles`."""
        system, path = self._resolve(name)
        try:
            return bytes(system.cat_file(path))
        except OSError:
            raise
        except Exception as error:  # every object store has its own exception types
            raise OSError(f"Cannot read {self.root}/{name}: {type(error).__name__}: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        """See :class:`LocalFiles`."""
        system, path = self._resolve(name)
        try:
            system.pipe_file(path, data)
        except Exception as error:
            raise StoreError(
                f"Cannot write {self.root}/{name}: {type(error).__name__}: {error}. Finished results are kept; run "
                "the same command again when the store can be reached."
            ) from error

    def rename(self, name: str, other: str) -> None:
        """See :class:`LocalFiles`."""
        system, path = self._resolve(name)
        system.mv(path, self._resolve(other)[1])

    def remove(self, name: str) -> None:
        """See :class:`LocalFiles`."""
        system, path = self._resolve(name)
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(path)

    def listing(self, folder: str) -> list[str]:
        """See :class:`LocalFiles`."""
        system, path = self._resolve(folder)
        try:
            paths = system.find(path)
        except Exception as error:
            raise StoreError(
                f"Cannot read the store {self.root}: {type(error).__name__}: {error}. Check the address, and the "
                "credentials and endpoint in fsspec's configuration and environment."
            ) from error
        return [path.rsplit("/", 1)[1] for path in paths]


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
