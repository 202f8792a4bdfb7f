"""Parameter randomization test: does the map change when the model's parameters become random?

The metric is called with ``(explainer, model, images, targets)``; see :mod:`xaibench.metrics.shared.explainer_calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.component.info import MetricInfo
from xaibench.core.types import Reduction
from xaibench.metrics.shared.explainer_calls import ExplainerCaller, ExplainerFunction
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import as_samples, check_common, convert_like, reduce_tensor
from xaibench.metrics.shared.model_scores import ModelOutput
from xaibench.metrics.shared.perturbed_images import Curves
from xaibench.metrics.shared.randomized_layers import check_module, layers_with_parameters, reinitialize
from xaibench.metrics.shared.rank_correlation import centered_ranks, correlation

if TYPE_CHECKING:
    from xaibench.core.types import Array


@MetricInfo(
    "Parameter randomization",
    "explainer",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="Rank correlation of the map with the maps of the same network while its weights are randomized "
    "layer by layer, starting with the last. 1: the map does not depend on the network.",
    pitfalls="A map of pure noise scores as well as a good one: it is a test to pass, not a ranking. Methods "
    "that multiply by the image keep its structure on any network. For maps with arbitrary sign use "
    "`magnitude=True`.",
    picture="maps of forgetting layers",
    citation="Adebayo, Gilmer, Muelly, Goodfellow, Hardt, Kim: Sanity Checks for Saliency Maps, NeurIPS 2018, "
    "arXiv 1810.03292",
)
def parameter_randomization(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Similarity of the map to maps of the same model with random parameters, layer by layer from the top.

    .. math:: \frac{1}{L} \sum_{l=1}^{L} \rho\bigl(g(f)(x),\; g(f_l)(x)\bigr)

    with Spearman's rank correlation over the pixels (ties get their mean rank), and :math:`f_l` the network whose last
    l layers are random. Cascading randomization of Adebayo et al. (2018), Section 3.1; the mean over the layers
    summarizes their curves. In [-1, 1]; lower is better: a map that survives the randomization does not explain the
    parameters.

    Layers are the modules with parameters of their own, in reverse order of registration. Each is initialized again
    with its ``reset_parameters`` (normalizations also reset their running statistics). Parameters of a module without
    that method are drawn from a normal distribution with their mean and standard deviation. The paper also draws from
    the initial distribution.

    Departures: Quantus' ``MPRT`` returns the correlations of each layer by default.
    Captum, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network; a copy of it is randomized.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        magnitude: Rank pixels by ``|map|`` instead of by the map (the paper reports both).
        seed: Seed of the random parameters.
        output: The output that the explainer explains, which decides what the classes are: ``"sigmoid"`` for
            independent labels and networks with one output, or the function of the outputs.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves are the correlations over the share of random layers.

    Returns:
        The mean correlation; ``nan`` where one of the maps is constant, which has no ranks.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, or the model does
            not return ``[N, K]`` or has no parameters.
        TypeError: If images or targets are not arrays or tensors of a suitable type, the explainer is not callable, or
            the model is not a ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # ignores the model
        >>> parameter_randomization(weights, model, images, targets) < 1
        True
        >>> round(parameter_randomization(edges, model, images, targets), 6)
        1.0
    """
    check_common(batch_size, reduction, seed)
    check_module(model)
    samples = as_samples(model, images, targets, output)
    explain = ExplainerCaller(explainer, model, samples, batch_size, output)
    layers = layers_with_parameters(explain.model)
    original = _ranked(explain(samples.images), magnitude)
    correlations = []
    for index, layer in enumerate(reversed(layers)):
        reinitialize(layer, seed, index)
        correlations.append(correlation(original, _ranked(explain(samples.images), magnitude)))
    curve = torch.from_numpy(np.stack(correlations, 1))
    result = reduce_tensor(curve.mean(1), reduction, images)
    if return_curves:
        fractions = torch.arange(1, len(layers) + 1, dtype=torch.float64) / len(layers)
        return result, Curves(convert_like(images, fractions), convert_like(images, curve))
    return result


def _ranked(maps: Tensor, magnitude: bool) -> NDArray[np.float64]:
    return centered_ranks(maps.abs() if magnitude else maps)
