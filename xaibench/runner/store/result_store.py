"""Store of job results by key. A result is either complete or absent.

Tensors (data, weights, maps) are stored as safetensors files (:mod:`.checked_tensors`), scores as Parquet files
(:mod:`.checked_tables`). Both carry checksums that detect any changed bit. A damaged file is set aside under another
name and counts as absent, so that its job runs again. :mod:`.store_files` reads and writes the files.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.store.checked_tables import from_parquet, to_parquet
from xaibench.runner.store.checked_tensors import read_meta, read_tensors, to_safetensors
from xaibench.runner.store.store_files import Files, StoreError, files_at

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

__all__ = ["CorruptResultError", "Store", "StoreError", "to_parquet"]

log = logging.getLogger("xaibench")


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
    def files(self) -> Files:
        """Access to the files below the root."""
        return files_at(self.root)

    def name(self, stage: str, key: str) -> str:
        """Return the file name of a result, whether or not it exists.

        Args:
            stage: Stage of the job: ``"data"``, ``"train"``, ``"explain"``, ``"score"``.
            key: Key of the job.

        Returns:
            The path relative to the root, with ``/``.
        """
        return f"{stage}/{key}.{_suffix(stage)}"

    def has(self, stage: str, key: str) -> bool:
        """Return whether a result is stored. Damage is detected only when it is read.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            True if the file exists.
        """
        return self.files.exists(self.name(stage, key))

    def keys(self, stage: str) -> dict[str, str]:
        """List all results of a stage.

        Args:
            stage: Of the jobs.

        Returns:
            ``{key: fingerprint}``; the fingerprint changes when the file changes.
        """
        end = f".{_suffix(stage)}"
        files = self.files.listing(stage)
        return {name.removesuffix(end): fingerprint for name, fingerprint in files.items() if name.endswith(end)}

    def save_tensors(self, stage: str, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Store named tensors, and ``meta`` as JSON in the same file.

        Args:
            stage: Of the job.
            key: Of the job.
            tensors: The tensors by name, on any device.
            meta: JSON-serializable metadata.
        """
        self.files.write(self.name(stage, key), to_safetensors(tensors, meta))

    def load_tensors(self, stage: str, key: str, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read tensors and metadata written by :meth:`save_tensors`.

        Args:
            stage: Of the job.
            key: Of the job.
            prefix: Read only the tensors whose names begin with it.

        Returns:
            The tensors by name, on the CPU, and ``meta``.

        Raises:
            CorruptResultError: If the part that is read is damaged; the file is set aside first.
            FileNotFoundError: If the result is not stored.
        """
        name = self.name(stage, key)
        with self._set_aside_if_corrupt(name):
            return read_tensors(functools.partial(self.files.read, name), prefix)

    def load_meta(self, stage: str, key: str) -> dict[str, Any]:
        """Read only the metadata written by :meth:`save_tensors`. Raises the same errors as :meth:`load_tensors`.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            ``meta``, as it was saved.
        """
        name = self.name(stage, key)
        with self._set_aside_if_corrupt(name):
            return read_meta(functools.partial(self.files.read, name))

    def save_table(self, stage: str, key: str, table: pd.DataFrame) -> None:
        """Store a table as Parquet with a checksum.

        Args:
            stage: Of the job.
            key: Of the job.
            table: The table; its index is dropped.
        """
        self.files.write(self.name(stage, key), to_parquet(table))

    def load_table(self, stage: str, key: str) -> pd.DataFrame:
        """Read a table written by :meth:`save_table`. Raises the same errors as :meth:`load_tensors`.

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
        """Read several tables.

        Args:
            stage: Of the jobs.
            keys: Of the jobs.

        Yields:
            The tables, in the order of the keys.

        Raises:
            CorruptResultError: At the first damaged table; it is set aside first.
            FileNotFoundError: If the result is not stored.
        """
        names = [self.name(stage, key) for key in keys]
        for name, data in zip(names, self.files.read_many(names), strict=True):
            if isinstance(data, Exception):
                raise data
            with self._set_aside_if_corrupt(name):
                table = from_parquet(data)
            yield table

    # Errors of failed jobs. An error is removed when the job is tried again, and ignored once its result is stored.

    def fail(self, stage: str, key: str, error: str) -> None:
        """Record that a job failed.

        Args:
            stage: Of the job.
            key: Of the job.
            error: The error message.
        """
        self.files.write(_failure_name(stage, key), error.encode())

    def failure(self, stage: str, key: str) -> str | None:
        """Return the recorded error of a job that has not succeeded since.

        Args:
            stage: Of the job.
            key: Of the job.

        Returns:
            The error message, or None.
        """
        name = _failure_name(stage, key)
        return self.files.read(name).decode() if self.files.exists(name) and not self.has(stage, key) else None

    def failed(self) -> set[tuple[str, str]]:
        """List all recorded failures.

        Returns:
            The stage and key of each failed job.
        """
        names = (name.removesuffix(".txt").partition("-") for name in self.files.listing("failed"))
        return {(stage, key) for stage, _, key in names}

    def forgive(self, stage: str, key: str) -> None:
        """Remove the recorded failure of a job, before it is tried again.

        Args:
            stage: Of the job.
            key: Of the job.
        """
        self.files.remove(_failure_name(stage, key))

    @contextlib.contextmanager
    def _set_aside_if_corrupt(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, MemoryError):  # missing, unreachable, or too large for the memory: not damaged
            raise
        except Exception as error:
            aside = f"{name}.corrupt-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                self.files.rename(name, aside)
            where = f"{self.root}/{name}"
            log.warning("%s is damaged (%s). It was renamed to %s and will be computed again.", where, error, aside)
            raise CorruptResultError(
                f"{where} is damaged ({error}). It was set aside; run the same command again to recompute it."
            ) from error


def _suffix(stage: str) -> str:
    return "parquet" if stage == "score" else "safetensors"


def _failure_name(stage: str, key: str) -> str:
    return f"failed/{stage}-{key}.txt"
