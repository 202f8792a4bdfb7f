"""Sensitivity-n: does the sum of the map over random pixels predict the drop of the score without them?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from xaibench.core.checks import check_count, check_finite
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import (
    Model,
    ModelOutput,
    as_samples,
    check_common,
    check_fractions,
    checked_inputs,
    count_of_share,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import Baseline, Fields, constant, field_scores, score_drops
from xaibench.metrics.shared.ranks import TOLERANCE
from xaibench.registry.info import MetricInfo, SharedModelScores

#: Default subset sizes as shares of the pixels. The paper's range ends at 80 %.
FRACTIONS = (0.05, 0.2, 0.5, 0.8)


def sensitivity_n_model_scores(
    model: Model,
    images: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = FRACTIONS,
    n_samples: int = 50,
    baseline: Baseline = 0.0,
    seed: int = 0,
    output: ModelOutput = "logit",
    batch_size: int | None = None,
) -> Tensor:
    """Return the model's scores for :func:`sensitivity_n`, which do not depend on the map.

    Returns:
        ``[N, sizes * n_samples + 1]`` float64, on the device of the model; the last column is the original image.
    """
    check_common(batch_size, "none", seed)
    samples = as_samples(model, images, targets, output)
    subsets = _subsets(samples.pixels, fraction, n_samples, seed).to(samples.images.device)

    def field(index: int) -> Tensor:
        marked = subsets[index] if index < len(subsets) else torch.zeros_like(subsets[0])
        return marked.reshape(samples.images.shape[2:]).double()

    fields = Fields(len(subsets), field, replace=True)
    return field_scores(model, samples, fields, output=output, batch_size=batch_size, baseline=baseline)


def sensitivity_n_from_scores(
    scores: Tensor,
    maps: Array,
    *,
    fraction: float | Sequence[float] = FRACTIONS,
    n_samples: int = 50,
    seed: int = 0,
    reduction: Reduction = "mean",
) -> Scores:
    """Return :func:`sensitivity_n` of maps ``[N, H, W]`` from the scores of :func:`sensitivity_n_model_scores`."""
    values = torch.as_tensor(maps).to(scores.device)
    check_finite(values, "maps")
    return reduce_tensor(_mean_correlation(scores, values, fraction, n_samples, seed), reduction, maps)


def _mean_correlation(
    scores: Tensor, maps: Tensor, fraction: float | Sequence[float], n_samples: int, seed: int
) -> Tensor:
    drops = torch.split(score_drops(scores.roll(1, 1)), n_samples, dim=1)  # the whole image first
    flat = _peak_scaled(maps.double().flatten(1))
    subsets = torch.split(_subsets(flat.shape[1], fraction, n_samples, seed).to(flat.device), n_samples)
    by_size = torch.stack([_correlation(flat, *pair) for pair in zip(subsets, drops, strict=True)], 1)
    return by_size.nanmean(1).masked_fill(constant(maps), torch.nan)


def _correlation(flat: Tensor, subsets: Tensor, drops: Tensor) -> Tensor:
    """Return Pearson's correlation ``[N]`` of sums of the map and drops; NaN if either does not vary."""
    sums = flat @ subsets.double().T
    # Sums of the same values in another order differ by rounding.
    varies = sums.amax(1) - sums.amin(1) > TOLERANCE * flat.abs().sum(1)
    one, other = (_peak_scaled(values - values.mean(1, keepdim=True)) for values in (sums, _peak_scaled(drops)))
    coefficients = (one * other).sum(1) / (one.square().sum(1) * other.square().sum(1)).sqrt()
    return torch.where(varies & (drops != drops[:, :1]).any(1), coefficients.clamp(-1, 1), torch.nan)


def _peak_scaled(values: Tensor) -> Tensor:
    """Return rows with a largest magnitude of one, whose sums and squares neither overflow nor underflow."""
    peak = values.abs().amax(1, keepdim=True)
    return values / torch.where(peak > 0, peak, 1.0)


