"""Store of job results by key. A result is either complete or absent.

Tensors (data, weights, maps) are stored as safetensors files, scores as Parquet files, each followed by the SHA-256 of
the file. A damaged file is set aside under another name and counts as absent, so that its job runs again.

The files are in a local folder, or below a URL that fsspec supports (``s3://bucket/run``). Both write a file completely
or not at all: locally by writing to a temporary name and renaming, in object stores because an upload becomes visible
only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.core.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

log = logging.getLogger("xaibench")


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


#: Folder of incomplete results of score jobs.
PARTIAL = "partial"
#: Folders of the store with their file types.
_FOLDERS = {"data": "safetensors", "train": "safetensors", "explain": "safetensors"}
_FOLDERS |= {"score": "parquet", PARTIAL: "parquet", "audit": "safetensors"}


class CorruptResultError(RuntimeError):
    """A stored result is damaged; it has been set aside and will be computed again."""


@dataclass(frozen=True)
class Store:
    """Store of results by stage and key, in one folder.

    Args:
        root: A folder, created when the first result is written; or a URL that fsspec supports, such as
            ``"s3://bucket/run"``.

    Example:
        >>> import tempfile, torch
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.save_tensors("data", "k1", {"x": torch.ones(2)}, {"n": 2})
        >>> tensors, meta = store.load_tensors("data", "k1")
        >>> tensors["x"].tolist(), meta["n"], store.has("data", "k1"), store.has("data", "k2")
        ([1.0, 1.0], 2, True, False)
    """

    root: Path | str

    @functools.cached_property
    def files(self) -> LocalFiles | RemoteFiles:
        """Access to the files below the root."""
        return files_at(self.root)

    def name(self, stage: str, key: str) -> str:
        """Return the file name of a result, whether or not it exists.

        Args:
            stage: Stage of the job: ``"data"``, ``"train"``, ``"explain"``, ``"score"``; or ``"partial"``,
                ``"audit"``.
            key: Key of the job.

        Returns:
            The path relative to the root, with ``/``.
        """
        return f"{stage}/{key}.{_FOLDERS[stage]}"

    def has(self, stage: str, key: str) -> bool:
        """Return whether a result is stored. Damage is detected only when it is read.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            True if the file exists.
        """
        return self.files.exists(self.name(stage, key))

    def keys(self, stage: str) -> set[str]:
        """List all results of a stage.

        Args:
            stage: Of the jobs.

        Returns:
            Their keys.
        """
        end = f".{_FOLDERS[stage]}"
        return {name.removesuffix(end) for name in self.files.listing(stage) if name.endswith(end)}

    def remove(self, stage: str, key: str) -> None:
        """Remove a result if it is stored.

        Args:
            stage: Of the job.
            key: Of the job.
        """
        self.files.remove(self.name(stage, key))

    def save_tensors(self, stage: str, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Store named tensors, and ``meta`` as JSON in the same file.

        Args:
            stage: Of the job.
            key: Of the job.
            tensors: The tensors by name, on any device.
            meta: JSON-serializable metadata.
        """
        from safetensors.torch import save

        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        self._write(self.name(stage, key), save(on_cpu, metadata={"meta": json.dumps(meta)}))

    def load_tensors(self, stage: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read tensors and metadata written by :meth:`save_tensors`.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            The tensors by name, on the CPU, and ``meta``.

        Raises:
            CorruptResultError: If the file is damaged; it is set aside first.
            FileNotFoundError: If the result is not stored.
        """
        from safetensors.torch import load

        data = self._read(self.name(stage, key))
        return load(data), _read_meta(data)

    def get_tensors(self, stage: str, key: str, compute: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """Read tensors, or compute and store them if they are not stored or damaged.

        Args:
            stage: Of the job.
            key: Of the job.
            compute: Returns the tensors by name.

        Returns:
            The tensors by name.
        """
        with contextlib.suppress(CorruptResultError, FileNotFoundError):
            return self.load_tensors(stage, key)[0]
        tensors = compute()
        self.save_tensors(stage, key, tensors, {})
        return tensors

    def load_meta(self, stage: str, key: str) -> dict[str, Any]:
        """Read only the metadata, once per process. Raises the same errors as :meth:`load_tensors`.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            ``meta``, as it was saved.
        """
        return _load_meta(self, stage, key)

    def save_table(self, stage: str, key: str, table: pd.DataFrame) -> None:
        """Store a table. The same table always gives the same bytes.

        Args:
            stage: Of the job.
            key: Of the job.
            table: The table; its index is dropped.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink)
        self._write(self.name(stage, key), sink.getvalue().to_pybytes())

    def load_table(self, stage: str, key: str) -> pa.Table:
        """Read a table written by :meth:`save_table`. Raises the same errors as :meth:`load_tensors`.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            The table.
        """
        import pyarrow.parquet as pq

        with pq.ParquetFile(io.BytesIO(self._read(self.name(stage, key)))) as file:
            return file.read(use_threads=False)

    def set_aside_damaged(self) -> None:
        """Read every file of the store, and set aside damaged ones."""
        for stage in _FOLDERS:
            for key in self.keys(stage):
                with contextlib.suppress(CorruptResultError, FileNotFoundError):
                    self._read(self.name(stage, key))

    def _write(self, name: str, data: bytes) -> None:
        self.files.write(name, data + hashlib.sha256(data).digest())

    def _read(self, name: str) -> bytes:
        data = self.files.read(name)
        content, checksum = data[:-32], data[-32:]
        if hashlib.sha256(content).digest() == checksum:
            return content
        aside = f"{name}.corrupt-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            self.files.rename(name, aside)
        _load_meta.cache_clear()
        file = f"{self.root}/{name}"
        log.warning("%s is damaged. It was renamed to %s and will be computed again.", file, aside)
        raise CorruptResultError(f"{file} is damaged. It was set aside; run the same command again to recompute it.")


def _read_meta(data: bytes) -> dict[str, Any]:
    """Return the metadata in the header of a safetensors file: its length in eight bytes, and JSON."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    meta: dict[str, Any] = json.loads(header["__metadata__"]["meta"])
    return meta


@functools.lru_cache(maxsize=4096)
def _load_meta(store: Store, stage: str, key: str) -> dict[str, Any]:
    # The result of a key never changes.
    return _read_meta(store._read(store.name(stage, key)))
