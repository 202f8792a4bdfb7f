"""The metrics as torchmetrics: update them batch by batch, compute at the end of an epoch, across processes too.

    pip install "xaibench[torchmetrics]"

They are thin: ``update`` calls the function of :mod:`xaibench.metrics` and keeps the scores, one float64 a sample;
``compute`` is their mean over the defined ones. So the result is that of the function on all samples at once, however
they were split into batches (to the bit for what asks no model). Each class takes the parameters of its function.

``update`` takes what the function takes, by place or by name. By name, metrics of all kinds share one collection, which
hands each what it asks for:

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
"""

from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, MapScore, MeanScore, ModelScore, TruthScore
from xaibench.metrics.torchmetrics.maps import (
    AUC,
    EMD,
    F1,
    AveragePrecision,
    Complexity,
    EMDPerformance,
    Hit,
    IoU,
    MassAccuracy,
    Precision,
    Recall,
    Sparseness,
    TopKPrecision,
)
from xaibench.metrics.torchmetrics.model import (
    ROAD,
    Adversarial,
    AverageDrop,
    Comprehensiveness,
    DataConsistency,
    Deletion,
    IncreaseInConfidence,
    Infidelity,
    Insertion,
    ParameterRandomisation,
    SensitivityMax,
    Sufficiency,
)

__all__ = [
    "AUC",
    "EMD",
    "F1",
    "ROAD",
    "Adversarial",
    "AverageDrop",
    "AveragePrecision",
    "Complexity",
    "Comprehensiveness",
    "DataConsistency",
    "Deletion",
    "EMDPerformance",
    "ExplainerScore",
    "Hit",
    "IncreaseInConfidence",
    "Infidelity",
    "Insertion",
    "IoU",
    "MapScore",
    "MassAccuracy",
    "MeanScore",
    "ModelScore",
    "ParameterRandomisation",
    "Precision",
    "Recall",
    "SensitivityMax",
    "Sparseness",
    "Sufficiency",
    "TopKPrecision",
    "TruthScore",
]
