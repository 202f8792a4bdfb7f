"""The public names for authors of parts: the vocabulary of shapes, and what a part says of itself."""

from typing import TYPE_CHECKING

from xaibench.core.part_info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo, described
from xaibench.core.registry import Registry, UnknownNameError
from xaibench.core.truths import Truth
from xaibench.core.vocabulary import Output, Reduction

if TYPE_CHECKING:  # it speaks of torch, which this module does without
    from xaibench.core.vocabulary import Array as Array

__all__ = [
    "DatasetInfo",
    "ExplainerInfo",
    "MetricInfo",
    "ModelInfo",
    "Output",
    "Reduction",
    "Registry",
    "Truth",
    "UnknownNameError",
    "described",
]
