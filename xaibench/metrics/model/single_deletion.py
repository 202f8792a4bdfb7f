"""Does the map order the patches of an image as their deletion moves the model, one patch at a time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xaibench.core.checks import check_count
from xaibench.core.part_info import AskedOnce, MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import ModelOutput
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import (
    LabeledImages,
    Model,
    as_map_tensor,
    as_samples,
    check_common,
    check_finite,
    reduce_tensor,
)
from xaibench.metrics.shared.rank_correlation import centred_ranks, correlation
from xaibench.metrics.shared.replaced_pixels import (
    Baseline,
    PixelOrder,
    constant,
    perturbed_scores_in_order,
    score_drops,
)
from xaibench.metrics.shared.undefined_scores import CONSTANT_MAP

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


def idsds_model_scores(
    model: Model,
    images: Array,
    targets: Array,
    *,
    grid_size: int = 4,
    baseline: Baseline = 0.0,
    output: ModelOutput = "logit",
    batch_size: int | None = None,
) -> Tensor:
    """What :func:`idsds` asks the model, whatever the map: the whole image, and each patch deleted alone.

    Returns:
        ``[N, 1 + patches]`` float64, on the device of the model.
    """
    return _asked(model, as_samples(model, images, targets), grid_size, baseline, output, batch_size)


def _asked(
    model: Model,
    samples: LabeledImages,
    grid_size: int,
    baseline: Baseline,
    output: ModelOutput,
    batch_size: int | None,
) -> Tensor:
    check_common(batch_size, "none")
    check_count("grid_size", grid_size, least=2)
    height, width = samples.images.shape[-2:]
    labels = _patches(height, width, grid_size).to(samples.images.device).reshape(height, width)
    # A pixel's place is the number of its patch, so that a patch is a span of one place.
    numbers = labels.expand(len(samples), -1, -1)
    spans = [(0, 0), *((number, number + 1) for number in range(int(labels.max()) + 1))]
    return perturbed_scores_in_order(
        model,
        samples,
        lambda part: PixelOrder.of_pixels(numbers[part]),
        spans,
        baseline=baseline,
        reveal=False,
        output=output,
        batch_size=batch_size,
    )


def idsds_from_scores(answers: Tensor, maps: Array, *, grid_size: int = 4, reduction: Reduction = "mean") -> Scores:
    """:func:`idsds` of maps ``[N, H, W]``, given what the model said (:func:`idsds_model_scores`)."""
    values = torch.as_tensor(maps).to(answers.device)
    check_finite(values, "maps")
    return reduce_tensor(_agreement(answers, values, grid_size), reduction, maps)


def _agreement(answers: Tensor, maps: Tensor, grid_size: int) -> Tensor:
    peak = maps.double().abs().amax((1, 2), keepdim=True)
    flat = (maps.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)  # so that no sum of huge values overflows
    labels = _patches(maps.shape[1], maps.shape[2], grid_size).to(flat.device)
    sums = flat.new_zeros(len(flat), answers.shape[1] - 1).index_add_(1, labels, flat)
    sums.masked_fill_(constant(maps)[:, None], 0)  # not the sizes of the patches
    both = torch.stack([sums, score_drops(answers)]).cpu()
    return torch.from_numpy(correlation(centred_ranks(both[0]), centred_ranks(both[1])))


def _patches(height: int, width: int, grid_size: int) -> Tensor:
    """The patch ``[H * W]`` of each pixel, numbered row by row; there are never more than pixels along a side."""
    rows, columns = min(grid_size, height), min(grid_size, width)
    down = torch.arange(height) * rows // height
    across = torch.arange(width) * columns // width
    return (down[:, None] * columns + across).flatten()


@described(
    MetricInfo(
        "IDSDS",
        "model",
        higher_is_better=True,
        range=(-1.0, 1.0),
        meaning="Rank correlation between what the map says of each patch of the image and how far the score of the "
        "class falls without it.",
        pitfalls="In the domain only of a network that has learned with patches deleted "
        "(`xb.models.fine_tune_for_deletion`): explain and ask that one. Patches that replace each other are worth "
        "nothing alone, and where the network looks within a patch is not seen.",
        undefined=(CONSTANT_MAP,),
        class_name="IDSDS",
        asked_once=AskedOnce(idsds_model_scores, idsds_from_scores),
        citation="Hesse, Schaub-Meyer, Roth: Benchmarking the Attribution Quality of Vision Models, NeurIPS 2024, "
        "arXiv 2407.11910",
    )
)
def idsds(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    grid_size: int = 4,
    baseline: Baseline = 0.0,
    output: ModelOutput = "logit",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""In-domain single deletion score: do the patches rank as the model's score falls when one of them is deleted?

    .. math:: \rho\Bigl(\bigl(\textstyle\sum_{p \in P_i} s_p\bigr)_i,\;
        \bigl(f_y(x) - f_y(x \text{ without } P_i)\bigr)_i\Bigr)

    with Spearman's rank correlation over the patches :math:`P_i` of a grid of 4×4, ties at their mean rank. Hesse et
    al. (2024), Section 3. In [-1, 1]; higher is better, and a random map scores 0 on average.

    Deletions are in the domain of a network that was trained on images of which half lack a random patch:
    :func:`xaibench.models.fine_tune_for_deletion` does that; explain and ask the network that it leaves. Without it
    this is the authors' single deletion score. What the model is asked, 17 passes an image, does not depend on the map:
    ``xb.evaluate`` and a suite ask once for all methods.

    Departures: the authors take images whose sides the grid divides; others are cut as evenly as can be. A fall by less
    than a millionth of the score is rounding, and none. Quantus, Captum, torch-cam and pytorch-grad-cam have no such
    metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        grid_size: Patches along each side, at least 2 (and never more than pixels).
        baseline: What replaces a patch: a number, one a channel, ``"blur"``, or what broadcasts to the images.
        output: ``"logit"``: the logit, as the authors; ``"probability"`` of logits, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The correlation; ``nan`` where all patches are equal, in the map (a constant one) or to the model.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: (images * torch.arange(16.0).reshape(4, 4)).sum((2, 3))
        >>> image, target = torch.ones(1, 1, 4, 4), torch.tensor([0])
        >>> map = torch.arange(16.0).reshape(1, 4, 4) ** 3
        >>> round(idsds(model, image, map, target), 6), round(idsds(model, image, -map, target), 6)
        (1.0, -1.0)
    """
    check_common(batch_size, reduction)
    samples = as_samples(model, images, targets)
    values = as_map_tensor(maps, samples)
    answers = _asked(model, samples, grid_size, baseline, output, batch_size)
    return reduce_tensor(_agreement(answers, values, grid_size), reduction, maps)
