"""What each job cost, written down as it ends: ``jobs.csv`` of the run folder."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from xaibench.runner.engines.local_engines import Outcome

if TYPE_CHECKING:
    import pandas as pd

#: The columns of ``jobs.csv``. A job that was run again stands there again.
COLUMNS = (
    *("stage", "key", "dataset", "data_seed", "model", "explainer", "metric"),
    *("seconds", "cpu_seconds", "peak_mb", "worker", "failed"),
)

NAME = "jobs.csv"


class Records:
    """Appends a line for each outcome; used as a context manager.

    Args:
        folder: The run folder.

    Attributes:
        outcomes: Those of this run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.outcomes: list[Outcome] = []
        self._file: TextIO

    def add(self, outcome: Outcome) -> None:
        """Write one line, at once: what comes after may be a crash."""
        job = outcome.job
        self.outcomes.append(outcome)
        cost = (f"{outcome.seconds:.4f}", f"{outcome.cpu_seconds:.4f}", f"{outcome.peak_mb:.0f}", outcome.worker)
        self._line((job.stage, job.key, *job.about().values(), *cost, int(bool(outcome.error))))

    def _line(self, values: tuple[object, ...]) -> None:
        csv.writer(self._file, lineterminator="\n").writerow(values)
        self._file.flush()

    def __enter__(self) -> Records:
        before = self._path.read_bytes() if self._path.exists() else b""
        self._file = self._path.open("a", encoding="utf-8", newline="")
        if not before:
            self._line(COLUMNS)
        elif not before.endswith(b"\n"):  # a run was killed within a line
            self._file.write("\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_records(folder: Path) -> pd.DataFrame:
    """The costs of all jobs that were run for a run folder, ``COLUMNS``; empty when there are none.

    Lines that a crash cut short are left out.
    """
    import pandas as pd

    path = folder / NAME
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.read_csv(path, on_bad_lines="skip", keep_default_na=False, dtype=str)
    table = table[table["failed"].isin(("0", "1"))]
    numbers = dict.fromkeys(("seconds", "cpu_seconds", "peak_mb"), float) | {"failed": int}
    return table.astype(numbers).reset_index(drop=True)
