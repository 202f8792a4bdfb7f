"""Robustness of the map under small changes of the image.

Both metrics are called with ``(explainer, model, images, targets)``; see
:mod:`xaibench.metrics.shared.explainer_calls`.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from xaibench.core.checks import check_amount, check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.explainer_calls import ExplainerFunction, explainer_inputs
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import (
    ModelOutput,
    check_fraction,
    count_of_share,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import peaks
from xaibench.registry.info import MetricInfo


@MetricInfo(
    "Data consistency",
    "explainer",
    higher_is_better=False,
    range=(0.0, math.inf),
    meaning="Mean change of the map per pixel when random pixels are removed from the image.",
    pitfalls="An explainer that ignores the image is perfectly consistent: combine it with a metric of correctness. "
    "Without `relative=True`, an explainer with small values scores well for that reason alone.",
    picture="maps without pixels",
    citation="Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537",
)
def data_consistency(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    fraction: float = 0.1,
    n_samples: int = 10,
    relative: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Mean change of the map when random pixels of the image are removed.

    .. math:: \mathbb E_M\; \frac{1}{HW} \sum_{\text{pixels}} |g(f(I)) - g(f(I \odot M))|

    with masks M that set k random pixels (in all channels) to zero. Zhang et al. (2023), Section 5.3, do not state how
    the difference of two maps becomes a number: here it is the mean over the pixels. In [0, inf), lower is better, 0
    for an explainer that ignores the image. In the units of the map: explainers with maps of different magnitude can
    only be compared with ``relative=True``.

    Departures: Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this metric (Quantus' ``Consistency``
        compares
    predictions of samples that share an explanation).

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that a mask removes (rounded, at least one pixel).
        n_samples: Number of masks.
        relative: Divide by the mean magnitude of the map of the original image.
        seed: Seed of the masks, which are the same for all samples.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The mean change; with ``relative``, ``nan`` for an image whose map is all zero.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, the model does not
            return ``[N, K]``, or a parameter is out of range.
        TypeError: If images or targets are not arrays or tensors of a suitable type, or the explainer is not callable.

    Example:
        >>> import torch
        >>> explainer = lambda model, images, targets: images[:, 0]  # the image is its own map
        >>> round(data_consistency(explainer, torch.nn.Flatten(), torch.ones(1, 1, 2, 4), torch.tensor([0])), 6)
        0.125
    """
    check_fraction("fraction", fraction)
    check_count("n_samples", n_samples)
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    original = explain(samples.images)
    # Where only the ratio counts, scale by the largest value, which avoids overflow and underflow.
    peak = peaks(original)
    unit = torch.where(peak > 0, peak, 1.0) if relative else torch.ones_like(peak)
    change = torch.zeros(len(samples), dtype=torch.float64)
    k, shape = count_of_share(fraction, samples.pixels), samples.images.shape[2:]
    for index in range(n_samples):
        removed = torch.zeros(samples.pixels, dtype=torch.bool)
        removed[random_generator(seed, index).permutation(samples.pixels)[:k]] = True
        maps = explain(samples.images.masked_fill(removed.reshape(shape).to(samples.images.device), 0.0))
        change += (original / unit - maps / unit).abs().flatten(1).mean(1)
    scores = change / n_samples
    if relative:
        scores = torch.where(peak.flatten() > 0, scores / (original / unit).abs().flatten(1).mean(1), math.nan)
    return reduce_tensor(scores, reduction, images)


@MetricInfo(
    "Sensitivity (max)",
    "explainer",
    higher_is_better=False,
    range=(0.0, math.inf),
    meaning="Largest change of the map, relative to its size, when a little noise is added to the image.",
    pitfalls="A maximum over draws can only grow with their number: compare at equal `n_samples`. The radius is "
    "in the units of the images. An explainer that ignores the image scores best.",
    picture="maps under noise",
    citation="Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (In)fidelity and Sensitivity of Explanations, "
    "NeurIPS 2019, arXiv 1901.09392",
)
def sensitivity_max(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    radius: float = 0.02,
    n_samples: int = 10,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Largest relative change of the map when a little noise is added to the image.

    .. math:: \max_{\|\delta\|_\infty \le r} \|g(f(x + \delta)) - g(f(x))\|_2 \,/\, \|g(f(x))\|_2

    Yeh et al. (2019), Definition 3.1, divided by the norm of the map as in their code and Captum's; the maximum is
    taken over ``n_samples`` uniform draws. In [0, inf), lower is better, 0 for an explainer that ignores the image.

    Departures: Captum's ``sensitivity_max`` divides by 1 where the map is all zero. It and Quantus' ``MaxSensitivity``
    draw from the global generator, so that the noise depends on the position in the batch. The authors' loop divides by
    the norm again in every iteration.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        radius: r, in the units of the images (0.02 as Captum's default).
        n_samples: Number of draws.
        seed: Seed of the noise, which is the same for all samples.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The largest change; ``nan`` for an image whose map is all zero.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, the model does not
            return ``[N, K]``, or a parameter is out of range.
        TypeError: If images or targets are not arrays or tensors of a suitable type, or the explainer is not callable.

    Example:
        >>> import torch
        >>> explainer = lambda model, images, targets: images[:, 0]  # the image is its own map
        >>> score = sensitivity_max(explainer, torch.nn.Flatten(), torch.ones(1, 1, 2, 4), torch.tensor([0]))
        >>> 0.01 < score <= 0.02
        True
    """
    check_amount("radius", radius)
    check_count("n_samples", n_samples)
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    original = explain(samples.images)
    peak = peaks(original)  # avoids overflow and underflow of squares
    largest = torch.zeros(len(samples), dtype=torch.float64)
    for index in range(n_samples):
        noise = torch.from_numpy(random_generator(seed, index).uniform(-radius, radius, samples.images.shape[1:]))
        maps = explain(samples.images + noise.to(samples.images))
        largest = torch.maximum(largest, (maps / peak - original / peak).flatten(1).norm(dim=1))
    # A zero map gives 0/0 or x/0 above; norm and maximum propagate NaN.
    scores = torch.where(peak.flatten() > 0, largest / (original / peak).flatten(1).norm(dim=1), math.nan)
    return reduce_tensor(scores, reduction, images)
