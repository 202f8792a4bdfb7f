"""Columns of Parquet files, read within a bound on memory: in a forged file, many rows can share one stored value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from xaibench.data.disk.file_readers import check_size, largest_size, wrap_file_errors

#: Bytes of a number in memory, by its type in the file; of text and bytes, those of its place.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
#: Bytes of a row in the lists and objects of Python that are made of it.
_ROW = 100
#: Rows that are read at a time, if they are small.
_ROWS = 1000


def check_columns(opened: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Check how much memory some columns of a file can take.

    Args:
        opened: The file.
        columns: Names of the columns.

    Returns:
        Number of rows that can be read at a time.

    Raises:
        ContentSizeError: If they take more than :func:`~xaibench.data.disk.file_readers.check_size` allows.
    """
    # Damaged metadata of a column stops the process when they are looked up, but are an error of a scan, which keeps
    # no value.
    opened.scan_contents(list(columns))
    stated = opened.metadata
    rows, values, size, longest = stated.num_rows, 0, 0, 1
    for group in range(stated.num_row_groups):
        for number in range(stated.num_columns):
            leaf = stated.schema.column(number)
            if leaf.path.split(".")[0] not in columns:
                continue
            chunk = stated.row_group(group).column(number)
            values += chunk.num_values
            size += _WIDTHS.get(chunk.physical_type, leaf.length) * chunk.num_values
            if chunk.physical_type == "BYTE_ARRAY":  # any of its values may be the whole chunk
                size += chunk.total_uncompressed_size * (chunk.num_values if leaf.max_repetition_level else 1)
                longest = max(longest, chunk.total_uncompressed_size)
    check_size(_ROW * rows, f"{rows:,} rows")
    check_size(size, f"{values:,} values in {rows:,} rows")
    return max(1, min(_ROWS, int(largest_size() / longest)))


def read_columns(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """Read some columns of Parquet files with equal columns into memory, as one table.

    Raises:
        MissingDataError: If a file does not exist.
        DataFileError: If one is damaged, or together they have more content than may be read.
    """
    tables, size, rows = [], 0, 0
    for file in files:
        with wrap_file_errors(file), pq.ParquetFile(file) as opened:
            batches = []
            for batch in opened.iter_batches(check_columns(opened, columns), columns=list(columns)):
                batches.append(batch)
                size, rows = size + batch.nbytes + _ROW * len(batch), rows + len(batch)
                check_size(size, f"{rows:,} rows or more")
            schema = pa.schema([opened.schema_arrow.field(name) for name in columns])
            tables.append(pa.Table.from_batches(batches, schema))
    return pa.concat_tables(tables)
