"""Functions with the interface of ``xaibenchmark``, the package of Saliency-Bench (Zhang et al., arXiv 2310.08537).

    import xaibench.compat.xaibenchmark as xaibenchmark

``loading``, ``iou``, ``precision``, ``recall`` and ``hit`` are the functions of xaibench, which have the published
shapes and defaults; ``load_dataset`` and ``evaluate_method`` follow its README.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from xaibench.data import Dataset, load, loading
from xaibench.data.registered import SALIENCY_BENCH
from xaibench.evaluation import evaluate
from xaibench.metrics import hit, iou, precision, recall

__all__ = ["DATASETS", "evaluate_method", "hit", "iou", "load_dataset", "loading", "precision", "recall"]

#: Name in the published table to name in xaibench.
DATASETS = SALIENCY_BENCH
#: The metrics of its tutorial, in order.
_METRICS = ("iou", "precision", "recall", "hit")


def load_dataset(name: str, **parameters: Any) -> Dataset:
    """Load a data set by its name in the published table, such as ``"Gender-XAI"``, from its official download.

    Args:
        name: One of :data:`DATASETS`, in upper or lower case; or any name of :func:`xaibench.load`.
        **parameters: As for :func:`xaibench.load`; ``root`` (or ``XAIBENCH_DATA``) is the folder of the data sets.

    Returns:
        The data set, split 60/20/20.

    Raises:
        UnknownNameError: If no data set has this name.
        FileNotFoundError: If the data set is not on disk; the message says how to get it.

    Example:
        >>> load_dataset("xai-tris/lin-white-8x8", n_samples=100).test.masks.shape
        torch.Size([10, 8, 8])
    """
    return load(name, **parameters)


def evaluate_method(
    method: Any, dataset: Dataset | str, model: nn.Module | None = None, *, seed: int = 0, **options: Any
) -> dict[str, float]:
    """Score an explainer on the test split by IoU, precision, recall and the pointing game.

    Args:
        method: Name of an explainer, such as ``"GradCAM"`` (upper and lower case, spaces, hyphens and underscores are
            ignored), or any explainer that :func:`xaibench.evaluate` accepts.
        dataset: A data set of :func:`load_dataset`, or its name.
        model: Returns logits, one per class of the data set. None = the network of the paper: a ResNet-18 with ImageNet
            weights, whose last layer is trained on the training split (:func:`xaibench.models.fit_head`).
        seed: Seed of that training and of random explainers.
        **options: Options of :func:`xaibench.evaluate`. By default, maps are thresholded as in the published functions,
            which keep their sign (``protocol="published", sign="signed"``).

    Returns:
        Metric name to the mean over the correctly classified images; larger is better; ``nan`` if no score is defined.

    Raises:
        UnknownNameError: If no explainer or data set has this name.

    Example:
        >>> from xaibench.models import build
        >>> data = load_dataset("xai-tris/lin-white-8x8", n_samples=200)
        >>> scores = evaluate_method("GradCAM", data, build("cnn", (1, 8, 8), 2, seed=0), progress=False)
        >>> list(scores)
        ['iou', 'precision', 'recall', 'hit']
    """
    data = load_dataset(dataset) if isinstance(dataset, str) else dataset
    if isinstance(method, str):
        method = method.replace(" ", "_")  # accept the spelling of papers: "Integrated Gradients"
    if model is None:
        model = _train_published_network(data, seed)
    defaults: dict[str, Any] = {"protocol": "published", "sign": "signed"}
    defaults |= {"controls": False, "metrics": list(_METRICS)}
    result = evaluate({"method": method}, data, model, seed=seed, **(defaults | options))
    summary = result.summary()
    return dict(zip(summary["metric"], summary["mean"].astype(float), strict=True))


def _train_published_network(data: Dataset, seed: int) -> nn.Module:
    from xaibench.models import build, fit_head

    channels, height, width = data.info.image_shape
    model = build("resnet18", (channels, height, width), len(data.classes), seed=seed)
    fit_head(model, data.train, data.val, seed=seed)
    return model
