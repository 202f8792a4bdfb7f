"""Creation of the class of each registered metric from the metric's signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from typing import Any

from xaibench.component.info import MetricInfo
from xaibench.core.checks import check_names
from xaibench.metrics.table import METRICS
from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, MapScore, MeanScore, ModelScore, TruthScore

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
    own = [one for one in taken if one.kind is one.KEYWORD_ONLY and one.name not in _OF_FORM]

    def initialize(self: MeanScore, **parameters: Any) -> None:
        check_names(name, parameters, defaults)
        base.__init__(self, metric, defaults | parameters)

    defaults = {one.name: one.default for one in own}
    initialize.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *own], return_annotation=None
    )
    initialize.__name__, initialize.__qualname__ = "__init__", f"{name}.__init__"
    members = {"__init__": initialize, "__doc__": _docstring(metric, function, list(defaults)), "__module__": module}
    return types.new_class(name, (base,), exec_body=lambda namespace: namespace.update(members))


def _docstring(metric: str, function: Callable[..., Any], parameters: list[str]) -> str:
    doc = inspect.getdoc(function) or ""
    told = re.search(r"^Args:\n((?: +.*\n|\n)*)", doc + "\n", re.MULTILINE)
    entries = re.split(r"^    (?=\w)", told[1].rstrip() + "\n", flags=re.MULTILINE) if told else []
    own = "".join(f"    {entry}" for entry in entries if entry.partition(":")[0] in parameters)
    summary = doc.partition("\n")[0]
    head = f"Mean :func:`xaibench.metrics.{metric}` over all samples since the last reset.\n\n{summary}"
    return f"{head}\n\nArgs:\n{own}" if own else f"{head}\n"
