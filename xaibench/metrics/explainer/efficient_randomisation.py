"""Does the map become more complex when the model forgets all that it has learned?

The metric is called ``(explainer, model, images, targets)``; :mod:`xaibench.metrics.shared.asked_explainer` says with
what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_explainer import ExplainerCaller, ExplainerFunction
from xaibench.metrics.shared.forgotten_layers import check_module, learned_layers, reinitialize
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import as_samples, check_common, reduce_tensor
from xaibench.metrics.shared.replaced_pixels import unit_scaled

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


@described(
    MetricInfo(
        "Efficient parameter randomisation",
        "explainer",
        higher_is_better=True,
        range=(-1.0, float("inf")),
        meaning="By what share the entropy of the map's values rises when all weights of the network are made random. "
        "About 0: the map takes no notice of the network.",
        pitfalls="A map that is complex already cannot become much more so, and entropy does not see where the values "
        "lie: another map of equal complexity scores 0.",
        class_name="EfficientMPRT",
        citation="Hedström, Weber, Lapuschkin, Höhne: Sanity Checks Revisited: An Exploration to Repair the Model "
        "Parameter Randomisation Test, 2024, arXiv 2401.06465",
    )
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
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Efficient MPRT: the relative rise of the map's complexity once the model has forgotten all that it has learned.

    .. math:: \frac{H\bigl(g(\hat f)(x)\bigr) - H\bigl(g(f)(x)\bigr)}{H\bigl(g(f)(x)\bigr)}, \qquad
        H(s) = -\sum_b p_b \ln p_b

    :math:`\hat f` is the network all of whose layers are random, :math:`p_b` the share of the map's values in bin
    :math:`b` of ``n_bins`` of equal width between the smallest and the largest. Hedström et al. (2024), Section 4.2:
    what random weights add to a map that shows the network is disorder. From -1; higher is better. Two explanations an
    image, whatever the number of layers.

    Departures: the authors choose the number of bins by the whole batch; here it is stated, and a sample is scored by
    itself. Quantus' ``EfficientMPRT`` has 100 bins unless it is given a rule, and may scale and take magnitudes first;
    scaling moves no bin. Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained; a copy of it is randomised.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        n_bins: Of the histogram, at least 2.
        magnitude: Take ``|map|`` instead of the map.
        seed: Of the new parameters.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The rise; ``nan`` where the map of the network is constant, whose entropy is 0.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, targets that are no
            class, a model that does not return ``[N, K]``, one without parameters, or a parameter out of its range.
        TypeError: For images or targets of another kind, an explainer that cannot be called, or a model that is no
            ``torch.nn.Module``.

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
    samples = as_samples(model, images, targets)
    explain = ExplainerCaller(explainer, model, samples, batch_size)
    layers = learned_layers(explain.model)
    learned = _entropies(explain(samples.images), magnitude, n_bins)
    for index, layer in enumerate(reversed(layers)):  # the network that parameter_randomisation ends with
        reinitialize(layer, seed, index)
    forgotten = _entropies(explain(samples.images), magnitude, n_bins)
    rise = np.full(len(learned), np.nan)
    np.divide(forgotten - learned, learned, out=rise, where=learned > 0)
    return reduce_tensor(torch.from_numpy(rise), reduction, images)


def _entropies(maps: Tensor, magnitude: bool, bins: int) -> NDArray[np.float64]:
    """Of the histogram of each map, in nats; 0 for a constant one."""
    flat = (
        unit_scaled(maps.abs() if magnitude else maps).flatten(1).nan_to_num()
    )  # the range of huge values is no float
    counts = np.stack([np.histogram(values, bins, (0.0, 1.0))[0] for values in flat.numpy()])
    shares = counts / flat.shape[1]
    logarithms = np.log(shares, out=np.zeros_like(shares), where=counts > 0)
    found: NDArray[np.float64] = np.abs((shares * logarithms).sum(1))
    return found
