"""Store of job results by key. A result is either complete or absent.

Tensors (data, weights, maps) are stored as safetensors files, scores as Parquet files, each followed by the SHA-256 of
the file. A damaged file is set aside under another name and counts as absent, so that its job runs again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.store_files import LocalFiles, RemoteFiles, StoreError, files_at

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

__all__ = ["CorruptResultError", "Store", "StoreError"]

log = logging.getLogger("xaibench")

#: Folder of incomplete results of score jobs.
PARTIAL = "partial"
#: Folders of the store with their file types.
_FOLDERS = {"data": "safetensors", "train": "safetensors", "fit": "safetensors", "explain": "safetensors"}
_FOLDERS |= {"score": "parquet", PARTIAL: "parquet"}


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
            stage: Stage of the job: ``"data"``, ``"train"``, ``"explain"``, ``"score"``; or ``"fit"``, ``"partial"``.
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
