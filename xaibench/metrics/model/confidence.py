"""Is the model as sure of the image when it is dimmed where the map is low? The two questions of Grad-CAM++.

Both metrics are called ``(model, images, maps, targets)`` and use the values of the map, not only their order: each map
is scaled to [0, 1] by itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import MakeRows, ModelOutput, model_scorer
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import Model, as_map_tensor, as_samples, check_common, reduce_tensor
from xaibench.metrics.shared.replaced_pixels import unit_scaled

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_GRADCAM_PP = "Chattopadhay, Sarkar, Howlader, Balasubramanian: Grad-CAM++, WACV 2018, arXiv 1710.11063"


@described(
    MetricInfo(
        "Average drop",
        "model",
        higher_is_better=False,
        range=(0.0, 100.0),
        meaning="How far the score of the class falls, in percent of it, when the image is multiplied by the map.",
        pitfalls="Values count, not ranks: a map that is 1 everywhere but at one pixel dims nothing and drops "
        "nothing. Negative parts are scaled into [0, 1] as well; a map's zero may become 0.5.",
        picture="dimmed image: drop",
        citation=_GRADCAM_PP,
    )
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
    r"""By how many percent the score of the target drops when the image is dimmed where the map is low.

    .. math:: 100 \cdot \max(0,\, y - o) \,/\, y, \qquad o = f_y(x \odot \tilde s), \quad
        \tilde s = \frac{s - \min s}{\max s - \min s}

    Chattopadhay et al. (2018), Section 5.1. In [0, 100] for probabilities, lower is better. The map is scaled to [0, 1]
    here, each by itself (the paper's maps are positive and are scaled likewise). Dimming goes towards 0 in the space
    of the images as given, which for normalised images is their mean colour.

    Departures: pytorch-grad-cam's ``DropInConfidence`` does not scale the maps and is the plain fall ``max(0, y - o)``,
    not divided by ``y``. torch-cam's ``ClassificationMetric`` makes the maps itself, gives a share instead of percent,
    and counts a drop from nothing as none (older releases divide by the score plus 1e-7, negative ones as well). Captum
    and Quantus have no such metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        Percent; ``nan`` for a constant map, which cannot be scaled, and where ``y`` is not positive.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 1, 3), torch.tensor([[[5.0, 2.0, 1.0]]])
        >>> [average_drop(model, image, map, torch.tensor([k]), output="logit") for k in range(3)]
        [0.0, 75.0, 100.0]
    """
    whole, dimmed = _dimmed(model, images, maps, targets, output, batch_size, reduction)
    drop = 100 * ((whole - dimmed).clamp_min(0) / whole)  # in this order a loss of all is 100, without rounding
    return reduce_tensor(torch.where(whole > 0, drop, math.nan), reduction, maps)


@described(
    MetricInfo(
        "Increase in confidence",
        "model",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Whether the score of the class rises when the image is multiplied by the map.",
        pitfalls="A probability near 1 can hardly rise, so that on a confident network few samples decide. Yes or no, "
        "whatever the size of the rise.",
        picture="dimmed image: rise",
        citation=_GRADCAM_PP,
    )
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
    r"""Share of the samples whose score of the target rises when the image is dimmed where the map is low.

    .. math:: 1[o > y], \qquad o = f_y(x \odot \tilde s)

    Chattopadhay et al. (2018), Section 5.1, there in percent; the map scaled as in :func:`average_drop`. 1 or 0 for
    each sample, in [0, 1] on average; higher is better.

    Departures: pytorch-grad-cam's ``IncreaseInConfidence`` does not scale the maps. torch-cam's
    ``ClassificationMetric`` makes the maps itself. Captum and Quantus have no such metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The share; ``nan`` for a constant map, which cannot be scaled.

    Raises:
        ValueError: As for :func:`average_drop`.
        TypeError: For images, maps or targets of another kind.

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
    """The scores ``[N]`` of the images and of the images times their scaled maps; the latter ``nan`` if undefined."""
    check_common(batch_size, reduction)
    samples = as_samples(model, images, targets)
    values = as_map_tensor(maps, samples)
    undefined = torch.zeros(len(samples), dtype=torch.bool, device=values.device)

    def prepare(group: slice) -> MakeRows:
        image, weight = samples.images[group], unit_scaled(values[group])
        undefined[group] = weight.isnan().flatten(1).any(1)
        dimmed = image * weight.nan_to_num()[:, None].to(image)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            whole = (point == 0)[:, None, None, None].to(image.device)
            return torch.where(whole, image[sample], dimmed[sample])

        return rows

    with model_scorer(model, samples, 2, output=output, batch_size=batch_size) as scorer:
        scores = scorer.predict(samples, 2, prepare)
    return scores[:, 0], torch.where(undefined, math.nan, scores[:, 1])
