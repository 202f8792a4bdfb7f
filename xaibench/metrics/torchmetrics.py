"""The metrics as torchmetrics classes: update batch by batch, compute at the end of an epoch, also across processes.

    pip install "xaibench[torchmetrics]"

``update`` calls the function of :mod:`xaibench.metrics` and stores its scores, one float64 per sample. ``compute``
returns the mean of the defined scores. The result is that of the function on all samples at once, regardless of how
they were split into batches (bit-identical for metrics that do not call a model). Each class takes the parameters of
its function, and every metric of the table has a class.

``update`` takes the inputs of the function, by position or by name. By name, metrics of all kinds share one collection,
which passes to each metric the inputs that it takes:

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
"""

from __future__ import annotations

import hashlib
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from xaibench.core.checks import check_names
from xaibench.core.types import Floats
from xaibench.metrics.registered import METRICS
from xaibench.metrics.shared.inputs import mean_of_defined
from xaibench.registry.info import MetricInfo

if TYPE_CHECKING:
    from xaibench.metrics.shared.explainer_calls import ExplainerFunction
    from xaibench.metrics.shared.model_scores import Model

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "xaibench.metrics.torchmetrics needs torchmetrics, which is not installed. "
        'Install it with: pip install "xaibench[torchmetrics]".',
        name=missing.name,
    ) from missing


class MeanScore(Metric):
    """Mean of any metric of this package over all samples since the last reset, NaN if none is defined.

    ``update`` takes the inputs of the metric by position. The subclasses for each kind of metric also take them by
    name.

    Args:
        metric: Registered name, or ``"package.module:name"``.
        parameters: Keyword arguments of the metric, without ``reduction``.

    Raises:
        UnknownNameError: If the metric is unknown.

    Example:
        >>> mean = MeanScore("iou", {"threshold": 0.5})
        >>> mean.update(torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]]))
        >>> mean.update(torch.tensor([[0.1, 0.8]]), torch.tensor([[1, 0]]))
        >>> mean.compute().item(), mean.n_valid
        (0.5, 2)
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, metric: str, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._function = METRICS.resolve(metric)
        # Not _parameters, which is the registry of torch.nn.Module.
        self._arguments = dict(parameters or {})
        # A MetricCollection groups metrics whose states have equal names and, after the first batch, equal values, and
        # then updates only one of them. IoU and precision of positive maps may be equal, so state names must differ.
        self._state = f"scores_{_digest(METRICS.target(metric), self._arguments)}"
        self.add_state(self._state, default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Direction of the metric; None if it has no info."""
        info = getattr(self._function, "info", None)
        return info.higher_is_better if info else None

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> Any:
        """Plot the mean, or a sequence of means such as one per epoch. This needs matplotlib.

        Args:
            val: Results of :meth:`compute`; None = its current result.
            ax: Axes of matplotlib to draw into; None = a new figure.

        Returns:
            The figure and its axes.

        Raises:
            ModuleNotFoundError: If matplotlib is not installed.
        """
        return self._plot(val, ax)

    @property
    def scores(self) -> Tensor:
        """Scores of all samples since the last reset, float64, NaN where undefined."""
        collected = getattr(self, self._state)
        # A list during collection, one tensor after synchronization between processes.
        if isinstance(collected, list) and not collected:
            return torch.empty(0, dtype=torch.float64, device=self.device)
        joined: Tensor = dim_zero_cat(collected)
        return joined

    @property
    def n_valid(self) -> int:
        """Number of samples with a defined score."""
        return int((~self.scores.isnan()).sum())

    def update(self, *inputs: Any) -> None:
        """Score a batch; see the metric's function for shapes, undefined cases and errors.

        Args:
            *inputs: Inputs of the metric, in its order.
        """
        # Tensors among the parameters, such as a baseline image, follow the inputs to their device.
        device = next((one.device for one in inputs if isinstance(one, Tensor)), self.device)
        arguments = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in self._arguments.items()
        }
        scores = self._function(*inputs, **arguments, reduction="none")
        getattr(self, self._state).append(torch.as_tensor(scores, dtype=torch.float64, device=self.device))

    def compute(self) -> Tensor:
        """Return the mean since the last reset.

        Returns:
            Mean of the defined scores, a float64 scalar; NaN if none is defined.
        """
        scores: Floats = self.scores.cpu().numpy()
        return torch.tensor(mean_of_defined(scores), dtype=torch.float64, device=self.device)


