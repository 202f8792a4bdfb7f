"""Parquet files with a checksum of the whole file.

Parquet itself has checksums for data pages only. A flipped bit in the footer can drop rows or rename a column.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from xaibench.runner.store.checksums import PLACEHOLDER, has_valid_checksum, insert_checksum

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_METADATA_KEY = b"seal"


def to_parquet(table: pd.DataFrame | pa.Table) -> bytes:
    """Serialize a table as a Parquet file with a checksum. The same table always gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(arrow.replace_schema_metadata((arrow.schema.metadata or {}) | {_METADATA_KEY: PLACEHOLDER}), sink)
    return insert_checksum(sink.getvalue().to_pybytes())


def from_parquet(data: bytes) -> pa.Table:
    """Read a table from the bytes written by :func:`to_parquet`.

    Raises:
        ValueError: If the bytes have changed.
    """
    import pyarrow.parquet as pq

    if not has_valid_checksum(data):
        raise ValueError("the checksum of the file does not match")
    with pq.ParquetFile(io.BytesIO(data)) as file:
        table = file.read(use_threads=False)
    notes = {name: value for name, value in (table.schema.metadata or {}).items() if name != _METADATA_KEY}
    return table.replace_schema_metadata(notes or None)
