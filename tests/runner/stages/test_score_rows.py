"""The cache of merged scores: damaged or outdated cells are merged again."""

import pyarrow as pa

from xaibench.runfolder.tables import SCORES
from xaibench.runner.stages import score_rows as merged_scores


def test_every_flipped_bit_of_a_merged_cell_is_found(tmp_path):
    """This includes the footer, where a flipped bit can drop rows, rename a column or cause a pyarrow error."""
    path, schema = tmp_path / "cell.parquet", SCORES.arrow_schema()
    values = [["x"] if pa.types.is_string(field.type) else [1] for field in schema]
    table = pa.table([pa.array(value).cast(field.type) for value, field in zip(values, schema, strict=True)], schema)
    merged_scores._write_merged(path, "1", table)
    assert merged_scores._read_merged(path, "1").equals(table)
    assert merged_scores._read_merged(path, "2") is None
    sound = path.read_bytes()
    for bit in range(0, 8 * len(sound), 23):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert merged_scores._read_merged(path, "1") is None, f"bit {bit}"
