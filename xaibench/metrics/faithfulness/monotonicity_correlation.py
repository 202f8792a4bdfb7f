"""Monotonicity correlation: do patches with a larger map value change the score more when they are resampled?"""

from __future__ import annotations

import torch
from torch import Tensor

from xaibench.core.checks import check_count, check_finite
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import CONSTANT_MAP, Scores
from xaibench.metrics.shared.model_scores import (
    MakeRows,
    Model,
    ModelOutput,
    as_samples,
    check_common,
    checked_inputs,
    model_scorer,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import patch_numbers, patch_sums, score_drops
from xaibench.metrics.shared.ranks import centered_ranks, correlation
from xaibench.registry.info import MetricInfo, SharedModelScores


def monotonicity_correlation_model_scores(
    model: Model,
    images: Array,
    targets: Array,
    *,
    grid_size: int = 8,
    n_samples: int = 5,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
) -> Tensor:
    """Return the model's scores for :func:`monotonicity_correlation`, which do not depend on the map.

    Returns:
        ``[N, 1 + n_samples * patches]`` float64, on the device of the model: the whole image, then with each patch
        resampled, draw by draw.
    """
    check_common(batch_size, "none", seed)
    check_count("grid_size", grid_size, least=2)
    check_count("n_samples", n_samples)
    samples = as_samples(model, images, targets, output)
    labels = patch_numbers(samples.images.shape[2:], grid_size).flatten()
    patches = int(labels.max()) + 1
    shuffles = [
        torch.from_numpy(random_generator(seed, index).permutation(samples.pixels)) for index in range(n_samples)
    ]
    source = torch.stack(shuffles).to(samples.images.device)
    labels = labels.to(samples.images.device)

    def prepare(group: slice) -> MakeRows:
        pixels = samples.images[group].flatten(2)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            draw, patch = (point - 1).clamp_min(0) // patches, torch.where(point > 0, (point - 1) % patches, -1)
            draw, patch = draw.to(pixels.device), patch.to(pixels.device)
            own = pixels[sample]
            other = own.gather(2, source[draw][:, None].expand_as(own))
            changed = torch.where((labels == patch[:, None])[:, None], other, own)
            return changed.reshape(len(own), *samples.images.shape[1:])

        return rows

    points = 1 + n_samples * patches
    with model_scorer(model, samples, points, output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, points, prepare)


def monotonicity_correlation_from_scores(
    scores: Tensor, maps: Array, *, grid_size: int = 8, n_samples: int = 5, reduction: Reduction = "mean"
) -> Scores:
    """Return :func:`monotonicity_correlation` of maps from :func:`monotonicity_correlation_model_scores`."""
    values = torch.as_tensor(maps).to(scores.device)
    check_finite(values, "maps")
    return reduce_tensor(_correlation(scores, values, grid_size, n_samples), reduction, maps)


def _correlation(scores: Tensor, maps: Tensor, grid_size: int, n_samples: int) -> Tensor:
    # Ranks of mean squares and of their roots are equal; scaling avoids overflow and underflow of squares.
    drops = score_drops(scores)
    peak = drops.abs().amax(1, keepdim=True)
    effects = (drops / torch.where(peak > 0, peak, 1.0)).square().reshape(len(drops), n_samples, -1).mean(1)
    both = torch.stack([patch_sums(maps, grid_size).abs(), effects]).cpu()
    return torch.from_numpy(correlation(centered_ranks(both[0]), centered_ranks(both[1])))


@MetricInfo(
    "Monotonicity correlation",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Rank correlation between the magnitude of the map in each patch of the image and the mean squared "
    "change of the class’s score when the patch gets random other pixels of the image.",
    pitfalls="The sign of the map does not count: evidence against the class is as important as evidence for it. "
    "Redundant patches have no effect when resampled alone, and the position within a patch does not matter.",
    undefined=(CONSTANT_MAP,),
    shared_scores=SharedModelScores(monotonicity_correlation_model_scores, monotonicity_correlation_from_scores),
    citation="Nguyen, Martínez: On quantitative aspects of model interpretability, 2020, arXiv 2007.07584",
)
def monotonicity_correlation(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    grid_size: int = 8,
    n_samples: int = 5,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Rank correlation between the magnitude of the map in patches and the effect of resampling the patches.

    .. math:: \rho\Bigl(\bigl|\textstyle\sum_{p \in P_i} s_p\bigr|_i,\;
        \bigl(\mathbb E\,[(f_y(x) - f_y(x \text{ with } P_i \text{ resampled}))^2]\bigr)_i\Bigr)

    with Spearman's rank correlation over the patches :math:`P_i` of a grid; ties get their mean rank. Nguyen and
    Martínez (2020), who call it *monotonicity*. In [-1, 1]; higher is better, and a random map scores 0 on average.

    The model calls (``n_samples`` per patch, plus one) do not depend on the map: ``xb.evaluate`` and suites share them
    between all methods.

    Departures: the features are patches instead of single values; ``grid_size`` equal to the side of the image gives
    pixels. A patch gets values from random other places of the same image (the same for all samples), instead of
    samples of the distribution of the features. The paper's weight, one divided by the squared score, is the same for
    all patches of an image and does not change their ranks. A change below a millionth of the score is treated as
    rounding, that is, as 0. Quantus (``MonotonicityCorrelation``) fills features with uniform noise in the range of the
    image and ranks groups of features that are neighbors in the order of the map.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        grid_size: Patches along each side, at least 2 (and at most the number of pixels).
        n_samples: Number of draws per patch.
        seed: Seed of the draws.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The correlation; ``nan`` where all patches have the same magnitude (such as for a constant map) or the same
        effect on the model.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.arange(16.0).reshape(1, 4, 4) ** 4
        >>> model = lambda images: (images * weight).sum((2, 3))
        >>> image, target = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0])
        >>> settings = {"output": "logit", "n_samples": 50}
        >>> round(monotonicity_correlation(model, image, weight, target, **settings), 1)
        1.0
    """
    _, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    scores = monotonicity_correlation_model_scores(
        model,
        images,
        targets,
        grid_size=grid_size,
        n_samples=n_samples,
        seed=seed,
        output=output,
        batch_size=batch_size,
    )
    return reduce_tensor(_correlation(scores, values, grid_size, n_samples), reduction, maps)
