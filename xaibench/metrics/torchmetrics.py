"""The metrics as torchmetrics: update them batch by batch, compute at the end of an epoch, across processes too.

    pip install "xaibench[torchmetrics]"

They are thin: :meth:`MeanScore.update` calls the function of this package and keeps the scores, one float64 a sample;
:meth:`MeanScore.compute` is their mean over the defined ones. So the result is that of the function on all samples at
once, to the bit, however they were split into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from xaibench.metrics import METRICS
from xaibench.metrics.inputs import mean_of_defined

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "xaibench.metrics.torchmetrics needs torchmetrics, which is not installed. "
        'Install it with: pip install "xaibench[torchmetrics]"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from xaibench.metrics.transport import Diameter


class MeanScore(Metric):
    """The mean of any metric of this package over all samples since the last reset, ``nan`` where none is defined.

    ``update`` takes what the metric takes, as tensors: ``(maps, masks)`` for one with a ground truth, ``(maps)`` for
    one of the map alone, ``(model, images, maps, targets)`` for one that asks the model.

    Args:
        metric: Registered name, or ``"package.module:name"``.
        parameters: Keyword arguments of the metric, without ``reduction``.

    Raises:
        UnknownNameError: If there is no such metric.

    Example:
        >>> mean = MeanScore("iou", {"threshold": 0.5})
        >>> mean.update(torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]]))
        >>> mean.update(torch.tensor([[0.1, 0.8]]), torch.tensor([[1, 0]]))
        >>> mean.compute().item(), mean.n_valid
        (0.5, 2)
    """

    is_differentiable = False
    full_state_update = False
    scores: list[Tensor] | Tensor

    def __init__(self, metric: str, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._function = METRICS.resolve(metric)
        self._parameters = dict(parameters or {})
        self.add_state("scores", default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Direction of the metric, as it is registered; None where it does not tell."""
        info = getattr(self._function, "info", None)
        return info.higher_is_better if info else None

    @property
    def n_valid(self) -> int:
        """Number of samples with a defined score, over which the mean is taken."""
        return int((~np.isnan(self._all())).sum())

    def update(self, *inputs: Any) -> None:
        """Score a batch; see the metric's own function for shapes, undefined cases and errors."""
        scores = self._function(*inputs, **self._parameters, reduction="none")
        assert isinstance(self.scores, list)
        self.scores.append(torch.as_tensor(scores, dtype=torch.float64, device=self.device))

    def compute(self) -> Tensor:
        """The mean over the defined scores, a float64 scalar."""
        return torch.tensor(mean_of_defined(self._all()), dtype=torch.float64, device=self.device)

    def _all(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        # A list while it is collected, one tensor once the processes have been joined.
        if isinstance(self.scores, list) and not self.scores:
            return np.empty(0)
        return np.asarray(dim_zero_cat(self.scores).cpu().numpy(), dtype=np.float64)


class IoU(MeanScore):
    """Mean :func:`xaibench.metrics.iou`; ``update(maps, masks)``."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("iou", {"threshold": threshold})


class Precision(MeanScore):
    """Mean :func:`xaibench.metrics.precision`; ``update(maps, masks)``."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("precision", {"threshold": threshold})


class Recall(MeanScore):
    """Mean :func:`xaibench.metrics.recall`; ``update(maps, masks)``."""

    def __init__(self, *, threshold: float = 0.5) -> None:
        super().__init__("recall", {"threshold": threshold})


class F1(MeanScore):
    """Mean :func:`xaibench.metrics.f1`; ``update(maps, masks)``."""

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__("f1", {"threshold": threshold})


class Hit(MeanScore):
    """Accuracy in the pointing game, :func:`xaibench.metrics.hit`; ``update(maps, masks)``."""

    def __init__(self, *, tolerance: float = 0) -> None:
        super().__init__("hit", {"tolerance": tolerance})


class TopKPrecision(MeanScore):
    """Mean :func:`xaibench.metrics.topk_precision`; ``update(maps, masks)``."""

    def __init__(self) -> None:
        super().__init__("topk_precision")


class MassAccuracy(MeanScore):
    """Mean :func:`xaibench.metrics.mass_accuracy`; ``update(maps, masks)``."""

    def __init__(self) -> None:
        super().__init__("mass_accuracy")


class EMD(MeanScore):
    """Mean :func:`xaibench.metrics.emd`; ``update(maps, masks)``."""

    def __init__(self) -> None:
        super().__init__("emd")


class EMDPerformance(MeanScore):
    """Mean :func:`xaibench.metrics.emd_perf`; ``update(maps, masks)``."""

    def __init__(self, *, diameter: Diameter = "image") -> None:
        super().__init__("emd_perf", {"diameter": diameter})


class AUC(MeanScore):
    """Mean :func:`xaibench.metrics.auc`; ``update(maps, masks)``."""

    def __init__(self) -> None:
        super().__init__("auc")


class AveragePrecision(MeanScore):
    """Mean :func:`xaibench.metrics.average_precision`; ``update(maps, masks)``."""

    def __init__(self) -> None:
        super().__init__("average_precision")


class Sparseness(MeanScore):
    """Mean :func:`xaibench.metrics.sparseness`; ``update(maps)``."""

    def __init__(self) -> None:
        super().__init__("sparseness")


class Complexity(MeanScore):
    """Mean :func:`xaibench.metrics.complexity`; ``update(maps)``."""

    def __init__(self) -> None:
        super().__init__("complexity")
