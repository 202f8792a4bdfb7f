"""Data sets whose ground truth is known: what a right saliency map must mark."""

from xaibench.data.dataset import Dataset, Split
from xaibench.data.huggingface import to_datasets
from xaibench.data.loaders import DATASETS, load, loading
from xaibench.data.paper import paper_accuracy, paper_alpha

__all__ = ["DATASETS", "Dataset", "Split", "load", "loading", "paper_accuracy", "paper_alpha", "to_datasets"]
