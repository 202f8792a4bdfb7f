"""Does the map change when another class is explained? The random logit test.

The metric is called ``(explainer, model, images, targets)``; :mod:`xaibench.metrics.shared.asked_explainer` says with
what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from torch import nn

from xaibench.core.checks import check_choice
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_explainer import ExplainerCaller, ExplainerFunction
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import as_samples, check_common, draw, reduce_tensor
from xaibench.metrics.shared.rank_correlation import centred_ranks, correlation

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: How alike two maps are: structural similarity, or Spearman's rank correlation.
Similarity: TypeAlias = Literal["ssim", "spearman"]

# Of structural similarity (Wang et al. 2004), as scikit-image has it: a window of 7 × 7, and two small constants.
_WINDOW, _K1, _K2 = 7, 0.01, 0.03


@described(
    MetricInfo(
        "Random logit",
        "explainer",
        higher_is_better=False,
        range=(-1.0, 1.0),
        meaning="How alike the map is to that of another class, drawn at random. 1: the map takes no notice of the "
        "class.",
        pitfalls="A map of pure noise passes: it is a test to pass, not a ranking. With two classes the right map of "
        "the other may be the same with its sign turned, which `magnitude=True` takes for the same map.",
        citation="Sixt, Granz, Landgraf: When Explanations Lie: Why Many Modified BP Attributions Fail, ICML 2020, "
        "arXiv 1912.09818",
    )
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
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""How alike the map of the target is to the map of another class.

    .. math:: \mathrm{SSIM}\bigl(g_y(f)(x),\; g_{y'}(f)(x)\bigr), \qquad y' \ne y \text{ at random}

    Sixt et al. (2020), Section 4: maps of methods whose propagation converges look the same whichever logit they begin
    at. In [-1, 1]; lower is better. SSIM is the structural similarity of Wang et al. (2004) in windows of 7×7 pixels
    (the largest odd side that fits where an image is smaller), its range that of the two maps together.

    Departures: the authors print curves of SSIM over the networks' layers beside it, and scale maps to [0, 1] by
    themselves. Quantus' ``RandomLogit`` draws the class anew for each place in the batch; here it is as many classes on
    for all samples, so that none sees its neighbours. Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        similarity: ``"ssim"`` or ``"spearman"`` (rank correlation, ties at their mean rank).
        magnitude: Compare ``|map|`` instead of the maps.
        seed: Of the other class.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The similarity; ``nan`` where one of the maps is constant, which has neither structure nor ranks.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, targets that are no
            class, or a model that does not return ``[N, K]`` with at least two classes.
        TypeError: For images or targets of another kind, or an explainer or a model that cannot be called.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # knows no class
        >>> random_logit(weights, model, images, targets, similarity="spearman") < 1
        True
        >>> round(random_logit(edges, model, images, targets, similarity="spearman"), 6)
        1.0
    """
    check_common(batch_size, reduction, seed)
    check_choice("similarity", similarity, ("ssim", "spearman"))
    samples = as_samples(model, images, targets)
    explain = ExplainerCaller(explainer, model, samples, batch_size)
    if explain.classes < 2:
        raise ValueError("The model has one class, expected another to explain; give a model that tells classes apart.")
    further = int(draw(seed, 0).integers(1, explain.classes))
    others = (samples.targets + further) % explain.classes
    pair = explain(samples.images), explain(samples.images, others)
    one, other = (maps.abs() if magnitude else maps for maps in pair)
    if similarity == "spearman":
        found = correlation(centred_ranks(one), centred_ranks(other))
    else:
        found = np.array([_ssim(a, b) for a, b in zip(one.numpy(), other.numpy(), strict=True)])
    return reduce_tensor(torch.from_numpy(found), reduction, images)


def _ssim(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Mean structural similarity ``[H, W]`` of two maps, over the windows that lie within."""
    if _is_constant(one) or _is_constant(other):
        return float("nan")
    peak = max(np.abs(one).max(), np.abs(other).max())
    one, other = one / peak, other / peak  # so that no square of a huge or a tiny value leaves float64
    window = min(_WINDOW, (min(one.shape) - 1) // 2 * 2 + 1)
    extent = max(one.max(), other.max()) - min(one.min(), other.min())
    least = (_K1 * extent) ** 2, (_K2 * extent) ** 2
    count = window**2
    means = [uniform_filter(values, window) for values in (one, other, one * one, other * other, one * other)]
    unbiased = count / max(1, count - 1)
    varies, other_varies, vary = (
        unbiased * (means[2] - means[0] ** 2),
        unbiased * (means[3] - means[1] ** 2),
        unbiased * (means[4] - means[0] * means[1]),
    )
    above = (2 * means[0] * means[1] + least[0]) * (2 * vary + least[1])
    below = (means[0] ** 2 + means[1] ** 2 + least[0]) * (varies + other_varies + least[1])
    edge = window // 2
    inner = slice(edge, one.shape[0] - edge), slice(edge, one.shape[1] - edge)
    return float(np.clip((above / below)[inner].mean(), -1.0, 1.0))


def _is_constant(values: NDArray[np.float64]) -> bool:
    return bool((values == values.flat[0]).all())
