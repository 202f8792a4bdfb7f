"""Data sets with known ground truth: the pixels that a correct attribution map highlights.

Functions that read and write files are imported on first use (PEP 562), because they need pyarrow.
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.lazy_names import load_public_name
from xaibench.data.base import Dataset, Split
from xaibench.data.loaders import load, loading
from xaibench.data.part_split import PartSplit
from xaibench.data.table import DATASETS

if TYPE_CHECKING:
    from xaibench.data.exchange.datasets_library import from_datasets, to_datasets
    from xaibench.data.exchange.parquet import read_parquet, write_parquet
    from xaibench.data.image_collection import ImageCollection, open_images
    from xaibench.data.whitening import whiten

__all__ = [
    "DATASETS",
    "Dataset",
    "ImageCollection",
    "PartSplit",
    "Split",
    "from_datasets",
    "load",
    "loading",
    "open_images",
    "read_parquet",
    "to_datasets",
    "whiten",
    "write_parquet",
]

_HOME = {
    "ImageCollection": "image_collection",
    "from_datasets": "exchange.datasets_library",
    "open_images": "image_collection",
    "read_parquet": "exchange.parquet",
    "to_datasets": "exchange.datasets_library",
    "whiten": "whitening",
    "write_parquet": "exchange.parquet",
}


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
