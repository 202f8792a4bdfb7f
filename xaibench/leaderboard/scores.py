"""``scores.parquet`` of a result: written in few bytes, and read before it has been checked.

Its metadata have a picture of the first maps (PNG).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.leaderboard.manifest import ResultError, describe_error
from xaibench.runfolder.schema import SCORES, missing_values

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Largest size of the file in bytes, number of row groups, and bytes after decompression: per row, and of all texts.
_MAX_BYTES, _MAX_GROUPS, _BYTES_PER_ROW, _MAX_TEXT_BYTES = 100 << 20, 1000, 100, 1 << 20
#: Largest number of characters of a text.
_MAX_TEXT = 1000
#: Stored scores are multiples of this. Rounding changes a score by at most 3e-8, far less than the tolerance of a
#: verification, and halves the size of the file.
STEP = 2.0**-24
#: Key of the picture in the metadata of the file.
_PICTURE = "maps.png"
#: Level of compression: small before fast, because a file is written once and kept in a repository.
_LEVEL = 19


def round_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scores to multiples of :data:`STEP`, as they are stored.

    Example:
        >>> round_scores(np.array([0.1, 1.0, np.nan])) - [0.1, 1.0, 0.0]
        array([2.38418579e-08, 0.00000000e+00,            nan])
    """
    return np.asarray(np.rint(values / STEP) * STEP, dtype=np.float64)


def write_scores(scores: pa.Table, folder: Path, picture: bytes) -> None:
    """Write ``scores.parquet`` of a result, rounded to multiples of :data:`STEP`.

    Args:
        scores: The scores of one method, with the columns of :data:`xaibench.runfolder.schema.SCORES`.
        folder: Folder of the result.
        picture: A PNG file with the first maps; empty for none.
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
        if picture:
            file.add_key_value_metadata({_PICTURE: picture})


def read_scores(folder: Path, most: int, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read ``scores.parquet`` of a result, which may come from a stranger.

    Args:
        folder: Folder of the result.
        most: Largest accepted number of rows. A file of a few kilobytes can claim any number.
        columns: The columns to read; None = all.

    Returns:
        The scores; text as categories. Results of older versions have ``scored`` under the name ``correct``; what the
        networks answered is missing.

    Raises:
        ResultError: If the file is missing or damaged, has too many rows, other columns, or missing values.
    """
    import pyarrow as pa

    file = folder / SCORES.name
    with _open(file) as parquet:
        rows, groups = parquet.metadata.num_rows, parquet.metadata.num_row_groups
        size = sum(parquet.metadata.row_group(number).total_byte_size for number in range(min(groups, _MAX_GROUPS)))
        if rows > most or groups > _MAX_GROUPS or size > _BYTES_PER_ROW * rows + _MAX_TEXT_BYTES:
            raise ResultError(
                f"{file} has {rows:,} rows of {size:,} bytes in {groups:,} row groups; expected at most {most:,} rows "
                f"of {_BYTES_PER_ROW} bytes in {_MAX_GROUPS} groups."
            )
        kinds = {field.name: field.type for field in parquet.schema_arrow}
        text = dict.fromkeys(SCORES.text, pa.dictionary(pa.int32(), pa.string()))
        stored = SCORES.stored_columns(list(kinds))
        expected = {stored.get(field.name): field.type for field in SCORES.arrow_schema()} | text
        if kinds != {name: kind for name, kind in expected.items() if name is not None}:
            raise ResultError(f"{file} has other columns than {', '.join(SCORES.columns)}, or other types.")
        wanted = list(SCORES.columns if columns is None else columns)
        present = [name for name in wanted if name in stored]
        table = parquet.read([stored[name] for name in present]).unify_dictionaries().rename_columns(present)
        if missing := [name for name in table.column_names if table[name].null_count]:
            raise ResultError(f"{file} has missing values in {', '.join(missing)}.")
        frame: pd.DataFrame = table.to_pandas()
    for name in wanted:
        if name not in frame:
            frame[name] = missing_values(frame.index, SCORES.columns[name])
    texts = [each for name in text if name in frame for each in frame[name].cat.categories]
    if odd := [each for each in texts if len(each) > _MAX_TEXT or not each.isprintable()]:
        raise ResultError(
            f"{file} has the text {ascii(odd[0])[:80]}; expected at most {_MAX_TEXT} printable characters."
        )
    return frame


def read_picture(folder: Path) -> bytes:
    """Return the picture of a result, which is not checked; empty if there is none.

    Args:
        folder: Folder of the result.

    Raises:
        ResultError: If the file of the scores is missing or damaged.
    """
    with _open(folder / SCORES.name) as parquet:
        content: bytes = (parquet.metadata.metadata or {}).get(_PICTURE.encode(), b"")
    return content


@contextlib.contextmanager
def _open(file: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            raise ResultError(f"{file} is missing, or larger than {_MAX_BYTES >> 20} MiB.")
        with pq.ParquetFile(file, read_dictionary=list(SCORES.text), page_checksum_verification=True) as parquet:
            yield parquet
    except ResultError:
        raise
    except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
        raise ResultError(f"{file} cannot be read ({describe_error(error)}).") from error
