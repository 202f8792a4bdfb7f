"""Efficient parameter randomization test: does the map become more complex when the model's parameters are random?

The metric is called with ``(explainer, model, images, targets)``; see :mod:`xaibench.metrics.shared.explainer_calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.component.info import MetricInfo
from xaibench.core.checks import check_count
from xaibench.core.types import Reduction
from xaibench.metrics.shared.explainer_calls import ExplainerCaller, ExplainerFunction
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import as_samples, check_common, reduce_tensor
from xaibench.metrics.shared.model_scores import ModelOutput
from xaibench.metrics.shared.perturbed_images import unit_scaled
from xaibench.metrics.shared.randomized_layers import check_module, layers_with_parameters, reinitialize

if TYPE_CHECKING:
    from xaibench.core.types import Array


@MetricInfo(
    "Efficient parameter randomization",
    "explainer",
    higher_is_better=True,
    range=(-1.0, float("inf")),
    meaning="Relative increase of the entropy of the map’s values when all weights of the network are random. "
    "About 0: the map does not depend on the network.",
    pitfalls="A map that is already complex cannot become much more complex. Entropy ignores positions: a "
    "different map of equal complexity scores 0.",
    class_name="EfficientMPRT",
    citation="Hedström, Weber, Lapuschkin, Höhne: Sanity Checks Revisited: An Exploration to Repair the Model "
    "Parameter Randomization Test, 2024, arXiv 2401.06465",
)
def efficient_mprt(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    n_bins: int = 100,
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Efficient MPRT: relative increase of the map's complexity when all parameters of the model are random.

    .. math:: \frac{H\bigl(g(\hat f)(x)\bigr) - H\bigl(g(f)(x)\bigr)}{H\bigl(g(f)(x)\bigr)}, \qquad
        H(s) = -\sum_b p_b \ln p_b

    :math:`\hat f` is the network with random parameters in all layers; :math:`p_b` is the share of the map's values in
    bin :math:`b` of ``n_bins`` bins of equal width between the smallest and the largest value. Hedström et al. (2024),
    Section 4.2: random weights make a faithful map more disordered. At least -1; higher is better. Two explanations per
    image, regardless of the number of layers.

    Departures: the authors choose the number of bins from the whole batch; here it is a parameter, and samples are
    scored independently. Quantus' ``EfficientMPRT`` has 100 bins by default, and may scale maps and use magnitudes
    first; scaling does not change the bins. Captum, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network; a copy of it is randomized.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        n_bins: Number of bins of the histogram, at least 2.
        magnitude: Use ``|map|`` instead of the map.
        seed: Seed of the random parameters.
        output: The output that the explainer explains, which decides what the classes are: ``"sigmoid"`` for
            independent labels and networks with one output, or the function of the outputs.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The increase; ``nan`` where the original map is constant, whose entropy is 0.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, the model does not
            return ``[N, K]`` or has no parameters, or a parameter is out of range.
        TypeError: If images or targets are not arrays or tensors of a suitable type, the explainer is not callable, or
            the model is not a ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> model[1].weight.data = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])  # it looks at one pixel
        >>> images, targets = torch.rand(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> efficient_mprt(weights, model, images, targets) > 0.5
        True
    """
    check_common(batch_size, reduction, seed)
    check_count("n_bins", n_bins, least=2)
    check_module(model)
    samples = as_samples(model, images, targets, output)
    explain = ExplainerCaller(explainer, model, samples, batch_size, output)
    layers = layers_with_parameters(explain.model)
    original = _entropies(explain(samples.images), magnitude, n_bins)
    for index, layer in enumerate(reversed(layers)):  # the final network of parameter_randomization
        reinitialize(layer, seed, index)
    randomized = _entropies(explain(samples.images), magnitude, n_bins)
    rise = np.full(len(original), np.nan)
    np.divide(randomized - original, original, out=rise, where=original > 0)
    return reduce_tensor(torch.from_numpy(rise), reduction, images)


def _entropies(maps: Tensor, magnitude: bool, bins: int) -> NDArray[np.float64]:
    """Return the entropy of each map's histogram in nats; 0 for a constant map."""
    # Constant maps are NaN after scaling.
    flat = unit_scaled(maps.abs() if magnitude else maps).flatten(1).nan_to_num()
    counts = np.stack([np.histogram(values, bins, (0.0, 1.0))[0] for values in flat.numpy()])
    shares = counts / flat.shape[1]
    logarithms = np.log(shares, out=np.zeros_like(shares), where=counts > 0)
    found: NDArray[np.float64] = np.abs((shares * logarithms).sum(1))
    return found
