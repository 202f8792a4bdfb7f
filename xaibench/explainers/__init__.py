"""Explainers: methods that compute saliency maps of image classifiers, and controls that use no classifier.

Each explainer is a frozen dataclass whose fields are its parameters, called as ``explainer(model, images, targets) ->
maps``. :func:`explain` is the main entry point: it accepts names, selects the explained output and restores the state
of the model.
"""

from typing import Any

from xaibench.compute.output import ExplainedOutput, UnsupportedModelError
from xaibench.compute.targets import label_pairs
from xaibench.core.lazy_names import load_public_name
from xaibench.explainers.api import explain
from xaibench.explainers.base import Attribution, Channels, Explainer, reduce_channels
from xaibench.explainers.building import build
from xaibench.explainers.reliance_maps import ReliedOn, reliance
from xaibench.explainers.shared.fitted_data import NotFittedError, NotFittedForModelError
from xaibench.explainers.shared.gradient_free import gradient_free
from xaibench.explainers.table import EXPLAINERS

#: Class name -> module, so that ``xaibench.explainers.RISE`` is imported on first access.
_CLASSES = {
    name: module.removeprefix(f"{__name__}.")
    for module, name in (EXPLAINERS.target(one).split(":") for one in (*EXPLAINERS, "reliance"))
}
#: Functions that are imported on first access too.
_FUNCTIONS = {"tune_pattern_local": "perturbation.pattern_local_tuning"}

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
    "gradient_free",
    "label_pairs",
    "reduce_channels",
    "reliance",
    "tune_pattern_local",
]


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _CLASSES | _FUNCTIONS)


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
