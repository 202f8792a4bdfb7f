"""Classes of the metrics with a ground truth, and of those of the map alone.

``update(maps, masks)`` and ``update(maps)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xaibench.metrics.torchmetrics.class_bases import MapScore, TruthScore

if TYPE_CHECKING:
    from xaibench.metrics.truth.earth_mover import Diameter


class IoU(TruthScore):
    """Mean :func:`xaibench.metrics.iou`; the parameters are its."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("iou", {"threshold": threshold})


class Precision(TruthScore):
    """Mean :func:`xaibench.metrics.precision`; the parameters are its."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("precision", {"threshold": threshold})


class Recall(TruthScore):
    """Mean :func:`xaibench.metrics.recall`; the parameters are its."""

    def __init__(self, *, threshold: float = 0.5) -> None:
        super().__init__("recall", {"threshold": threshold})


class F1(TruthScore):
    """Mean :func:`xaibench.metrics.f1`; the parameters are its."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("f1", {"threshold": threshold})


class Hit(TruthScore):
    """Accuracy in the pointing game, :func:`xaibench.metrics.hit`; the parameters are its."""

    def __init__(self, *, tolerance: float = 0) -> None:
        super().__init__("hit", {"tolerance": tolerance})


class TopKPrecision(TruthScore):
    """Mean :func:`xaibench.metrics.topk_precision`."""

    def __init__(self) -> None:
        super().__init__("topk_precision")


class MassAccuracy(TruthScore):
    """Mean :func:`xaibench.metrics.mass_accuracy`."""

    def __init__(self) -> None:
        super().__init__("mass_accuracy")


class EMD(TruthScore):
    """Mean :func:`xaibench.metrics.emd`."""

    def __init__(self) -> None:
        super().__init__("emd")


class EMDPerformance(TruthScore):
    """Mean :func:`xaibench.metrics.emd_perf`; the parameters are its."""

    def __init__(self, *, diameter: Diameter = "image") -> None:
        super().__init__("emd_perf", {"diameter": diameter})


class AUC(TruthScore):
    """Mean :func:`xaibench.metrics.auc`."""

    def __init__(self) -> None:
        super().__init__("auc")


class AveragePrecision(TruthScore):
    """Mean :func:`xaibench.metrics.average_precision`."""

    def __init__(self) -> None:
        super().__init__("average_precision")


class Sparseness(MapScore):
    """Mean :func:`xaibench.metrics.sparseness`."""

    def __init__(self) -> None:
        super().__init__("sparseness")


class Complexity(MapScore):
    """Mean :func:`xaibench.metrics.complexity`."""

    def __init__(self) -> None:
        super().__init__("complexity")
