"""Comprehensiveness and sufficiency (ERASER): the model's score without the top pixels, and with nothing else.

Both metrics are called with ``(model, images, maps, targets)``. Pixels are ranked by the value of the map, the largest
first: in a signed map, pixels with negative values come last. Pass ``maps.abs()`` to rank by magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence

from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import (
    Model,
    ModelOutput,
    check_fractions,
    checked_inputs,
    count_of_share,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import Baseline, perturbed_scores
from xaibench.registry.info import MetricInfo

_ERASER = "DeYoung et al.: ERASER, ACL 2020, arXiv 1911.03429"


@MetricInfo(
    "Comprehensiveness",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="How much the score of the class drops without the most important pixels.",
    pitfalls="A network that finds its class in either of two places loses nothing when one is removed: a right "
    "map may score 0. Images with removed pixels are unusual, as with `deletion`; the score depends "
    "strongly on the fraction.",
    picture="without the top",
    citation=_ERASER,
)
def comprehensiveness(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = 0.2,
    baseline: Baseline = 0.0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Drop of the target's score without the most important pixels: does the map mark all evidence?

    .. math:: f_y(x) - f_y(x \text{ without its top-}k \text{ pixels})

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, higher is better. Pixels are
    ranked by value; ties are broken by pixel order.

    Departures: ERASER averages over five shares and divides by six; here several shares are averaged over their number.
    Saliency-Bench (Zhang et al. 2023) also prints this formula for sufficiency. Captum, Quantus, torch-cam and
    pytorch-grad-cam do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that is removed (rounded, at least one pixel). For several shares, the score is
            the mean.
        baseline: Values of replaced pixels: a number, one number per channel, ``"blur"``, ``"mean"``, or an array that
            broadcasts to the images.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The drop; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> comprehensiveness(model, image, map, torch.tensor([1]), fraction=0.5, output="logit")
        1.0
    """
    return _score_drop(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=False)


@MetricInfo(
    "Sufficiency",
    "model",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="How much the score of the class drops when only the most important pixels are left.",
    pitfalls="On a network that predicts this class for an empty image, every map is sufficient. Negative where "
    "the rest of the image is evidence against the class.",
    picture="only the top",
    citation=_ERASER,
)
def sufficiency(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float | Sequence[float] = 0.2,
    baseline: Baseline = 0.0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Drop of the target's score when only the most important pixels are left: are they enough?

    .. math:: f_y(x) - f_y(\text{only the top-}k \text{ pixels of } x)

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, lower is better. Pixels are
    ranked by value; ties are broken by pixel order.

    Departures: as in :func:`comprehensiveness`. Quantus' ``Sufficiency`` is a different metric (Dasgupta et al. 2022):
    it compares the predictions of samples with similar maps.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that is left (rounded, at least one pixel). For several shares, the score is the
            mean.
        baseline: Values of the other pixels: a number, one number per channel, ``"blur"``, ``"mean"``, or an array that
            broadcasts to the images.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The drop; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: As in :func:`comprehensiveness`.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> sufficiency(model, image, map, torch.tensor([1]), fraction=0.5, output="logit")
        0.0
    """
    return _score_drop(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=True)


def _score_drop(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    fraction: float | Sequence[float],
    baseline: Baseline,
    output: ModelOutput,
    batch_size: int | None,
    reduction: Reduction,
    *,
    reveal: bool,
) -> Scores:
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    pixels = samples.pixels
    counts = [count_of_share(share, pixels) for share in check_fractions(fraction)]
    spans = [(0, count) for count in (pixels if reveal else 0, *counts)]  # the first is the image itself
    scores = perturbed_scores(model, samples, values, spans, baseline, output, batch_size, reveal=reveal)
    return reduce_tensor(scores[:, 0] - scores[:, 1:].mean(1), reduction, maps)
