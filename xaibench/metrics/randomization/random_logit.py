"""Random logit test: does the map change when another class is explained?

The metric is called with ``(explainer, model, images, targets)``; see :mod:`xaibench.metrics.shared.explainer_calls`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy.ndimage import uniform_filter
from torch import nn

from xaibench.component.info import MetricInfo
from xaibench.core.checks import check_choice
from xaibench.core.types import Array, Floats, Reduction
from xaibench.metrics.shared.explainer_calls import ExplainerFunction, explainer_inputs
from xaibench.metrics.shared.inputs import Scores, without_unit_axes
from xaibench.metrics.shared.model_scores import ModelOutput, random_generator, reduce_tensor
from xaibench.metrics.shared.ranks import centered_ranks, correlation

#: Similarity of two maps: structural similarity, or Spearman's rank correlation.
Similarity: TypeAlias = Literal["ssim", "spearman"]

# Structural similarity (Wang et al. 2004) as in scikit-image: a window of 7 × 7, and two small constants.
_WINDOW, _K1, _K2 = 7, 0.01, 0.03


@MetricInfo(
    "Random logit",
    "explainer",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="Similarity of the map to the map of another, randomly chosen class. 1: the map does not depend on "
    "the class.",
    pitfalls="A map of pure noise passes: it is a test to pass, not a ranking. With two classes, the correct map of "
    "the other class may be the same map with opposite sign, which `magnitude=True` treats as the same map.",
    citation="Sixt, Granz, Landgraf: When Explanations Lie: Why Many Modified BP Attributions Fail, ICML 2020, "
    "arXiv 1912.09818",
)
def random_logit(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    similarity: Similarity = "ssim",
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Similarity of the target's map to the map of another class.

    .. math:: \mathrm{SSIM}\bigl(g_y(f)(x),\; g_{y'}(f)(x)\bigr), \qquad y' \ne y \text{ at random}

    Sixt et al. (2020), Section 4: maps of methods whose propagation converges look the same for every logit. In [-1,
    1]; lower is better. SSIM is the structural similarity of Wang et al. (2004) in windows of 7×7 pixels (in smaller
    images, the largest odd side that fits); its data range is that of both maps together.

    Departures: the authors also plot SSIM over the layers of the network, and scale each map to [0, 1]. Quantus'
    ``RandomLogit`` draws a class for each position in the batch; here the class index is shifted by the same random
    number for all samples, so that a score does not depend on other samples. Captum, torch-cam and pytorch-grad-cam do
    not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        similarity: ``"ssim"`` or ``"spearman"`` (rank correlation; ties get their mean rank).
        magnitude: Compare ``|map|`` instead of the maps.
        seed: Seed of the other class.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The similarity; ``nan`` where one of the maps is constant, which has neither structure nor ranks.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, or the model does
            not return ``[N, K]`` with at least two classes.
        TypeError: If images or targets are not arrays or tensors of a suitable type, or the explainer or the model is
            not callable.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # ignores the class
        >>> random_logit(weights, model, images, targets, similarity="spearman") < 1
        True
        >>> round(random_logit(edges, model, images, targets, similarity="spearman"), 6)
        1.0
    """
    check_choice("similarity", similarity, ("ssim", "spearman"))
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    if explain.classes < 2:
        raise ValueError(
            "The model has one output, but the metric needs at least two classes. Pass a model with one output per "
            "class, or output='sigmoid', by which a single output has two classes."
        )
    further = int(random_generator(seed, 0).integers(1, explain.classes))
    others = (samples.targets + further) % explain.classes
    pair = explain(samples.images), explain(samples.images, others)
    one, other = (maps.abs() if magnitude else maps for maps in pair)
    if similarity == "spearman":
        scores = correlation(centered_ranks(one), centered_ranks(other))
    else:
        scores = np.array([_ssim(a, b) for a, b in zip(one.numpy(), other.numpy(), strict=True)])
    return reduce_tensor(torch.from_numpy(scores), reduction, images)


def _ssim(one: Floats, other: Floats) -> float:
    """Return the mean structural similarity of two maps, over the windows inside the image; cubic ones in a volume."""
    if (one == one.flat[0]).all() or (other == other.flat[0]).all():
        return float("nan")
    peak = max(np.abs(one).max(), np.abs(other).max())
    sides = without_unit_axes(one.shape)
    # Scaling keeps squares of huge and tiny values in the range of float64.
    one, other = one.reshape(sides) / peak, other.reshape(sides) / peak
    window = min(_WINDOW, (min(one.shape) - 1) // 2 * 2 + 1)
    extent = max(one.max(), other.max()) - min(one.min(), other.min())
    least = (_K1 * extent) ** 2, (_K2 * extent) ** 2
    count = window**one.ndim
    means = [uniform_filter(values, window) for values in (one, other, one * one, other * other, one * other)]
    unbiased = count / max(1, count - 1)
    varies, other_varies = unbiased * (means[2] - means[0] ** 2), unbiased * (means[3] - means[1] ** 2)
    vary = unbiased * (means[4] - means[0] * means[1])
    above = (2 * means[0] * means[1] + least[0]) * (2 * vary + least[1])
    below = (means[0] ** 2 + means[1] ** 2 + least[0]) * (varies + other_varies + least[1])
    edge = window // 2
    inner = tuple(slice(edge, size - edge) for size in sides)
    return float(np.clip((above / below)[inner].mean(), -1.0, 1.0))
