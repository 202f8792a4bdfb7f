"""Log of finished jobs with their cost: ``jobs.csv`` of the run folder."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from xaibench.runfolder.tables import JOBS
from xaibench.runner.plan.job_base import Outcome
from xaibench.runner.store.store_files import StoreError, writing


class JobLog:
    """Writer that appends one line per finished job. Used as a context manager.

    Args:
        folder: The run folder.

    Attributes:
        outcomes: The outcomes of this run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOBS.name
        self.outcomes: list[Outcome] = []
        self._file: TextIO

    def add(self, outcome: Outcome) -> None:
        """Append one line and flush it, so that a later crash does not lose it.

        Raises:
            StoreError: If the disk is full.
        """
        job = outcome.job
        self.outcomes.append(outcome)
        line = {
            "stage": job.stage,
            "key": job.key,
            **job.about(),
            "seconds": f"{outcome.seconds:.4f}",
            "cpu_seconds": f"{outcome.cpu_seconds:.4f}",
            "peak_mb": f"{outcome.peak_mb:.0f}",
            "worker": outcome.worker,
            "failed": int(bool(outcome.error) and not outcome.inapplicable),
        }
        self._write_line([line[name] for name in JOBS.columns])

    def _write_line(self, values: Iterable[object]) -> None:
        with writing(self._path):
            csv.writer(self._file, lineterminator="\n").writerow(values)
            self._file.flush()

    def __enter__(self) -> JobLog:
        with writing(self._path):
            self._file = self._path.open("a", encoding="utf-8", newline="")
            last = self._last_byte()
        if not last:
            self._write_line(JOBS.columns)
        elif last != b"\n":  # an earlier run was killed while it wrote a line
            self._file.write("\n")
        return self

    def _last_byte(self) -> bytes:
        with self._path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return b""
            file.seek(-1, os.SEEK_END)
            return file.read()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with writing(self._path):
                self._file.close()
        except StoreError:
            if value is None:  # otherwise the earlier error is the one to report
                raise
