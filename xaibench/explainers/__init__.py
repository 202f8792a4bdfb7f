"""Explainers: methods that compute saliency maps of image classifiers, and controls that use no classifier.

Each explainer is a frozen dataclass whose fields are its parameters, called as ``explainer(model, images, targets) ->
maps``. :func:`explain` is the main entry point: it accepts names, selects the explained output and restores the state
of the model.
"""

import lazy_loader

from xaibench.explainers.api import build, explain
from xaibench.explainers.base import Attribution, Channels, Explainer, reduce_channels
from xaibench.explainers.registered import EXPLAINERS, gradient_free
from xaibench.explainers.reliance_maps import ReliedOn, reliance
from xaibench.explainers.shared.fitting import NotFittedError, NotFittedForModelError
from xaibench.network.contract import NetworkContractError
from xaibench.network.explained_output import ExplainedOutput, UnsupportedModelError
from xaibench.tensors.inputs import label_pairs

__all__ = [
    "EXPLAINERS",
    "Attribution",
    "Channels",
    "ExplainedOutput",
    "Explainer",
    "NetworkContractError",
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

# The classes of the explainers are imported on first use.
_HOME = EXPLAINERS.names_by_module(__name__)
_HOME["perturbation.pattern_local"] = [*_HOME["perturbation.pattern_local"], "tune_pattern_local"]
__getattr__, _list_lazy, _ = lazy_loader.attach(__name__, None, _HOME)


def __dir__() -> list[str]:
    return sorted({*__all__, *_list_lazy()})
