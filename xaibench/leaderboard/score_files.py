"""``scores.parquet`` of a result: written in few bytes, and read before it has been checked.

Its metadata have the manifest of the result (JSON) and a picture of the first maps (PNG), so that a result is one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.runfolder.tables import SCORES, RunFolderError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Largest number of scores of a result. A file of a few kilobytes can claim any number.
MAX_ROWS = 20_000_000
#: Stored scores are multiples of this. Rounding changes a score by at most 3e-8, far less than the tolerance of a
#: verification, and halves the size of the file.
STEP = 2.0**-24
#: Keys of the manifest and of the picture in the metadata of the file.
MANIFEST, PICTURE = "xaibench-result", "maps.png"
#: Level of compression: small before fast, because a file is written once and kept in a repository.
_LEVEL = 19


def round_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scores to multiples of :data:`STEP`, as they are stored.

    Example:
        >>> round_scores(np.array([0.1, 1.0, np.nan])) - [0.1, 1.0, 0.0]
        array([2.38418579e-08, 0.00000000e+00,            nan])
    """
    return np.asarray(np.rint(values / STEP) * STEP, dtype=np.float64)


def write_scores(scores: pa.Table, folder: Path, notes: Mapping[str, bytes]) -> None:
    """Write ``scores.parquet`` of a result, rounded to multiples of :data:`STEP`.

    Args:
        scores: The scores of one method, with the columns of :data:`xaibench.runfolder.tables.SCORES`.
        folder: Folder of the result.
        notes: Metadata of the file: :data:`MANIFEST` and, if there is a picture, :data:`PICTURE`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array(round_scores(scores["value"].to_numpy()))
    scores = scores.set_column(scores.column_names.index("value"), "value", values)
    scores = scores.replace_schema_metadata()
    with pq.ParquetWriter(
        folder / SCORES.name,
        scores.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in scores.column_names if name != "value"],
        column_encoding={"value": "BYTE_STREAM_SPLIT"},
        write_page_checksum=True,
        store_schema=False,  # 1,400 bytes that say nothing more than the columns
    ) as file:
        file.write_table(scores)
        file.add_key_value_metadata(dict(notes))


def read_scores(folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read ``scores.parquet`` of a result, unless it has too many rows.

    Args:
        folder: Folder of the result.
        columns: The columns to read; None = all.

    Raises:
        RunFolderError: If the file is missing or damaged, or has more than :data:`MAX_ROWS` rows.
    """
    if (rows := _read_metadata(folder).num_rows) > MAX_ROWS:
        raise RunFolderError(f"{folder / SCORES.name} has {rows:,} rows; expected at most {MAX_ROWS:,}.")
    return SCORES.read(folder, columns)


def read_note(folder: Path, name: str) -> bytes:
    """Return the manifest or the picture of a result, which is not checked; empty if there is none.

    Args:
        folder: Folder of the result.
        name: :data:`MANIFEST` or :data:`PICTURE`.

    Raises:
        RunFolderError: If the file of the scores is missing or damaged.
    """
    found: bytes = (_read_metadata(folder).metadata or {}).get(name.encode(), b"")
    return found


def _read_metadata(folder: Path) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(folder / SCORES.name)
    except (OSError, ValueError, pa.ArrowException) as error:  # a name of a column may not be UTF-8
        raise RunFolderError(f"{folder / SCORES.name} cannot be read ({error}).") from error


def metric_means(folder: Path) -> pd.DataFrame:
    """Return the mean score of each metric over the correctly classified samples, each cell counting once.

    Args:
        folder: Folder of a result.

    Returns:
        Indexed by metric, with the columns ``mean``, ``cells`` and ``higher_is_better``.
    """
    scores = read_scores(folder, ["dataset", "model", "metric", "value", "correct", "higher_is_better"])
    scores = scores[scores["correct"]].astype({"metric": str})
    cells = scores.groupby(["metric", "dataset", "model"], observed=True)["value"].mean().dropna()
    found = cells.groupby("metric", sort=False).agg(["mean", "count"])
    upwards = scores.groupby("metric")["higher_is_better"].first()
    return found.rename(columns={"count": "cells"}).join(upwards)
