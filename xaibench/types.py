"""Public types for authors of data sets, models, explainers and metrics: info records, registry and shared types."""

from typing import TYPE_CHECKING

from xaibench.core.part_info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo, described
from xaibench.core.registry import Registry, UnknownNameError
from xaibench.core.truth_kinds import Truth
from xaibench.core.vocabulary import Output, Reduction

if TYPE_CHECKING:  # the alias refers to torch, which this module does not import
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
