"""How right is a saliency map? One score for each sample, ``nan`` where it is undefined.

Conventions, kept by every metric of this package:

- Maps are ``[N, H, W]`` (or ``[H, W]``, a batch of one), numpy or torch; masks are of the same shape, ``True`` =
  important. Channels are reduced, maps resized and thresholded by the caller, never in here. Where a metric looks at
  the magnitude of a map or norms it to a sum of one, its docstring says so.
- A sample is scored by itself: neither its neighbours in the batch nor the size of the batch change a bit of it.
- ``reduction="none"`` gives the ``[N]`` scores, float64, in the kind of the maps (numpy, or torch on their device);
  ``reduction="mean"`` gives the mean over the defined scores as a Python float, ``nan`` if none is defined.
- Undefined is ``nan``; :func:`undefined_reasons` says why. What is no map at all (``nan`` or infinity in it, a shape
  that does not fit, a mask that is not binary) is an error.
"""

import sys
from typing import TYPE_CHECKING, Any

from xaibench.metrics.map.concentration import complexity, sparseness
from xaibench.metrics.metric_agreement import Agreement, agreement
from xaibench.metrics.metric_table import METRICS
from xaibench.metrics.shared.undefined_scores import undefined_reasons
from xaibench.metrics.truth.earth_mover import TransportError, emd, emd_perf
from xaibench.metrics.truth.localization import mass_accuracy, topk_precision
from xaibench.metrics.truth.overlap import f1, iou, precision, recall
from xaibench.metrics.truth.pointing_game import hit
from xaibench.metrics.truth.ranking import auc, average_precision

if TYPE_CHECKING:
    from xaibench.metrics.explainer.randomisation import parameter_randomisation
    from xaibench.metrics.explainer.stability import data_consistency, sensitivity_max
    from xaibench.metrics.model.attack import adversarial
    from xaibench.metrics.model.confidence import average_drop, increase_in_confidence
    from xaibench.metrics.model.disturbance import infidelity
    from xaibench.metrics.model.erasure import comprehensiveness, sufficiency
    from xaibench.metrics.model.imputation import road
    from xaibench.metrics.model.insertion_deletion import deletion, insertion

__all__ = [
    "METRICS",
    "Agreement",
    "TransportError",
    "adversarial",
    "agreement",
    "auc",
    "average_drop",
    "average_precision",
    "complexity",
    "comprehensiveness",
    "data_consistency",
    "deletion",
    "emd",
    "emd_perf",
    "f1",
    "hit",
    "increase_in_confidence",
    "infidelity",
    "insertion",
    "iou",
    "mass_accuracy",
    "parameter_randomisation",
    "precision",
    "recall",
    "road",
    "sensitivity_max",
    "sparseness",
    "sufficiency",
    "topk_precision",
    "undefined_reasons",
]


def __getattr__(name: str) -> Any:
    # The metrics that ask a model load torch, which those against a ground truth do without.
    if name in __all__ and name in METRICS:
        return METRICS.resolve(name)
    # With name and obj, Python says what may be meant.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
