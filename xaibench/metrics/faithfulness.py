"""Does the model use the pixels that the map marks? Asked by showing it the image with and without them.

All metrics here are called ``(model, images, maps, targets)``. They rank pixels by the value of the map, the largest
first: of a signed map, the pixels that speak against the class come last. Pass ``maps.abs()`` to rank by magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xaibench.metrics.classifier import Output, Rows, asked
from xaibench.metrics.inputs import Scores
from xaibench.metrics.perturbation import Baseline, Curves, ask_replaced, unit_scaled
from xaibench.metrics.samples import (
    Model,
    check_common,
    check_count,
    check_maps,
    check_samples,
    check_share,
    in_kind_of,
    reduced,
    share_of,
)
from xaibench.types import MetricInfo, Reduction, described

if TYPE_CHECKING:
    from xaibench.types import Array

_RISE = "Petsiuk, Das, Saenko: RISE, BMVC 2018, arXiv 1806.07421"
_GRADCAM_PP = "Chattopadhay, Sarkar, Howlader, Balasubramanian: Grad-CAM++, WACV 2018, arXiv 1710.11063"
_ERASER = "DeYoung et al.: ERASER, ACL 2020, arXiv 1911.03429"


@described(MetricInfo("Deletion", "model", higher_is_better=False, range=(0.0, 1.0), citation=_RISE))
def deletion(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    steps: int = 224,
    baseline: Baseline = 0.0,
    output: Output = "softmax",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Area under the score of the target while the most important pixels are taken away.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the image in which the share :math:`r` of its pixels, those where the map is largest, is the
    baseline; ``steps`` equal shares make ``steps + 1`` points, the whole image and the whole baseline among them
    (shares are rounded to whole pixels, and there are never more of them than pixels). Petsiuk et al. (2018); 224
    pixels a step, as theirs, at 224×224. The mean of a probability, in [0, 1]; lower is better.

    Pixels are ranked by value, not by magnitude; ties in the order of the pixels, row by row.

    Departures: RISE's code follows the class that the model predicts, and leaves tied pixels in the order that its sort
    happens to give. Quantus' ``PixelFlipping`` has no point for the whole image and replaces by the smallest value of
    the image (``"black"``), not by zero. pytorch-grad-cam and Captum have no such curve.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``. Run where its parameters are, in evaluation mode.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Equal shares of the pixels.
        baseline: What replaces the pixels: a number, ``"blur"`` (RISE's blur of the image: 11 taps, sigma 5) or
            anything that broadcasts to the images.
        output: ``"softmax"`` when the model returns logits, as the library's own models do; ``"identity"`` when it
            returns probabilities, or to score logits; or a callable ``[n, K] -> [n, K]``.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images. The steps of many images
            share a pass. Bounds the memory, moves scores by rounding only.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``, the curves with the ``fractions`` ``[steps + 1]`` and the
            ``values`` ``[N, steps + 1]``.

    Returns:
        The area; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> deletion(model, image, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), target, steps=4, output="identity")
        0.125
        >>> deletion(model, image, torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]), target, steps=4, output="identity")
        0.875
    """
    return _area(
        model, images, maps, targets, steps, baseline, output, batch_size, reduction, return_curves, reveal=False
    )


