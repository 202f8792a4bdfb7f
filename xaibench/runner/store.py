"""The store: where the result of every job lies under its key, there or not there, never half.

Tensors (data, weights, maps) are safetensors files, scores are Parquet files; both carry a checksum. A file is written
under a temporary name and renamed. What cannot be read back is set aside under another name and
counts as not there, so that it is computed again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

log = logging.getLogger("xaibench")


class StoreError(RuntimeError):
    """The disk refused to keep a result (full, read-only, no permission); what was there before is untouched."""


class CorruptResultError(RuntimeError):
    """A stored result that is not what was written; it has been set aside and will be computed again."""


@dataclass(frozen=True)
class Store:
    """Results by stage and key, in one folder.

    Args:
        root: The folder; made when the first result is written.

    Example:
        >>> import tempfile, torch
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.save_tensors("data", "k1", {"x": torch.ones(2)}, {"n": 2})
        >>> tensors, meta = store.load_tensors("data", "k1")
        >>> tensors["x"].tolist(), meta["n"], store.has("data", "k1"), store.has("data", "k2")
        ([1.0, 1.0], 2, True, False)
    """

    root: Path

    def path(self, stage: str, key: str) -> Path:
        """Where the result lies, or would lie."""
        return self.root / stage / f"{key}.{'parquet' if stage == 'score' else 'safetensors'}"

    def has(self, stage: str, key: str) -> bool:
        """Whether the result is there (not whether it is sound: that shows when it is read)."""
        return self.path(stage, key).exists()

    def save_tensors(self, stage: str, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep named tensors, and ``meta`` as JSON beside them in the same file."""
        from safetensors.torch import save

        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        header = {"meta": json.dumps(meta), "sha256": _digest(kept)}
        write_atomic(self.path(stage, key), save(kept, metadata=header))

    def load_tensors(self, stage: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read back what :meth:`save_tensors` kept.

        Raises:
            CorruptResultError: If the file is damaged; it is set aside first.
            FileNotFoundError: If there is no such result.
        """
        path = self.path(stage, key)
        with self._set_aside_if_corrupt(path):
            return read_tensors(path)

    def save_table(self, stage: str, key: str, table: pd.DataFrame) -> None:
        """Keep a table as Parquet with page checksums."""
        write_atomic(self.path(stage, key), to_parquet(table))

    def load_table(self, stage: str, key: str) -> pd.DataFrame:
        """Read back what :meth:`save_table` kept; raises as :meth:`load_tensors` does."""
        import pyarrow.parquet as pq

        path = self.path(stage, key)
        with self._set_aside_if_corrupt(path):
            table: pd.DataFrame = pq.read_table(path, page_checksum_verification=True).to_pandas()
            return table

    # A job that failed leaves its error here; a later success, or a new try, takes it away.

    def fail(self, stage: str, key: str, error: str) -> None:
        """Write down that a job failed, and why."""
        write_atomic(self._failure(stage, key), error.encode())

    def failure(self, stage: str, key: str) -> str | None:
        """The error of a job that failed and has not succeeded since."""
        path = self._failure(stage, key)
        return path.read_text() if path.exists() and not self.has(stage, key) else None

    def forgive(self, stage: str, key: str) -> None:
        """Forget an earlier failure, before a job is tried again."""
        self._failure(stage, key).unlink(missing_ok=True)

    def _failure(self, stage: str, key: str) -> Path:
        return self.root / "failed" / f"{stage}-{key}.txt"

    @contextlib.contextmanager
    def _set_aside_if_corrupt(self, path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            aside = path.with_name(f"{path.name}.corrupt-{secrets.token_hex(4)}")
            with contextlib.suppress(OSError):
                path.rename(aside)
            log.warning("%s is damaged (%s); it is kept as %s and will be computed again.", path, error, aside.name)
            raise CorruptResultError(f"{path} is damaged: {error}") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file of the store (or of a run folder) and verify its checksum."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    if header.get("sha256") != _digest(tensors):
        raise ValueError("its checksum does not match")
    return tensors, json.loads(header["meta"])


def to_parquet(table: pd.DataFrame) -> bytes:
    """A table as the bytes of a Parquet file with page checksums; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink, write_page_checksum=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_atomic(path: Path, data: bytes | Callable[[Path], None]) -> None:
    """Write ``data`` (or let it write itself to the path it is given) so that ``path`` is whole or not there.

    Raises:
        StoreError: If the disk is full, read-only or not permitted; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(data):
            data(partial)
        else:
            partial.write_bytes(data)
        # No fsync: a file that a power cut leaves damaged is found by its checksum and computed again.
        partial.replace(path)
    except OSError as error:
        raise StoreError(_advice(path, error)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _advice(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left to write {path}; free some and run the same command again: what is finished is kept."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"cannot write {path}: {error.strerror}; choose another folder with --out, or change its permissions."
    return f"cannot write {path}: {error}"


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
