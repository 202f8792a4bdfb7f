"""Writing data sets to Parquet files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from xaibench.component.info import DatasetInfo
from xaibench.core.files import atomic_file
from xaibench.data.base import Dataset, Split
from xaibench.data.exchange.parquet_columns import (
    below_one_another,
    encode_pictures,
    encode_previews,
    nest,
    to_eight_bit,
)
from xaibench.data.exchange.parquet_format import HUB_SPLITS, Layout, columns, list_set_files, make_metadata

_GROUP_BYTES = 32_000_000
_GROUP_ROWS = 1000

# Dictionary encoding only helps for repeated values, so not for images. The page index lets the Hub viewer read single
# pages.
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["target"],
    "write_page_checksum": True,
    "write_page_index": True,
}


class _NotEightBitError(Exception):
    """An image is not 8-bit values over 255."""


def write_parquet(
    dataset: Dataset, folder: str | os.PathLike[str], *, max_file_bytes: int = 500_000_000
) -> tuple[Path, ...]:
    """Write a data set as Parquet files; :func:`~xaibench.data.read_parquet` returns it bit-identical.

    Args:
        dataset: The data set. Splits on disk are read in batches; metadata other than image, mask and target (file
            names, patients) are not written.
        folder: The folder in which ``data/`` is created. Files are written atomically; files of an earlier data set are
            removed.
        max_file_bytes: Approximate size of a file before compression; larger splits are divided into several files.

    Returns:
        The files.

    Raises:
        TypeError: If a parameter of the data set cannot be written as JSON.
        OSError: If the folder is not writable.

    Example:
        >>> import tempfile
        >>> from xaibench.data import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = write_parquet(load("xai-tris/xor-corr-8x8", n_samples=100), folder)
        ...     load(f"parquet:{folder}")
        Dataset('xai-tris/xor-corr-8x8', train=80, val=10, test=10, seed=0, alpha=0.15, n_samples=100, \
split=(0.8, 0.1, 0.1))
        >>> [file.name for file in files]
        ['train-00000-of-00001.parquet', 'validation-00000-of-00001.parquet', 'test-00000-of-00001.parquet']
    """
    place = Path(folder) / "data"
    place.mkdir(parents=True, exist_ok=True)
    try:
        files = _write(dataset, place, "png", max_file_bytes)
    except _NotEightBitError:
        files = _write(dataset, place, "float32", max_file_bytes)
    for other in list_set_files(place):
        if other not in files:
            other.unlink()
    return tuple(files)


def hub_features(info: DatasetInfo, layout: Layout) -> dict[str, dict[str, Any]]:
    """Return the columns in the format of ``datasets.Features.to_dict()``."""
    picture = {"_type": "Image"}
    target = {"names": list(info.classes), "_type": "ClassLabel"}
    if layout == "png":
        return {"image": picture, "mask": picture, "target": target}
    image = {"shape": list(info.image_shape), "dtype": "float32", "_type": f"Array{len(info.image_shape)}D"}
    return {"image": image, "mask": picture, "target": target, "preview": picture}


def layout_of(files: Sequence[Path]) -> Layout:
    """Return how the images in these files are stored."""
    return "png" if pa.types.is_struct(pq.read_schema(files[0]).field("image").type) else "float32"


def _write(dataset: Dataset, place: Path, layout: Layout, max_file_bytes: int) -> list[Path]:
    metadata = {
        "huggingface": json.dumps({"info": {"features": hub_features(dataset.info, layout)}}),
        "xaibench": make_metadata(dataset),
    }
    schema = pa.schema(list(columns(layout, len(dataset.info.image_shape)).items()), metadata=metadata)
    sample_bytes = math.prod(dataset.info.image_shape) * (4 if layout == "float32" else 1)
    per_file = max(1, max_file_bytes // sample_bytes)
    per_group = max(1, min(_GROUP_ROWS, _GROUP_BYTES // sample_bytes))
    files = []
    for name, theirs in HUB_SPLITS.items():
        split: Split = getattr(dataset, name)
        starts = range(0, max(1, len(split)), per_file)
        for number, start in enumerate(starts):
            file = place / f"{theirs}-{number:05}-of-{len(starts):05}.parquet"
            stop = min(start + per_file, len(split))
            with atomic_file(file) as stream, pq.ParquetWriter(stream, schema, **_OPTIONS) as writer:
                for first in range(start, stop, per_group):
                    part = split[first : min(first + per_group, stop)]
                    writer.write_table(pa.table(_make_columns(part, layout), schema=schema))
            files.append(file)
    return files


def _make_columns(part: tuple[Tensor, Tensor, Tensor], layout: Layout) -> list[pa.Array]:
    images, masks, targets = part
    marked = encode_pictures((below_one_another(masks).to(torch.uint8) * 255)[..., None].numpy())
    labels = pa.array(targets.numpy())
    if layout == "float32":
        return [nest(images.numpy()), marked, labels, encode_previews(below_one_another(images))]
    values = to_eight_bit(images)
    if values is None:
        raise _NotEightBitError
    return [encode_pictures(values), marked, labels]
