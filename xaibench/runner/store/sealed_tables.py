"""Tables as files: Parquet, sealed as a whole.

Parquet has checksums of its own for the pages, none for the footer, where a flipped bit drops rows or renames a column.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from xaibench.runner.store.seals import BLANK, is_whole, sealed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SEAL = b"seal"


def to_parquet(table: pd.DataFrame | pa.Table) -> bytes:
    """A table as the bytes of a sealed Parquet file; the same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(arrow.replace_schema_metadata((arrow.schema.metadata or {}) | {_SEAL: BLANK}), sink)
    return sealed(sink.getvalue().to_pybytes())


def from_parquet(data: bytes) -> pa.Table:
    """The table that :func:`to_parquet` made the bytes of.

    Raises:
        ValueError: If they are not what was written.
    """
    import pyarrow.parquet as pq

    if not is_whole(data):
        raise ValueError("its checksum does not match")
    with pq.ParquetFile(io.BytesIO(data)) as file:
        table = file.read(use_threads=False)
    notes = {name: value for name, value in (table.schema.metadata or {}).items() if name != _SEAL}
    return table.replace_schema_metadata(notes or None)
