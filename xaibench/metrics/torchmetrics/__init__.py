"""The metrics as torchmetrics: update them batch by batch, compute at the end of an epoch, across processes too.

    pip install "xaibench[torchmetrics]"

They are thin: ``update`` calls the function of :mod:`xaibench.metrics` and keeps the scores, one float64 a sample;
``compute`` is their mean over the defined ones. So the result is that of the function on all samples at once, however
they were split into batches (to the bit for what asks no model). Each class takes the parameters of its function;
a registered metric has one at once.

``update`` takes what the function takes, by place or by name. By name, metrics of all kinds share one collection, which
hands each what it asks for:

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
"""

from typing import TYPE_CHECKING

from xaibench.metrics.metric_table import METRICS
from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, MapScore, MeanScore, ModelScore, TruthScore
from xaibench.metrics.torchmetrics.class_factory import make_class

if TYPE_CHECKING:
    from xaibench.metrics.torchmetrics.registered_classes import *  # noqa: F403  (written by docs/generate/typing_stubs.py)

__all__ = ["ExplainerScore", "MapScore", "MeanScore", "ModelScore", "TruthScore"]

for _metric in METRICS:
    _class = make_class(_metric, __name__)
    globals()[_class.__name__] = _class
    __all__ += [_class.__name__]
