"""The store: where the result of every job lies under its key, there or not there, never half.

Tensors (data, weights, maps) are safetensors files (:mod:`.sealed_tensors`), scores are Parquet files
(:mod:`.sealed_tables`); both are sealed, so that no bit of them changes unseen. What is not as it was written is set
aside under another name and counts as not there, so that it is computed again. Where the files lie is the business of
:mod:`.store_files`.
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

from xaibench.runner.store.sealed_tables import from_parquet, to_parquet
from xaibench.runner.store.sealed_tensors import read_meta, read_tensors, to_safetensors
from xaibench.runner.store.store_files import Files, StoreError, files_at

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

__all__ = ["CorruptResultError", "Store", "StoreError", "to_parquet"]

log = logging.getLogger("xaibench")


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
        self.files.write(self.name(stage, key), to_safetensors(tensors, meta))

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
            return read_tensors(functools.partial(self.files.read, name), prefix)

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
            return read_meta(functools.partial(self.files.read, name))

    def save_table(self, stage: str, key: str, table: pd.DataFrame) -> None:
        """Keep a table as Parquet, sealed.

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
                table = from_parquet(data)
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
        except (OSError, MemoryError):  # not there, not to be reached, too large for now: no sign of damage
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
