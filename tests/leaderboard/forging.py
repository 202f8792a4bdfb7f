"""A result as a careful forger would write it."""

import io
import json

import pyarrow.parquet as pq
from PIL import Image

from xaibench.leaderboard.manifest import RESULT
from xaibench.leaderboard.scores import _PICTURE, read_picture


def with_text(folder, **changes):
    """The folder, with other entries in ``result.json``."""
    file = folder / RESULT
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def with_scores(folder, change=lambda table: table, picture=None):
    """The folder, with other rows and another picture in ``scores.parquet``."""
    file = folder / "scores.parquet"
    picture = read_picture(folder) if picture is None else picture
    table = change(pq.read_table(file)).replace_schema_metadata()
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_PICTURE: picture})
    return folder


def png(size):
    """A PNG file with a black picture."""
    content = io.BytesIO()
    Image.new("L", size).save(content, "PNG")
    return content.getvalue()
