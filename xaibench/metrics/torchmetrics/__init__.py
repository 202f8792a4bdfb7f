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

from typing import TYPE_CHECKING

from xaibench.metrics.table import METRICS
from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, MapScore, MeanScore, ModelScore, TruthScore
from xaibench.metrics.torchmetrics.class_factory import make_class

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[MeanScore]: ...  # the classes are created from the table below


__all__ = ["ExplainerScore", "MapScore", "MeanScore", "ModelScore", "TruthScore"]

for _metric in METRICS:
    _class = make_class(_metric, __name__)
    globals()[_class.__name__] = _class
    __all__ += [_class.__name__]
