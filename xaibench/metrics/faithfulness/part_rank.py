"""Single deletion of parts: does the map rank the parts of an object as their removal changes the score?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from xaibench.core.checks import check_choice, check_finite
from xaibench.core.types import Array, Reduction
from xaibench.metrics.faithfulness.idsds import deletion_scores
from xaibench.metrics.shared.inputs import CONSTANT_MAP, Scores
from xaibench.metrics.shared.model_scores import (
    LabeledImages,
    Model,
    ModelOutput,
    as_samples,
    checked_inputs,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import constant, patch_numbers, peaks, score_drops
from xaibench.metrics.shared.ranks import centered_ranks, correlation
from xaibench.registry.info import MetricInfo, SharedModelScores

#: Importance of a part: the sum of the map over its pixels, or their mean, which does not depend on its area.
PartImportance: TypeAlias = Literal["sum", "mean"]

#: Patches along each side that are the parts of an image whose parts are not known.
_GRID_SIZE = 4


def part_rank_model_scores(
    model: Model,
    images: Array,
    targets: Array,
    *,
    parts: Array | None = None,
    behind: Array | None = None,
    output: ModelOutput = "logit",
    batch_size: int | None = None,
) -> Tensor:
    """Return the model's scores for :func:`part_rank`, which do not depend on the map.

    Returns:
        ``[N, 1 + P]`` float64, on the device of the model: the whole image, then without each part.
    """
    samples = as_samples(model, images, targets, output)
    return _removal_scores(
        model, samples, _part_numbers(parts, samples.images, samples.images.shape[2:]), behind, output, batch_size
    )


def _removal_scores(
    model: Model,
    samples: LabeledImages,
    numbers: Tensor,
    behind: Array | None,
    output: ModelOutput,
    batch_size: int | None,
) -> Tensor:
    return deletion_scores(model, samples, numbers - 1, 0.0 if behind is None else behind, output, batch_size)


def part_rank_from_scores(
    scores: Tensor,
    maps: Array,
    *,
    parts: Array | None = None,
    importance: PartImportance = "sum",
    reduction: Reduction = "mean",
) -> Scores:
    """Return :func:`part_rank` of maps ``[N, H, W]`` from the scores of :func:`part_rank_model_scores`."""
    values = torch.as_tensor(maps).to(scores.device)
    check_finite(values, "maps")
    return reduce_tensor(
        _correlation(scores, values, _part_numbers(parts, values, values.shape[1:]), importance), reduction, maps
    )


def _part_numbers(parts: Array | None, like: Tensor, sides: Sequence[int]) -> Tensor:
    """Return the part ``[N, H, W]`` of each pixel, from 1; 0 = none. Patches of a grid if the parts are not known."""
    if parts is None:
        return (patch_numbers(sides, _GRID_SIZE) + 1).expand(len(like), *sides).to(like.device)
    numbers = torch.as_tensor(parts)
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise TypeError(
            f"parts are {numbers.dtype}, expected integers: the number of the part of each pixel, 0 = none."
        )
    if numbers.ndim == len(sides):
        numbers = numbers[None]
    if numbers.shape != (len(like), *sides):
        raise ValueError(f"parts are {list(numbers.shape)}, expected {[len(like), *sides]}: one number per pixel.")
    if numbers.numel() and int(numbers.min()) < 0:
        raise ValueError(f"parts contain {int(numbers.min())}, expected numbers from 1, and 0 for the background.")
    return numbers.long().to(like.device)


def _correlation(scores: Tensor, maps: Tensor, numbers: Tensor, importance: PartImportance) -> Tensor:
    check_choice("importance", importance, get_args(PartImportance))
    peak = peaks(maps.double())
    flat = (maps.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)  # avoids overflow in sums of huge values
    labels, count = numbers.flatten(1), scores.shape[1]
    sums = flat.new_zeros(len(flat), count).scatter_add_(1, labels, flat)[:, 1:]
    areas = flat.new_zeros(len(flat), count).scatter_add_(1, labels, torch.ones_like(flat))[:, 1:]
    values = sums / areas.clamp_min(1) if importance == "mean" else sums
    values.masked_fill_(constant(maps)[:, None], 0)  # otherwise the areas would decide
    both = torch.stack([values, score_drops(scores), (areas > 0).double()]).cpu()  # waits for the device once
    coefficients = torch.full((len(flat),), torch.nan, dtype=torch.float64)
    for number, visible in enumerate(both[2] > 0):
        pair = both[:2, number, visible]
        if pair.shape[1] > 1:
            ranks = centered_ranks(pair)
            coefficients[number] = correlation(ranks[:1], ranks[1:])[0]
    return coefficients


@MetricInfo(
    "Part rank",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Rank correlation between the sum of the map over each part of the object and the drop of the class’s "
    "score when the part is removed. 0: no better than a random order of the parts.",
    pitfalls="With seven parts, the correlation of a single image is coarse: read the mean. Sums of nonnegative "
    'maps favor large parts: compare with the control `center_prior`, or use `importance="mean"`. A part that '
    "another one makes redundant has little effect when it is removed alone. Without known parts, the parts are "
    "patches of a 4×4 grid that are set to 0, as in `idsds`.",
    undefined=(CONSTANT_MAP,),
    class_name="PartRank",
    shared_scores=SharedModelScores(part_rank_model_scores, part_rank_from_scores),
    sample_inputs=("parts", "behind"),
    citation="Hesse, Schaub-Meyer, Roth: FunnyBirds: A Synthetic Vision Dataset for a Part-Based Analysis of "
    "Explainable AI Methods, ICCV 2023, arXiv 2308.06248",
)
def part_rank(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    parts: Array | None = None,
    behind: Array | None = None,
    importance: PartImportance = "sum",
    output: ModelOutput = "logit",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Rank correlation between the map's sum over each part and the effect of removing the part.

    .. math:: \rho\Bigl(\bigl(\textstyle\sum_{p \in P_i} s_p\bigr)_i,\;
        \bigl(f_y(x) - f_y(x \text{ without } P_i)\bigr)_i\Bigr)

    with Spearman's rank correlation over the parts :math:`P_i` of the object that are visible; ties get their mean
    rank. This is the *single deletion* protocol of FunnyBirds (Hesse et al. 2023, Section 4). In [-1, 1], and higher
    is better. A map whose order of the parts is random scores 0 on average.

    ``xb.evaluate`` and suites take the parts from the data set (``xb.load("parts/creatures-96x96")``), and what is
    behind them: the image without a part shows the scene as if the part had never been there. The model calls do not
    depend on the map, so all methods share them.

    Departures: the released code rescales the correlation to [0, 1], and adds the map within two pixels around a part
    to its sum; here, a pixel belongs to one part. ``importance="mean"`` is not in the paper; it divides the sum by the
    visible area of the part. A drop below a millionth of the score is treated as rounding, that is, as 0. Captum,
    Quantus, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        parts: ``[N, H, W]`` integers: the number of the part that is visible in each pixel, starting at 1; 0 is the
            background, which is not removed. ``None``: patches of a 4×4 grid.
        behind: ``[N, C, H, W]``: what a pixel shows if the part that is visible in it is removed. ``None``: zeros.
        importance: Importance of a part: ``"sum"`` of the map over its pixels, as the authors, or their ``"mean"``,
            which does not depend on the area of the part.
        output: Class score: ``"logit"`` as the authors, ``"probability"``, ``"margin"`` or a callable; see
            :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The correlation; ``nan`` where fewer than two parts are visible, or all of them have the same importance (such
        as for a constant map) or the same effect on the model.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps, targets or parts are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: (images * torch.tensor([4.0, 2.0, 1.0, 0.0])).sum((2, 3))
        >>> image, target, parts = torch.ones(1, 1, 1, 4), torch.tensor([0]), torch.tensor([[[1, 2, 3, 0]]])
        >>> map = torch.tensor([[[0.9, 0.1, 0.3, 5.0]]])
        >>> round(part_rank(model, image, map, target, parts=parts), 6)  # parts 2 and 3 are the wrong way round
        0.5
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    numbers = _part_numbers(parts, samples.images, samples.images.shape[2:])
    scores = _removal_scores(model, samples, numbers, behind, output, batch_size)
    return reduce_tensor(_correlation(scores, values, numbers, importance), reduction, maps)