class TruthScore(MeanScore):
    """Mean of a metric with a ground truth."""

    def update(self, maps: Tensor, masks: Tensor) -> None:
        """Score a batch of maps against their masks.

        Args:
            maps: ``[N, H, W]``.
            masks: ``[N, H, W]``, binary, ``True`` = important.
        """
        super().update(maps, masks)


class MapScore(MeanScore):
    """Mean of a metric of the map alone."""

    def update(self, maps: Tensor) -> None:
        """Score a batch of maps.

        Args:
            maps: ``[N, H, W]``.
        """
        super().update(maps)


class ModelScore(MeanScore):
    """Mean of a metric that calls the model."""

    def update(self, model: Model, images: Tensor, maps: Tensor, targets: Tensor) -> None:
        """Score a batch of maps by the model's scores for changed images.

        Args:
            model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
            images: ``[N, C, H, W]``.
            maps: ``[N, H, W]``.
            targets: ``[N]``.
        """
        super().update(model, images, maps, targets)


class ExplainerScore(MeanScore):
    """Mean of a metric that calls the explainer."""

    def update(self, explainer: ExplainerFunction, model: torch.nn.Module, images: Tensor, targets: Tensor) -> None:
        """Score an explainer on a batch.

        Args:
            explainer: ``(model, images, targets) -> maps [N, H, W]``.
            model: The explained network.
            images: ``[N, C, H, W]``.
            targets: ``[N]``.
        """
        super().update(explainer, model, images, targets)


def _digest(target: str, parameters: Mapping[str, Any]) -> str:
    """Return a hash of a metric and its parameters, including the values of tensors and arrays."""
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in parameters.items()}
    return hashlib.sha256(repr((target, sorted(plain.items()))).encode()).hexdigest()[:16]


_BASES: dict[str, type[MeanScore]] = {
    "ground-truth": TruthScore,
    "map": MapScore,
    "model": ModelScore,
    "explainer": ExplainerScore,
}
#: Parameters that determine the form of a function's result; here it is always one score per sample.
_OF_FORM = ("reduction", "return_curves", "exact")


def class_name(metric: str) -> str:
    """Return the class name of a metric: from its info, otherwise its name in CamelCase.

    Example:
        >>> class_name("mass_accuracy"), class_name("iou")
        ('MassAccuracy', 'IoU')
    """
    info: MetricInfo = METRICS.resolve(metric).info
    return info.class_name or "".join(word.capitalize() for word in metric.split("_"))


def make_class(metric: str, module: str) -> type[MeanScore]:
    """Create the class of a registered metric.

    Args:
        metric: Name of the metric.
        module: Module in which the class can be found by its name, which pickling needs.

    Returns:
        A subclass of the base class for its kind, with the keyword parameters of the function.
    """
    function = METRICS.resolve(metric)
    name, base = class_name(metric), _BASES[function.info.kind]
    taken = inspect.signature(function).parameters.values()
    keywords = [one for one in taken if one.kind is one.KEYWORD_ONLY and one.name not in _OF_FORM]

    def initialize(self: MeanScore, **parameters: Any) -> None:
        check_names(name, parameters, defaults)
        base.__init__(self, metric, defaults | parameters)

    defaults = {one.name: one.default for one in keywords}
    initialize.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *keywords], return_annotation=None
    )
    initialize.__name__, initialize.__qualname__ = "__init__", f"{name}.__init__"
    members = {"__init__": initialize, "__doc__": _docstring(metric, function, list(defaults)), "__module__": module}
    return types.new_class(name, (base,), exec_body=lambda namespace: namespace.update(members))


def _docstring(metric: str, function: Callable[..., Any], parameters: list[str]) -> str:
    doc = inspect.getdoc(function) or ""
    told = re.search(r"^Args:\n((?: +.*\n|\n)*)", doc + "\n", re.MULTILINE)
    entries = re.split(r"^    (?=\w)", told[1].rstrip() + "\n", flags=re.MULTILINE) if told else []
    described = "".join(f"    {entry}" for entry in entries if entry.partition(":")[0] in parameters)
    summary = doc.partition("\n")[0]
    head = f"Mean :func:`xaibench.metrics.{metric}` over all samples since the last reset.\n\n{summary}"
    return f"{head}\n\nArgs:\n{described}" if described else f"{head}\n"


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[MeanScore]: ...  # the classes are created from the table below


__all__ = ["ExplainerScore", "MapScore", "MeanScore", "ModelScore", "TruthScore"]

for _metric in METRICS:
    _class = make_class(_metric, __name__)
    globals()[_class.__name__] = _class
    __all__ += [_class.__name__]
