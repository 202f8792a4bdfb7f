"""Read the scores of a result before it has been checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xaibench.runfolder.tables import SCORES, RunFolderError

if TYPE_CHECKING:
    import pandas as pd

#: Largest number of scores of a result. A file of a few kilobytes can claim any number.
MAX_ROWS = 20_000_000


def read_scores(folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read ``scores.parquet`` of a result, unless it has too many rows.

    Args:
        folder: Folder of the result.
        columns: The columns to read; None = all.

    Raises:
        RunFolderError: If the file is missing or damaged, or has more than :data:`MAX_ROWS` rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / SCORES.name
    try:
        rows = pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        raise RunFolderError(f"{file} cannot be read ({error}).") from error
    if rows > MAX_ROWS:
        raise RunFolderError(f"{file} has {rows:,} rows; expected at most {MAX_ROWS:,}.")
    return SCORES.read(folder, columns)
