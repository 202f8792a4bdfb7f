"""Explainers: what makes a saliency map of an image classifier, and the controls that know no classifier.

Each is a frozen dataclass with its parameters as fields, called as ``explainer(model, images, targets) -> maps``.
:func:`explain` is the front door: it takes names, chooses what is explained, and gives the model back unharmed.
"""

import sys
from typing import Any

from xaibench.core.registry import import_target
from xaibench.explainers.api import explain
from xaibench.explainers.explainer_building import build
from xaibench.explainers.explainer_table import EXPLAINERS
from xaibench.explainers.relied_pixels import ReliedOn, reliance
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.fitted_data import NotFittedError, NotFittedForModelError
from xaibench.explainers.shared.interface import (
    Attribution,
    Channels,
    Explainer,
    UnsupportedModelError,
    reduce_channels,
)

#: Class name -> where it lives, so that ``xaibench.explainers.RISE`` is imported when it is asked for.
_CLASSES = {EXPLAINERS.target(name).partition(":")[2]: EXPLAINERS.target(name) for name in (*EXPLAINERS, "reliance")}

__all__ = [
    "EXPLAINERS",
    "Attribution",
    "Channels",
    "ExplainedOutput",
    "Explainer",
    "NotFittedError",
    "NotFittedForModelError",
    "ReliedOn",
    "UnsupportedModelError",
    "build",
    "explain",
    "reduce_channels",
    "reliance",
]


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return import_target(_CLASSES[name])
    # With name and obj, Python says what may be meant.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
