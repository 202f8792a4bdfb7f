"""The calls of ``xaibenchmark``, the package of Saliency-Bench (Zhang et al., arXiv 2310.08537).

    import xaibench.compat.xaibenchmark as xaibenchmark

``loading``, ``iou``, ``precision``, ``recall`` and ``hit`` are ours, which have the published shapes and defaults;
``load_dataset`` and ``evaluate_method`` are those of its README.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from xaibench.data import Dataset, load, loading
from xaibench.evaluation import evaluate
from xaibench.metrics import hit, iou, precision, recall

__all__ = ["DATASETS", "evaluate_method", "hit", "iou", "load_dataset", "loading", "precision", "recall"]

#: The names of the published table -> ours.
DATASETS = {
    "Gender-XAI": "gender",
    "Scene-XAI": "scene",
    "Glasses-XAI": "glasses",
    "Prohibited-XAI": "sixray",
    "Nodule-XAI": "lidc",
    "Tumor-XAI": "tumor",
    "Cat&Dog-XAI": "pet",
    "Object-XAI": "pascal",
}
#: What its functions measure, in the order of its tutorial.
_METRICS = ("iou", "precision", "recall", "hit")


def load_dataset(name: str, **parameters: Any) -> Dataset:
    """A data set by the name that its README has, such as ``"Gender-XAI"``; the pixels come from the official download.

    Args:
        name: One of :data:`DATASETS`, in any case; or any name of :func:`xaibench.load`.
        **parameters: As for :func:`xaibench.load`: ``root`` (or ``XAIBENCH_DATA``) is where the set lies.

    Returns:
        The set, split 60/20/20.

    Raises:
        UnknownNameError: If there is no such set.
        FileNotFoundError: If it does not lie there; the message says how to get it.

    Example:
        >>> load_dataset("xai-tris/lin-white-8x8", n_samples=100).test.masks.shape
        torch.Size([10, 8, 8])
    """
    published = {theirs.lower(): ours for theirs, ours in DATASETS.items()}
    return load(published.get(name.lower(), name), **parameters)


def evaluate_method(
    method: Any, dataset: Dataset | str, model: nn.Module | None = None, *, seed: int = 0, **options: Any
) -> dict[str, float]:
    """Score an explainer on the test split by IoU, precision, recall and the pointing game.

    Args:
        method: Name of an explainer, such as ``"GradCAM"`` (in any case, with or without spaces, hyphens and
            underscores), or whatever :func:`xaibench.evaluate` takes.
        dataset: From :func:`load_dataset`, or its name.
        model: Returns logits, one for each class of the set. None = the paper's: a ResNet-18 with ImageNet's weights,
            whose last layer is trained on the training split (:func:`xaibench.models.fit_head`).
        seed: Of that training, and of explainers that draw random numbers.
        **options: Of :func:`xaibench.evaluate`. Maps are cut as the published functions do
            (``protocol="published"``) unless they say otherwise.

    Returns:
        Means over the correctly classified images, as the functions of this module compute them: larger is better;
        ``nan`` where none is defined.

    Raises:
        UnknownNameError: If there is no such explainer or data set.

    Example:
        >>> from xaibench.models import build
        >>> data = load_dataset("xai-tris/lin-white-8x8", n_samples=200)
        >>> scores = evaluate_method("GradCAM", data, build("cnn", (1, 8, 8), 2, seed=0), progress=False)
        >>> list(scores)
        ['iou', 'precision', 'recall', 'hit']
    """
    data = load_dataset(dataset) if isinstance(dataset, str) else dataset
    if isinstance(method, str):
        method = method.replace(" ", "_")  # as papers spell them: "Integrated Gradients"
    if model is None:
        model = _published_network(data, seed)
    asked: dict[str, Any] = {"protocol": "published", "controls": False, "metrics": list(_METRICS)}
    result = evaluate({"method": method}, data, model, seed=seed, **(asked | options))
    summary = result.summary()
    return dict(zip(summary["metric"], summary["mean"].astype(float), strict=True))


def _published_network(data: Dataset, seed: int) -> nn.Module:
    from xaibench.models import build, fit_head

    model = build("resnet18", data.info.image_shape, len(data.classes), seed=seed)
    fit_head(model, data.train, data.val, seed=seed)
    return model
