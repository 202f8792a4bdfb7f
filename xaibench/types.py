"""Public types for authors of data sets, models, explainers and metrics: info records, registry and shared types."""

from typing import TYPE_CHECKING

from xaibench.component.info import DatasetInfo, ExplainerInfo, MetricInfo, ModelInfo
from xaibench.component.registry import Registry, UnknownNameError
from xaibench.core.truth_kinds import Truth
from xaibench.core.types import Output, Reduction

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