def _subsets(pixels: int, fraction: float | Sequence[float], n_samples: int, seed: int) -> Tensor:
    """Return random subsets of P pixels ``[sizes * n_samples, P]`` bool, size by size."""
    shares = check_fractions(fraction)
    check_count("n_samples", n_samples, least=2)
    subsets = torch.zeros(len(shares), n_samples, pixels, dtype=torch.bool)
    for index in range(n_samples):
        order = torch.from_numpy(random_generator(seed, index).permutation(pixels))
        for size, share in enumerate(shares):
            subsets[size, index, order[: count_of_share(share, pixels)]] = True
    return subsets.flatten(0, 1)


@MetricInfo(
    "Sensitivity-n",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Correlation between the sum of the map over random sets of pixels and the drop of the class’s score "
    "without them, averaged over sets of several sizes.",
    pitfalls="It tests maps of contributions (integrated gradients, Shapley values, input times gradient); of "
    "maps of slopes or of importance without a sign, no sum predicts the score. Random sets of many pixels make "
    "images that the network has never seen.",
    class_name="SensitivityN",
    picture="erased subsets",
    shared_scores=SharedModelScores(sensitivity_n_model_scores, sensitivity_n_from_scores),
    citation="Ancona, Ceolini, Öztireli, Gross: Towards better understanding of gradient-based attribution methods "
    "for deep neural networks, ICLR 2018, arXiv 1711.06104",
)
def sensitivity_n(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = FRACTIONS,
    n_samples: int = 50,
    baseline: Baseline = 0.0,
    seed: int = 0,
    output: ModelOutput = "logit",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Correlation between the sum of the map over random pixels and the drop of the target's score without them.

    .. math:: \frac{1}{|F|} \sum_{n \in F} \rho_S \Bigl(\textstyle\sum_{p \in S} s_p,\;
        f_y(x) - f_y(x \text{ without } S)\Bigr), \qquad |S| = n

    with Pearson's correlation over random sets :math:`S` of :math:`n` pixels. Ancona et al. (2018) draw a curve over
    :math:`n` from 1 to about 80 % of the pixels, with 100 sets each. With a single size, ``fraction=0.2``, this is the
    *faithfulness correlation* of Bhatt, Weller and Moura (IJCAI 2020, arXiv 2005.00631). In [-1, 1]; higher is better,
    a random map scores 0 on average, and exact contributions to a linear function score 1.

    The model calls (one per set, plus one) do not depend on the map: ``xb.evaluate`` and suites share them between all
    methods.

    Departures: the score is the mean over a few sizes; with one size per call, ``fraction=n``, it is a point of the
    paper's curve. A set of a larger size contains the set of a smaller size with the same index. Sizes at which the
    sums or the drops do not vary are left out of the mean. A drop below a millionth of the score is treated as
    rounding, that is, as 0. Quantus (``SensitivityN``, ``FaithfulnessCorrelation``) draws from the global generator,
    other sets for each image, and, in images with several channels, sets of values instead of pixels.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        fraction: Sizes of the sets, as shares of the pixels (rounded, at least one pixel).
        n_samples: Number of sets per size, at least 2.
        baseline: Values of removed pixels: a number, one number per channel, ``"blur"``, ``"mean"`` of each image, or
            an array that broadcasts to the images.
        seed: Seed of the sets, which are the same for all samples.
        output: Class score: ``"logit"`` as the authors, ``"probability"``, ``"margin"`` or a callable; see
            :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The correlation; ``nan`` for a constant map, and where the model reacts to all sets in the same way.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.arange(16.0).reshape(1, 4, 4)
        >>> model = lambda images: (images * weight).sum((2, 3))
        >>> image, target = torch.ones(1, 1, 4, 4), torch.tensor([0])
        >>> [round(sensitivity_n(model, image, map, target), 6) for map in (weight, -weight)]
        [1.0, -1.0]
    """
    _, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    scores = sensitivity_n_model_scores(
        model,
        images,
        targets,
        fraction=fraction,
        n_samples=n_samples,
        baseline=baseline,
        seed=seed,
        output=output,
        batch_size=batch_size,
    )
    return reduce_tensor(_mean_correlation(scores, values, fraction, n_samples, seed), reduction, maps)