@described(MetricInfo("Insertion", "model", higher_is_better=True, range=(0.0, 1.0), citation=_RISE))
def insertion(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    steps: int = 224,
    baseline: Baseline = "blur",
    output: Output = "softmax",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Area under the score of the target while the most important pixels are put into a blurred image.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the baseline in which the share :math:`r` of the pixels, those where the map is largest, is that of
    the image. Petsiuk et al. (2018); the baseline is their blur, whose Gaussian kernel (11 taps, sigma 5, zeros outside
    the image) is nearly a box. The mean of a probability, in [0, 1]; higher is better. Everything else, departures
    included, as in :func:`deletion`. Neither Quantus nor pytorch-grad-cam has it.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Equal shares of the pixels.
        baseline: What the image is put into: a number, ``"blur"`` or anything that broadcasts to the images.
        output: ``"softmax"`` of logits, ``"identity"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``.

    Returns:
        The area; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: As for :func:`deletion`.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> score, curves = insertion(
        ...     model, image, map, torch.tensor([1]), steps=4, baseline=0.0, output="identity", return_curves=True
        ... )
        >>> score, curves.values.tolist()
        (0.625, [[0.0, 0.0, 1.0, 1.0, 1.0]])
    """
    return _area(
        model, images, maps, targets, steps, baseline, output, batch_size, reduction, return_curves, reveal=True
    )


def _area(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    steps: int,
    baseline: Baseline,
    output: Output,
    batch_size: int | None,
    reduction: Reduction,
    return_curves: bool,
    *,
    reveal: bool,
) -> Scores:
    check_common(batch_size, reduction)
    check_count("steps", steps)
    samples = check_samples(model, images, targets)
    values, pixels = check_maps(maps, samples), samples.pixels
    shares = min(steps, pixels)
    counts = [round(i * pixels / shares) for i in range(shares + 1)]
    curve = ask_replaced(
        model, samples, values, counts, baseline=baseline, reveal=reveal, output=output, batch_size=batch_size
    )
    fractions = torch.tensor(counts, dtype=torch.float64, device=curve.device) / pixels
    scores = reduced(torch.trapezoid(curve, fractions), reduction, maps)
    if return_curves:
        return scores, Curves(in_kind_of(maps, fractions), in_kind_of(maps, curve))
    return scores


@described(MetricInfo("Comprehensiveness", "model", higher_is_better=True, range=(-1.0, 1.0), citation=_ERASER))
def comprehensiveness(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = 0.2,
    baseline: Baseline = 0.0,
    output: Output = "softmax",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""How much the score of the target falls without the most important pixels: are all that matter marked?

    .. math:: f_y(x) - f_y(x \text{ without its top-}k \text{ pixels})

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, higher is better. Pixels are
    ranked by value; ties in the order of the pixels. ERASER averages over five shares and divides by six; several
    shares are averaged over their number here. Saliency-Bench prints the formula of comprehensiveness for sufficiency
    too; see :func:`sufficiency`.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that are taken away (rounded, at least one pixel); of several, the mean.
        baseline: What replaces the pixels: a number, ``"blur"`` or anything that broadcasts to the images.
        output: ``"softmax"`` of logits, ``"identity"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The fall; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> comprehensiveness(model, image, map, torch.tensor([1]), fraction=0.5, output="identity")
        1.0
    """
    return _fall(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=False)


@described(MetricInfo("Sufficiency", "model", higher_is_better=False, range=(-1.0, 1.0), citation=_ERASER))
def sufficiency(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = 0.2,
    baseline: Baseline = 0.0,
    output: Output = "softmax",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""How much the score of the target falls when only the most important pixels are left: are they enough?

    .. math:: f_y(x) - f_y(\text{only the top-}k \text{ pixels of } x)

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, lower is better. Otherwise
    as :func:`comprehensiveness`.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that are left (rounded, at least one pixel); of several, the mean.
        baseline: What replaces the others: a number, ``"blur"`` or anything that broadcasts to the images.
        output: ``"softmax"`` of logits, ``"identity"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The fall; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: As for :func:`comprehensiveness`.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> sufficiency(model, image, map, torch.tensor([1]), fraction=0.5, output="identity")
        0.0
    """
    return _fall(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=True)


def _fall(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    fraction: float | Sequence[float],
    baseline: Baseline,
    output: Output,
    batch_size: int | None,
    reduction: Reduction,
    *,
    reveal: bool,
) -> Scores:
    check_common(batch_size, reduction)
    shares = list(fraction) if isinstance(fraction, Sequence) else [fraction]
    if not shares:
        raise ValueError("fraction must be one share of the pixels or several, got none.")
    for share in shares:
        check_share("fraction", share)
    samples = check_samples(model, images, targets)
    values, pixels = check_maps(maps, samples), samples.pixels
    counts = [pixels if reveal else 0, *(share_of(share, pixels) for share in shares)]  # the first is the image itself
    scores = ask_replaced(
        model, samples, values, counts, baseline=baseline, reveal=reveal, output=output, batch_size=batch_size
    )
    return reduced(scores[:, 0] - scores[:, 1:].mean(1), reduction, maps)


@described(MetricInfo("Average drop", "model", higher_is_better=False, range=(0.0, 100.0), citation=_GRADCAM_PP))
def average_drop(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    output: Output = "softmax",
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
    and divides outputs that may be negative when it is not told how to turn them into probabilities.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: ``"softmax"`` of logits, ``"identity"``, or a callable.
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
        >>> [average_drop(model, image, map, torch.tensor([k]), output="identity") for k in range(3)]
        [0.0, 75.0, 100.0]
    """
    whole, dimmed = _dimmed(model, images, maps, targets, output, batch_size, reduction)
    drop = 100 * (whole - dimmed).clamp_min(0) / whole
    return reduced(torch.where(whole > 0, drop, math.nan), reduction, maps)


@described(MetricInfo("Increase in confidence", "model", higher_is_better=True, range=(0.0, 1.0), citation=_GRADCAM_PP))
def increase_in_confidence(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    output: Output = "softmax",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Share of the samples whose score of the target rises when the image is dimmed where the map is low.

    .. math:: 1[o > y], \qquad o = f_y(x \odot \tilde s)

    Chattopadhay et al. (2018), Section 5.1, there in percent; the map scaled as in :func:`average_drop`. 1 or 0 for
    each sample, in [0, 1] on average; higher is better.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        output: ``"softmax"`` of logits, ``"identity"``, or a callable.
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
    return reduced(torch.where(dimmed.isnan(), math.nan, rises), reduction, maps)


def _dimmed(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    output: Output,
    batch_size: int | None,
    reduction: Reduction,
) -> tuple[Tensor, Tensor]:
    """The scores ``[N]`` of the images and of the images times their scaled maps; the latter ``nan`` if undefined."""
    check_common(batch_size, reduction)
    samples = check_samples(model, images, targets)
    values = check_maps(maps, samples)
    undefined = torch.zeros(len(samples), dtype=torch.bool, device=values.device)

    def prepare(group: slice) -> Rows:
        image, weight = samples.images[group], unit_scaled(values[group])
        undefined[group] = weight.isnan().flatten(1).any(1)
        dimmed = image * weight.nan_to_num()[:, None].to(image)
        return lambda sample, point: torch.where((point == 0)[:, None, None, None], image[sample], dimmed[sample])

    with asked(model, samples, 2, output=output, batch_size=batch_size) as classifier:
        scores = classifier.ask(samples, 2, prepare)
    return scores[:, 0], torch.where(undefined, math.nan, scores[:, 1])
