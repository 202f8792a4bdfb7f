"""Data sets whose ground truth is known: what a right saliency map must mark."""

from xaibench.data.dataset import Dataset, Split
from xaibench.data.dataset_table import DATASETS
from xaibench.data.exchange.datasets_library import to_datasets
from xaibench.data.loaders import load, loading
from xaibench.data.xai_tris.paper_cells import paper_accuracy, paper_alpha

__all__ = ["DATASETS", "Dataset", "Split", "load", "loading", "paper_accuracy", "paper_alpha", "to_datasets"]
