"""The store: where the result of every job lies under its key, there or not there, never half.

Tensors (data, weights, maps) are safetensors files, scores are Parquet files; both carry checksums. What cannot be read
back is set aside under another name and counts as not there, so that it is computed again. Where the files lie is the
business of :mod:`xaibench.runner.store.store_files`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.store.store_files import Files, StoreError, files_at

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import torch
    from torch import Tensor

__all__ = ["CorruptResultError", "Store", "StoreError", "to_parquet"]

log = logging.getLogger("xaibench")

#: Bytes of a tensor file that are read first: its header, and all of a small one.
_FIRST = 1 << 16

#: A header longer than this is none.
_LONGEST_HEADER = 1 << 26


class CorruptResultError(RuntimeError):
    """A stored result that is not what was written; it has been set aside and will be computed again."""


@dataclass(frozen=True)
class Store:
    """Results by stage and key, in one folder.

    Args:
        root: A folder, made when the first result is written; or a URL that fsspec knows, such as ``"s3://bucket/run"``.

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
    def files(self) -> Files:
        """The files below the root."""
        return files_at(self.root)

    def name(self, stage: str, key: str) -> str:
        """Where the result lies below the root, or would lie.

        Args:
            stage: Of the job: ``"data"``, ``"train"``, ``"explain"``, ``"score"``.
            key: Of the job.

        Returns:
            A relative path with ``/``.
        """
        return f"{stage}/{key}.{_suffix(stage)}"

    def has(self, stage: str, key: str) -> bool:
        """Whether the result is there (not whether it is sound: that shows when it is read).

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            True if it is.
        """
        return self.files.exists(self.name(stage, key))

    def keys(self, stage: str) -> dict[str, str]:
        """All results of a stage, in one listing.

        Args:
            stage: Of the jobs.

        Returns:
            ``{key: fingerprint}``; a fingerprint changes with its file.
        """
        end = f".{_suffix(stage)}"
        return {name.removesuffix(end): mark for name, mark in self.files.listing(stage).items() if name.endswith(end)}

    def save_tensors(self, stage: str, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep named tensors, and ``meta`` as JSON beside them in the same file.

        Args:
            stage: Of the job.
            key: Of the job.
            tensors: By name; kept bit by bit, on whatever device they are.
            meta: Anything that JSON can hold.
        """
        from safetensors.torch import save

        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        text = json.dumps(meta)
        digests = {name: _digest(tensor) for name, tensor in kept.items()}
        header = {"meta": text, "meta_sha256": _sha256(text.encode()), "sha256": json.dumps(digests)}
        self.files.write(self.name(stage, key), save(kept, metadata=header))

    def load_tensors(self, stage: str, key: str, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read back what :meth:`save_tensors` kept.

        Args:
            stage: Of the job.
            key: Of the job.
            prefix: Only the tensors whose names begin so; no others are read from the disk.

        Returns:
            The tensors by name, on the CPU, and ``meta``.

        Raises:
            CorruptResultError: If what is read is damaged; the file is set aside first.
            FileNotFoundError: If there is no such result.
        """
        name = self.name(stage, key)
        with self._set_aside_if_corrupt(name):
            return _read_tensors(functools.partial(self.files.read, name), prefix)

    def load_meta(self, stage: str, key: str) -> dict[str, Any]:
        """Only what lies beside the tensors; raises as :meth:`load_tensors` does.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            ``meta``, as it was saved.
        """
        name = self.name(stage, key)
        with self._set_aside_if_corrupt(name):
            return _read_header(functools.partial(self.files.read, name)).meta

    def save_table(self, stage: str, key: str, table: pd.DataFrame) -> None:
        """Keep a table as Parquet with page checksums.

        Args:
            stage: Of the job.
            key: Of the job.
            table: Its index is not kept.
        """
        self.files.write(self.name(stage, key), to_parquet(table))

    def load_table(self, stage: str, key: str) -> pd.DataFrame:
        """Read back what :meth:`save_table` kept; raises as :meth:`load_tensors` does.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            The table.
        """
        (table,) = self.load_tables(stage, [key])
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def load_tables(self, stage: str, keys: Sequence[str]) -> Iterator[pa.Table]:
        """Read back many tables.

        Args:
            stage: Of the jobs.
            keys: Of the jobs.

        Yields:
            The tables, in the order of the keys.

        Raises:
            CorruptResultError: At the first that is damaged; it is set aside.
            FileNotFoundError: If there is no such result.
        """
        names = [self.name(stage, key) for key in keys]
        for name, data in zip(names, self.files.read_many(names), strict=True):
            if isinstance(data, Exception):
                raise data
            with self._set_aside_if_corrupt(name):
                table = _read_parquet(data)
            yield table

    # A job that failed leaves its error here; a later success, or a new try, takes it away.

    def fail(self, stage: str, key: str, error: str) -> None:
        """Write down that a job failed.

        Args:
            stage: Of the job.
            key: Of the job.
            error: Why.
        """
        self.files.write(_failure(stage, key), error.encode())

    def failure(self, stage: str, key: str) -> str | None:
        """Whether a job failed and has not succeeded since.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            Its error; None if there is none.
        """
        name = _failure(stage, key)
        return self.files.read(name).decode() if self.files.exists(name) and not self.has(stage, key) else None

    def failed(self) -> set[tuple[str, str]]:
        """Every failure that is written down.

        Returns:
            Stage and key of each.
        """
        names = (name.removesuffix(".txt").partition("-") for name in self.files.listing("failed"))
        return {(stage, key) for stage, _, key in names}

    def forgive(self, stage: str, key: str) -> None:
        """Forget an earlier failure, before a job is tried again.

        Args:
            stage: Of the job.
            key: Of the job.
        """
        self.files.remove(_failure(stage, key))

    @contextlib.contextmanager
    def _set_aside_if_corrupt(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError:  # not there, or not to be reached: no sign of damage
            raise
        except Exception as error:
            aside = f"{name}.corrupt-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                self.files.rename(name, aside)
            where = f"{self.root}/{name}"
            log.warning("%s is damaged (%s); it is kept as %s and will be computed again.", where, error, aside)
            raise CorruptResultError(
                f"{where} is damaged ({error}); it is set aside, and the same command computes it again."
            ) from error


def _suffix(stage: str) -> str:
    return "parquet" if stage == "score" else "safetensors"


def _failure(stage: str, key: str) -> str:
    return f"failed/{stage}-{key}.txt"


@dataclass(frozen=True)
class _Header:
    """The head of a tensor file: what is where, what it must hash to, and the values beside the tensors."""

    entries: dict[str, dict[str, Any]]
    digests: dict[str, str]
    meta: dict[str, Any]
    body: int
    head: bytes


def _read_header(read: Callable[[int, int | None], bytes]) -> _Header:
    head = read(0, _FIRST)
    body = 8 + int.from_bytes(head[:8], "little")
    if len(head) < 8 or body > _LONGEST_HEADER:
        raise ValueError("it is no tensor file")
    if body > len(head):
        head += read(len(head), body)
    entries = json.loads(head[8:body])
    own = entries.pop("__metadata__")
    if _sha256(own["meta"].encode()) != own["meta_sha256"]:
        raise ValueError("its checksum does not match")
    return _Header(entries, json.loads(own["sha256"]), json.loads(own["meta"]), body, head)


def _read_tensors(
    read: Callable[[int, int | None], bytes], prefix: str = ""
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by the layout of safetensors: eight bytes of length, a JSON header, the bodies."""
    import torch

    header = _read_header(read)
    tensors = {}
    for name, entry in header.entries.items():
        if not name.startswith(prefix):
            continue
        start, stop = (header.body + offset for offset in entry["data_offsets"])
        data = bytearray(header.head[start:stop] if stop <= len(header.head) else read(start, stop))
        shape, dtype = entry["shape"], _dtype(entry["dtype"])
        tensor = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        if len(data) != stop - start or _digest(tensor) != header.digests[name]:
            raise ValueError(f"its checksum does not match ({name})")
        tensors[name] = tensor
    return tensors, header.meta


def _dtype(name: str) -> torch.dtype:
    """The torch type behind the format's name for it: F64, BF16, I8, U8, BOOL, ..."""
    import torch

    words = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint"}
    letters = name.rstrip("0123456789")
    found: torch.dtype = torch.bool if name == "BOOL" else getattr(torch, words[letters] + name[len(letters) :])
    return found


def _digest(tensor: Tensor) -> str:
    import torch

    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)  # its bytes, without a copy
    return digest.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def to_parquet(table: pd.DataFrame) -> bytes:
    """A table as the bytes of a Parquet file with page checksums; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink, write_page_checksum=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read_parquet(data: bytes) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True) as file:
            return file.read(use_threads=False)
    except OSError as error:  # pyarrow's word for damage
        raise ValueError(str(error)) from error
