"""In-domain single deletion score (IDSDS): does the map rank patches as their deletion changes the score?"""

from __future__ import annotations

import torch
from torch import Tensor

from xaibench.core.checks import check_count, check_finite
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import CONSTANT_MAP, Scores
from xaibench.metrics.shared.model_scores import (
    LabeledImages,
    Model,
    ModelOutput,
    as_samples,
    check_common,
    checked_inputs,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import (
    Baseline,
    PixelOrder,
    patch_numbers,
    patch_sums,
    perturbed_scores_in_order,
    score_drops,
)
from xaibench.metrics.shared.ranks import centered_ranks, correlation
from xaibench.registry.info import MetricInfo, SharedModelScores


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
    """Return the model's scores for :func:`idsds`, which do not depend on the map.

    Returns:
        ``[N, 1 + patches]`` float64, on the device of the model: the whole image, then without each patch.
    """
    samples = as_samples(model, images, targets, output)
    return deletion_scores(model, samples, _grid_of(samples, grid_size), baseline, output, batch_size)


def deletion_scores(
    model: Model,
    samples: LabeledImages,
    numbers: Tensor,
    baseline: Baseline,
    output: ModelOutput,
    batch_size: int | None,
) -> Tensor:
    """Return the model's scores ``[N, 1 + P]``: the whole image, then without each of its segments.

    Args:
        model: The model.
        samples: Images and targets.
        numbers: ``[N, H, W]`` number of the segment of each pixel, from 0 to P - 1; -1 is never deleted.
        baseline: Values of a deleted segment.
        output: Class score.
        batch_size: Rows per forward pass.
    """
    check_common(batch_size, "none")
    # The position of a pixel is the number of its segment, so a segment is a span of length one.
    spans = [(0, 0), *((number, number + 1) for number in range(int(numbers.max()) + 1))]
    order = lambda group: PixelOrder.of_pixels(numbers[group])  # noqa: E731
    return perturbed_scores_in_order(model, samples, order, spans, baseline, output, batch_size)


def _grid_of(samples: LabeledImages, grid_size: int) -> Tensor:
    check_count("grid_size", grid_size, least=2)
    labels = patch_numbers(samples.images.shape[2:], grid_size)
    return labels.to(samples.images.device).expand(len(samples), *labels.shape)


def idsds_from_scores(scores: Tensor, maps: Array, *, grid_size: int = 4, reduction: Reduction = "mean") -> Scores:
    """Return :func:`idsds` of maps ``[N, H, W]`` from the scores of :func:`idsds_model_scores`."""
    values = torch.as_tensor(maps).to(scores.device)
    check_finite(values, "maps")
    return reduce_tensor(_correlation(scores, values, grid_size), reduction, maps)


def _correlation(scores: Tensor, maps: Tensor, grid_size: int) -> Tensor:
    both = torch.stack([patch_sums(maps, grid_size), score_drops(scores)]).cpu()
    return torch.from_numpy(correlation(centered_ranks(both[0]), centered_ranks(both[1])))


@MetricInfo(
    "IDSDS",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Rank correlation between the sum of the map over each patch of the image and the drop of the "
    "class’s score without that patch.",
    pitfalls="In-domain only for a network that was trained with deleted patches "
    "(`xb.models.fine_tune_for_deletion`): explain and evaluate that network. Redundant patches have no "
    "effect when deleted alone, and the position within a patch does not matter.",
    undefined=(CONSTANT_MAP,),
    class_name="IDSDS",
    shared_scores=SharedModelScores(idsds_model_scores, idsds_from_scores),
    citation="Hesse, Schaub-Meyer, Roth: Benchmarking the Attribution Quality of Vision Models, NeurIPS 2024, "
    "arXiv 2407.11910",
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
    r"""In-domain single deletion score: rank correlation between patches of the map and the effect of deleting them.

    .. math:: \rho\Bigl(\bigl(\textstyle\sum_{p \in P_i} s_p\bigr)_i,\;
        \bigl(f_y(x) - f_y(x \text{ without } P_i)\bigr)_i\Bigr)

    with Spearman's rank correlation over the patches :math:`P_i` of a 4×4 grid; ties get their mean rank. Hesse et al.
    (2024), Section 3. In [-1, 1]; higher is better, and a random map scores 0 on average.

    Deletions are in-domain for a network that was trained on images of which half lack a random patch.
    :func:`xaibench.models.fine_tune_for_deletion` trains such a network; explain and evaluate its result. Without it,
    this is the authors' single deletion score. The 17 model calls per image do not depend on the map: ``xb.evaluate``
    and suites share them between all methods.

    Departures: the authors use images whose sides are multiples of the grid size; other images are divided as evenly as
    possible. A drop below a millionth of the score is treated as rounding, that is, as 0. Captum, Quantus, torch-cam
    and pytorch-grad-cam do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        grid_size: Patches along each side, at least 2 (and at most the number of pixels). The model is called once per
            patch: 4 gives 16 patches of an image and 64 of a volume.
        baseline: Values of a deleted patch: a number, one number per channel, ``"blur"``, ``"mean"``, or an array that
            broadcasts to the images.
        output: Class score: ``"logit"`` as the authors, ``"probability"``, ``"margin"`` or a callable; see
            :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The correlation; ``nan`` where all patches have the same map value (a constant map) or the same effect on the
        model.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: (images * torch.arange(16.0).reshape(4, 4)).sum((2, 3))
        >>> image, target = torch.ones(1, 1, 4, 4), torch.tensor([0])
        >>> map = torch.arange(16.0).reshape(1, 4, 4) ** 3
        >>> round(idsds(model, image, map, target), 6), round(idsds(model, image, -map, target), 6)
        (1.0, -1.0)
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    scores = deletion_scores(model, samples, _grid_of(samples, grid_size), baseline, output, batch_size)
    return reduce_tensor(_correlation(scores, values, grid_size), reduction, maps)
