"""Average drop and increase in confidence (Grad-CAM++): scores of images that are dimmed where the map is low.

Both metrics are called with ``(model, images, maps, targets)`` and use the values of the map, not only their order:
each map is scaled to [0, 1] on its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import (
    MakeRows,
    Model,
    ModelOutput,
    checked_inputs,
    model_scorer,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import unit_scaled
from xaibench.registry.info import MetricInfo

_GRADCAM_PP = "Chattopadhay, Sarkar, Howlader, Balasubramanian: Grad-CAM++, WACV 2018, arXiv 1710.11063"


@MetricInfo(
    "Average drop",
    "model",
    higher_is_better=False,
    range=(0.0, 100.0),
    attains_ends=True,
    meaning="How much the score of the class drops, in percent of it, when the image is multiplied by the map.",
    pitfalls="Values count, not ranks: a map that is 1 everywhere except at one pixel dims nothing, and nothing "
    "drops. Negative values are scaled to [0, 1] as well; a value of zero may become 0.5.",
    picture="dimmed image: drop",
    citation=_GRADCAM_PP,
)
def average_drop(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Drop of the target's score, in percent, when the image is dimmed where the map is low.

    .. math:: 100 \cdot \max(0,\, y - o) \,/\, y, \qquad o = f_y(x \odot \tilde s), \quad
        \tilde s = \frac{s - \min s}{\max s - \min s}

    Chattopadhay et al. (2018), Section 5.1. In [0, 100] for probabilities, lower is better. Each map is scaled to [0,
    1] on its own (the paper's maps are positive and are scaled in the same way). Dimming moves pixels towards 0, which
    is the mean color for normalized images.

    Departures: pytorch-grad-cam's ``DropInConfidence`` does not scale the maps and returns the plain drop ``max(0, y -
    o)``, not divided by ``y``. torch-cam's ``ClassificationMetric`` computes the maps itself, returns a share instead
    of percent, and counts a drop from zero as zero (older releases divide by the score plus 1e-7, also negative ones).
    Captum and Quantus do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        Percent; ``nan`` for a constant map, which cannot be scaled, and where ``y`` is not positive.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 1, 3), torch.tensor([[[5.0, 2.0, 1.0]]])
        >>> [average_drop(model, image, map, torch.tensor([k]), output="logit") for k in range(3)]
        [0.0, 75.0, 100.0]
    """
    whole, dimmed = _dimmed(model, images, maps, targets, output, batch_size, reduction)
    drop = 100 * ((whole - dimmed).clamp_min(0) / whole)  # in this order a total loss is exactly 100
    return reduce_tensor(torch.where(whole > 0, drop, math.nan), reduction, maps)


@MetricInfo(
    "Increase in confidence",
    "model",
    higher_is_better=True,
    attains_ends=True,
    meaning="Whether the score of the class rises when the image is multiplied by the map.",
    pitfalls="A probability near 1 can hardly rise, so on a confident network few samples decide. The score is 0 "
    "or 1, regardless of the size of the rise.",
    picture="dimmed image: rise",
    citation=_GRADCAM_PP,
)
def increase_in_confidence(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Share of the samples whose target score rises when the image is dimmed where the map is low.

    .. math:: 1[o > y], \qquad o = f_y(x \odot \tilde s)

    Chattopadhay et al. (2018), Section 5.1, there in percent; the map scaled as in :func:`average_drop`. 1 or 0 for
    each sample, in [0, 1] on average; higher is better.

    Departures: pytorch-grad-cam's ``IncreaseInConfidence`` does not scale the maps. torch-cam's
    ``ClassificationMetric`` computes the maps itself. Captum and Quantus do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The share; ``nan`` for a constant map, which cannot be scaled.

    Raises:
        ValueError: As in :func:`average_drop`.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: torch.stack([images.sum((1, 2, 3)), -images.sum((1, 2, 3))], 1)
        >>> image, map = torch.ones(1, 1, 1, 3), torch.tensor([[[5.0, 2.0, 1.0]]])
        >>> [increase_in_confidence(model, image, map, torch.tensor([k])) for k in range(2)]
        [0.0, 1.0]
    """
    whole, dimmed = _dimmed(model, images, maps, targets, output, batch_size, reduction)
    rises = (dimmed > whole).double()
    return reduce_tensor(torch.where(dimmed.isnan(), math.nan, rises), reduction, maps)


def _dimmed(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    output: ModelOutput,
    batch_size: int | None,
    reduction: Reduction,
) -> tuple[Tensor, Tensor]:
    """Return the scores ``[N]`` of the images and of the images times their scaled maps; the latter may be NaN."""
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    undefined = torch.zeros(len(samples), dtype=torch.bool, device=values.device)

    def prepare(group: slice) -> MakeRows:
        image, weight = samples.images[group], unit_scaled(values[group])
        undefined[group] = weight.isnan().flatten(1).any(1)
        dimmed = image * weight.nan_to_num()[:, None].to(image)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            whole = (point == 0).reshape(-1, *(1,) * (image.ndim - 1)).to(image.device)
            return torch.where(whole, image[sample], dimmed[sample])

        return rows

    with model_scorer(model, samples, 2, output=output, batch_size=batch_size) as scorer:
        scores = scorer.predict(samples, 2, prepare)
    return scores[:, 0], torch.where(undefined, math.nan, scores[:, 1])
