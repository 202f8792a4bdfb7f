"""What each job cost, written down as it ends: ``jobs.csv`` of the run folder."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from xaibench.runfolder.tables import JOBS
from xaibench.runner.engines.local_engines import Outcome


class Records:
    """Appends a line for each outcome; used as a context manager.

    Args:
        folder: The run folder.

    Attributes:
        outcomes: Those of this run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOBS.name
        self.outcomes: list[Outcome] = []
        self._file: TextIO

    def add(self, outcome: Outcome) -> None:
        """Write one line, at once: what comes after may be a crash."""
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
            "failed": int(bool(outcome.error)),
        }
        self._line([line[name] for name in JOBS.columns])

    def _line(self, values: Iterable[object]) -> None:
        csv.writer(self._file, lineterminator="\n").writerow(values)
        self._file.flush()

    def __enter__(self) -> Records:
        before = self._path.read_bytes() if self._path.exists() else b""
        self._file = self._path.open("a", encoding="utf-8", newline="")
        if not before:
            self._line(JOBS.columns)
        elif not before.endswith(b"\n"):  # a run was killed within a line
            self._file.write("\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
