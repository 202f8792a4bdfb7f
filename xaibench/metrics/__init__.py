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

from xaibench.metrics.agreement import Agreement, agreement
from xaibench.metrics.concentration import complexity, sparseness
from xaibench.metrics.localization import mass_accuracy, topk_precision
from xaibench.metrics.overlap import f1, hit, iou, precision, recall
from xaibench.metrics.ranking import auc, average_precision
from xaibench.metrics.transport import TransportError, emd, emd_perf
from xaibench.metrics.undefined import undefined_reasons
from xaibench.registry import Registry

if TYPE_CHECKING:
    from xaibench.metrics.attack import adversarial
    from xaibench.metrics.confidence import average_drop, increase_in_confidence
    from xaibench.metrics.disturbance import infidelity
    from xaibench.metrics.erasure import comprehensiveness, sufficiency
    from xaibench.metrics.imputation import road
    from xaibench.metrics.insertion_deletion import deletion, insertion
    from xaibench.metrics.randomisation import parameter_randomisation
    from xaibench.metrics.stability import data_consistency, sensitivity_max

#: Name -> function of maps and masks, of maps alone, or of a model, images, maps and targets, by ``info.kind``.
METRICS = Registry(
    "metric",
    {
        "emd_perf": "xaibench.metrics.transport:emd_perf",
        "emd": "xaibench.metrics.transport:emd",
        "topk_precision": "xaibench.metrics.localization:topk_precision",
        "mass_accuracy": "xaibench.metrics.localization:mass_accuracy",
        "iou": "xaibench.metrics.overlap:iou",
        "precision": "xaibench.metrics.overlap:precision",
        "recall": "xaibench.metrics.overlap:recall",
        "f1": "xaibench.metrics.overlap:f1",
        "hit": "xaibench.metrics.overlap:hit",
        "auc": "xaibench.metrics.ranking:auc",
        "average_precision": "xaibench.metrics.ranking:average_precision",
        "sparseness": "xaibench.metrics.concentration:sparseness",
        "complexity": "xaibench.metrics.concentration:complexity",
        "deletion": "xaibench.metrics.insertion_deletion:deletion",
        "insertion": "xaibench.metrics.insertion_deletion:insertion",
        "average_drop": "xaibench.metrics.confidence:average_drop",
        "increase_in_confidence": "xaibench.metrics.confidence:increase_in_confidence",
        "comprehensiveness": "xaibench.metrics.erasure:comprehensiveness",
        "sufficiency": "xaibench.metrics.erasure:sufficiency",
        "adversarial": "xaibench.metrics.attack:adversarial",
        "infidelity": "xaibench.metrics.disturbance:infidelity",
        "road": "xaibench.metrics.imputation:road",
        "data_consistency": "xaibench.metrics.stability:data_consistency",
        "sensitivity_max": "xaibench.metrics.stability:sensitivity_max",
        "parameter_randomisation": "xaibench.metrics.randomisation:parameter_randomisation",
    },
    aliases={
        "relevance_rank_accuracy": "topk_precision",
        "relevance_mass_accuracy": "mass_accuracy",
        "pointing_game": "hit",
        "roc_auc": "auc",
        "jaccard": "iou",
        "dice": "f1",
        "gini": "sparseness",
        "entropy": "complexity",
    },
)

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
