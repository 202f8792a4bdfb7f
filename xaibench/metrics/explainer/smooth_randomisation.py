"""Does the map, freed of its noise, change when the model forgets what it has learned?

The metric is called ``(explainer, model, images, targets)``; :mod:`xaibench.metrics.shared.asked_explainer` says with
what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount, check_count
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_explainer import ExplainerCaller, ExplainerFunction
from xaibench.metrics.shared.forgotten_layers import check_module, learned_layers, reinitialize
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import as_samples, check_common, convert_like, draw, reduce_tensor
from xaibench.metrics.shared.rank_correlation import centred_ranks, correlation
from xaibench.metrics.shared.replaced_pixels import Curves

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


@described(
    MetricInfo(
        "Smooth parameter randomisation",
        "explainer",
        higher_is_better=False,
        range=(-1.0, 1.0),
        meaning="Rank correlation of the map with those of the same network as its weights are made random, layer by "
        "layer from the first, each map the mean over noisy copies of the image.",
        pitfalls="`parameter_randomisation` of maps freed of noise that parts methods for another reason than the "
        "parameters; dearer by the number of copies. Still a test to pass, not a ranking.",
        class_name="SmoothMPRT",
        citation="Hedström, Weber, Lapuschkin, Höhne: Sanity Checks Revisited: An Exploration to Repair the Model "
        "Parameter Randomisation Test, 2024, arXiv 2401.06465",
    )
)
def smooth_mprt(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    n_samples: int = 50,
    noise: float = 0.1,
    magnitude: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Smooth MPRT: how alike the denoised map stays while the model forgets what it has learned, from the first layer.

    .. math:: \frac{1}{L} \sum_{l=1}^{L} \rho\Bigl(\tfrac{1}{N}\sum_i g(f)(x + \eta_i),\;
        \tfrac{1}{N}\sum_i g(f_l)(x + \eta_i)\Bigr)

    with Spearman's rank correlation over the pixels, ties at their mean rank, :math:`f_l` the network whose first l
    layers are random, and Gaussian noise :math:`\eta_i` of ``noise`` times the range of the image. Hedström et al.
    (2024), Section 4.1: of :func:`parameter_randomisation` the layers forget from the bottom up, since from the top
    down the map keeps what the lower layers have learned, and each map is the mean over N noisy images. In [-1, 1];
    lower is better. ``(L + 1) · N`` explanations an image.

    Layers are drawn anew as in :func:`parameter_randomisation`; the noise is the same for the network and for those
    that have forgotten.

    Departures: the authors scale each map by its second moment first, which moves no rank. Quantus' ``SmoothMPRT``
    returns the correlations of each layer unless it is asked for averages, and draws the noise from the global
    generator. Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained; a copy of it is randomised.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        n_samples: Noisy copies of each image.
        noise: Standard deviation of the noise, as a share of the image's range.
        magnitude: Rank pixels by the mean of ``|map|`` instead of that of the map.
        seed: Of the new parameters and of the noise.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``: at the share of layers that are random, the correlation.

    Returns:
        The mean correlation; ``nan`` where one of the maps is constant, which has no ranks.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, targets that are no
            class, a model that does not return ``[N, K]``, one without parameters, or a parameter out of its range.
        TypeError: For images or targets of another kind, an explainer that cannot be called, or a model that is no
            ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images, targets = torch.rand(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # knows no model
        >>> smooth_mprt(weights, model, images, targets, n_samples=2) < 1
        True
        >>> round(smooth_mprt(edges, model, images, targets, n_samples=2), 6)
        1.0
    """
    check_common(batch_size, reduction, seed)
    check_count("n_samples", n_samples)
    check_amount("noise", noise, above=False)
    check_module(model)
    samples = as_samples(model, images, targets)
    explain = ExplainerCaller(explainer, model, samples, batch_size)
    layers = learned_layers(explain.model)
    extent = samples.images.amax((1, 2, 3), keepdim=True) - samples.images.amin((1, 2, 3), keepdim=True)

    def smooth() -> Tensor:
        total = torch.zeros(len(samples), *samples.images.shape[2:], dtype=torch.float64)
        for number in range(n_samples):
            shake = draw(seed, len(layers) + number).standard_normal(samples.images.shape[1:])
            maps = explain(samples.images + noise * extent * torch.from_numpy(shake).to(samples.images))
            total += (maps.abs() if magnitude else maps) / n_samples
        return total

    original, correlations = centred_ranks(smooth()), []
    for index, layer in enumerate(layers):
        reinitialize(layer, seed, index)
        correlations.append(correlation(original, centred_ranks(smooth())))
    curve = torch.from_numpy(np.stack(correlations, 1))
    result = reduce_tensor(curve.mean(1), reduction, images)
    if return_curves:
        fractions = torch.arange(1, len(layers) + 1, dtype=torch.float64) / len(layers)
        return result, Curves(convert_like(images, fractions), convert_like(images, curve))
    return result
