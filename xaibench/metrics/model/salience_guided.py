"""Does what the map marks more weigh more with the model, group of pixels by group of pixels?"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from xaibench.core.checks import check_count
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import ModelOutput
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import Model, as_map_tensor, as_samples, check_common, reduce_tensor
from xaibench.metrics.shared.replaced_pixels import (
    Baseline,
    PixelOrder,
    constant,
    perturbed_scores_in_order,
    ranks,
    score_drops,
    unit_scaled,
)

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: What replaces a group: what replaces pixels elsewhere, or each image's own mean colour.
GroupBaseline: TypeAlias = "Baseline | Literal['mean']"


@described(
    MetricInfo(
        "SaCo",
        "model",
        higher_is_better=True,
        range=(-1.0, 1.0),
        meaning="Of all pairs of pixel groups, how much of their difference in the map is borne out by the model: the "
        "group that is marked more is missed more.",
        pitfalls="Tied groups count as borne out: a network that misses nothing finds every map right. Each group is "
        "replaced alone, so that pixels which stand in for each other are worth nothing. Values count, not only ranks.",
        class_name="SaCo",
        citation="Wu, Kang, Tang, Hong, Yan: On the Faithfulness of Vision Transformer Explanations, CVPR 2024, arXiv "
        "2404.01415",
    )
)
def saco(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    n_groups: int = 10,
    baseline: GroupBaseline = "mean",
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Salience-guided faithfulness coefficient: are pixels that are marked more missed more, and by how much?

    .. math:: \frac{\sum_{i<j} \pm\,(s_i - s_j)}{\sum_{i<j} (s_i - s_j)}, \qquad
        + \text{ where } f_y(x) - f_y(x \text{ without } G_i) \ge f_y(x) - f_y(x \text{ without } G_j)

    The pixels, ranked by the map, are cut into :math:`K` groups of one size, the most salient first; :math:`s_i` is
    what the map says of group :math:`G_i`. Wu et al. (2024), Section 3 and Algorithm 1. In [-1, 1]; higher is better, 1
    where the model misses groups in the order of the map. K + 1 passes an image.

    Departures: the authors take the class that the model predicts, here it is ``targets``. The map of a group is the
    mean over its pixels, not the sum, so that groups that differ by a pixel in size compare (the ratio is the same
    where they do not). Of "the per-sample mean" that replaces a group, that of each channel is taken. A fall by less
    than a millionth of the score is rounding, and none. Quantus, Captum, torch-cam and pytorch-grad-cam have no such
    metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        n_groups: So many, at least 2 (and never more than pixels).
        baseline: What replaces a group: ``"mean"`` of each image, a number, one a channel, ``"blur"``, or what
            broadcasts to the images.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The coefficient; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

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
    check_common(batch_size, reduction)
    check_count("n_groups", n_groups, least=2)
    samples = as_samples(model, images, targets)
    values, pixels = as_map_tensor(maps, samples), samples.pixels
    if isinstance(baseline, str) and baseline == "mean":
        baseline = samples.images.mean((2, 3), keepdim=True)
    number = min(n_groups, pixels)
    ends = [round(i * pixels / number) for i in range(number + 1)]
    spans = [(0, 0), *itertools.pairwise(ends)]
    place = ranks(values)
    scores = perturbed_scores_in_order(
        model,
        samples,
        lambda part: PixelOrder.of_pixels(place[part]),
        spans,
        baseline=baseline,
        reveal=False,
        output=output,
        batch_size=batch_size,
    )
    sizes = torch.tensor(ends, device=values.device).diff()
    group = torch.arange(number, device=values.device).repeat_interleave(sizes, output_size=pixels)
    scaled = unit_scaled(values).flatten(1)  # each by itself, which the ratio undoes
    mass = scaled.new_zeros(len(scaled), number).scatter_add_(1, group[place.flatten(1)], scaled)
    fall, mean = score_drops(scores), mass / sizes
    first, second = torch.triu_indices(number, number, 1, device=values.device)
    weight = (mean[:, first] - mean[:, second]).clamp_min(0)  # rounding may put equal groups the other way round
    borne_out = torch.where(fall[:, first] >= fall[:, second], weight, -weight)
    found = (borne_out.sum(1) / weight.sum(1)).clamp(-1, 1)
    found.masked_fill_(constant(values), torch.nan)
    return reduce_tensor(found, reduction, maps)
