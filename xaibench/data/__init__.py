"""Data sets with known ground truth: the pixels that a correct attribution map highlights.

Functions that read and write files are imported on first use (PEP 562), because they need pyarrow.
"""

from typing import TYPE_CHECKING, Any

from xaibench.benchmarks.xai_tris.published_accuracy import paper_accuracy, paper_alpha
from xaibench.core.lazy_names import load_public_name
from xaibench.data.base import Dataset, Split
from xaibench.data.exchange.datasets_library import to_datasets
from xaibench.data.loaders import load, loading
from xaibench.data.table import DATASETS

if TYPE_CHECKING:
    from xaibench.benchmarks.certified.planted_triggers import checkerboard, plant_trigger
    from xaibench.benchmarks.mosaics.image_grids import mosaics, sure_of
    from xaibench.benchmarks.xai_tris.released_pickles import read_released, write_released
    from xaibench.data.exchange.parquet_reading import read_parquet
    from xaibench.data.exchange.parquet_writing import write_parquet

__all__ = [
    "DATASETS",
    "Dataset",
    "Split",
    "checkerboard",
    "load",
    "loading",
    "mosaics",
    "paper_accuracy",
    "paper_alpha",
    "plant_trigger",
    "read_parquet",
    "read_released",
    "sure_of",
    "to_datasets",
    "write_parquet",
    "write_released",
]

_HOME = {
    "checkerboard": "certified.planted_triggers",
    "mosaics": "certified.image_grids",
    "plant_trigger": "certified.planted_triggers",
    "read_parquet": "exchange.parquet_reading",
    "read_released": "xai_tris.released_pickles",
    "sure_of": "certified.image_grids",
    "write_parquet": "exchange.parquet_writing",
    "write_released": "xai_tris.released_pickles",
}


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
