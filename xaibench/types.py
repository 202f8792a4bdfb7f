"""The public names for authors of parts: the vocabulary of shapes, and what a part says of itself."""

from xaibench.core.part_info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo, described
from xaibench.core.registry import Registry, UnknownNameError
from xaibench.core.vocabulary import Array, Output, Reduction

__all__ = [
    "Array",
    "DatasetInfo",
    "ExplainerInfo",
    "MetricInfo",
    "ModelInfo",
    "Output",
    "Reduction",
    "Registry",
    "UnknownNameError",
    "described",
]
