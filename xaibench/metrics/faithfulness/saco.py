"""Salience-guided faithfulness coefficient (SaCo): do groups with a larger map value matter more to the model?"""

from __future__ import annotations

import itertools

import torch

from xaibench.core.checks import check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import Model, ModelOutput, checked_inputs, reduce_tensor
from xaibench.metrics.shared.perturb import (
    Baseline,
    PixelOrder,
    constant,
    perturbed_scores_in_order,
    ranks,
    score_drops,
    unit_scaled,
)
from xaibench.registry.info import MetricInfo


@MetricInfo(
    "SaCo",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Over all pairs of pixel groups: the share of the difference in map value for which the group with "
    "the larger value also lowers the model’s score more, minus the rest.",
    pitfalls="Ties count as agreement: on a network that ignores all groups, every map is right. Each group is "
    "replaced alone, so redundant pixels have no effect. Values count, not only ranks.",
    class_name="SaCo",
    citation="Wu, Kang, Tang, Hong, Yan: On the Faithfulness of Vision Transformer Explanations, CVPR 2024, arXiv "
    "2404.01415",
)
def saco(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    n_groups: int = 10,
    baseline: Baseline = "mean",
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Salience-guided faithfulness coefficient: do pixels with larger map values have more effect on the score?

    .. math:: \frac{\sum_{i<j} \pm\,(s_i - s_j)}{\sum_{i<j} (s_i - s_j)}, \qquad
        + \text{ where } f_y(x) - f_y(x \text{ without } G_i) \ge f_y(x) - f_y(x \text{ without } G_j)

    The pixels, ranked by the map, are divided into :math:`K` groups of equal size, the most salient first; :math:`s_i`
    is the map value of group :math:`G_i`. Wu et al. (2024), Section 3 and Algorithm 1. In [-1, 1]; higher is better, 1
    where the effect of the groups has the order of the map. K + 1 passes per image.

    Departures: the authors use the class that the model predicts; here it is ``targets``. The map value of a group is
    the mean over its pixels, not the sum, so that groups whose sizes differ by a pixel are comparable (the ratio is the
    same where they do not). "The per-sample mean" that replaces a group is taken per channel. A drop below a millionth
    of the score is treated as rounding, that is, as 0. Captum, Quantus, torch-cam and pytorch-grad-cam do not provide
    this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        n_groups: Number of groups, at least 2 (and at most the number of pixels).
        baseline: Values of replaced groups: ``"mean"`` of each image, a number, one number per channel, ``"blur"``, or
            an array that broadcasts to the images.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The coefficient; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.tensor([[4.0, 3.0], [2.0, 1.0]])
        >>> model = lambda images: (images * weight).sum((2, 3))
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> settings = {"baseline": 0.0, "output": "logit"}
        >>> saco(model, image, weight[None], target, **settings), saco(model, image, -weight[None], target, **settings)
        (1.0, -1.0)
        >>> map = torch.tensor([[[9.0, 1.0], [2.0, 0.0]]])  # two pixels the wrong way round, which differ by little
        >>> round(saco(model, image, map, target, **settings), 3)
        0.929
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    check_count("n_groups", n_groups, least=2)
    pixels = samples.pixels
    number = min(n_groups, pixels)
    ends = [round(i * pixels / number) for i in range(number + 1)]
    spans = [(0, 0), *itertools.pairwise(ends)]
    rank = ranks(values)
    order = lambda group: PixelOrder.of_pixels(rank[group])  # noqa: E731
    scores = perturbed_scores_in_order(model, samples, order, spans, baseline, output, batch_size)
    sizes = torch.tensor(ends, device=values.device).diff()
    group = torch.arange(number, device=values.device).repeat_interleave(sizes, output_size=pixels)
    scaled = unit_scaled(values).flatten(1)  # the scale of each map cancels in the ratio
    mass = scaled.new_zeros(len(scaled), number).scatter_add_(1, group[rank.flatten(1)], scaled)
    fall, mean = score_drops(scores), mass / sizes
    first, second = torch.triu_indices(number, number, 1, device=values.device)
    weight = (mean[:, first] - mean[:, second]).clamp_min(0)  # rounding may reverse equal groups
    agreeing = torch.where(fall[:, first] >= fall[:, second], weight, -weight)
    agreement = (agreeing.sum(1) / weight.sum(1)).clamp(-1, 1)
    return reduce_tensor(agreement.masked_fill_(constant(values), torch.nan), reduction, maps)
