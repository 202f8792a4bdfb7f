"""Public types for authors of data sets, models, explainers and metrics: info records, registry and shared types."""

from typing import TYPE_CHECKING

from xaibench.core.truth_kinds import Truth
from xaibench.core.types import Output, Reduction
from xaibench.registry.info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo
from xaibench.registry.table import Registry, UnknownNameError

if TYPE_CHECKING:  # the alias refers to torch, which this module does not import
    from xaibench.core.types import Array as Array

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
]
