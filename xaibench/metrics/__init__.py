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

from xaibench.metrics.agreement import Agreement, agreement
from xaibench.metrics.concentration import complexity, sparseness
from xaibench.metrics.localization import mass_accuracy, topk_precision
from xaibench.metrics.overlap import f1, hit, iou, precision, recall
from xaibench.metrics.ranking import auc, average_precision
from xaibench.metrics.transport import TransportError, emd, emd_perf
from xaibench.metrics.undefined import undefined_reasons
from xaibench.registry import Registry

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
    "agreement",
    "auc",
    "average_precision",
    "complexity",
    "emd",
    "emd_perf",
    "f1",
    "hit",
    "iou",
    "mass_accuracy",
    "precision",
    "recall",
    "sparseness",
    "topk_precision",
    "undefined_reasons",
]
