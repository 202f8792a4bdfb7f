"""What is the model's score without the marked pixels, and what is it with nothing else? The two questions of ERASER.

Both metrics are called ``(model, images, maps, targets)``. They rank pixels by the value of the map, the largest first:
of a signed map, the pixels that speak against the class come last. Pass ``maps.abs()`` to rank by magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import ModelOutput
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import (
    Model,
    as_map_tensor,
    as_samples,
    check_common,
    check_fraction,
    count_of_share,
    reduce_tensor,
)
from xaibench.metrics.shared.replaced_pixels import Baseline, perturbed_scores

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_ERASER = "DeYoung et al.: ERASER, ACL 2020, arXiv 1911.03429"


@described(
    MetricInfo(
        "Comprehensiveness",
        "model",
        higher_is_better=True,
        range=(-1.0, 1.0),
        meaning="How far the score of the class falls without the most important pixels.",
        pitfalls="A network that finds its class in either of two places loses nothing when one is erased: a right "
        "map may score 0. Erased images are unusual ones, as with `deletion`; the fraction decides much.",
        picture="without the top",
        citation=_ERASER,
    )
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
    r"""How much the score of the target falls without the most important pixels: are all that matter marked?

    .. math:: f_y(x) - f_y(x \text{ without its top-}k \text{ pixels})

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, higher is better. Pixels are
    ranked by value; ties in the order of the pixels.

    Departures: ERASER averages over five shares and divides by six; several shares are averaged over their number here.
    Saliency-Bench (Zhang et al. 2023) prints this formula for sufficiency too. Captum, Quantus, torch-cam and
    pytorch-grad-cam have no such metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that are taken away (rounded, at least one pixel); of several, the mean.
        baseline: What replaces the pixels: a number, one a channel, ``"blur"``, or what broadcasts to the images.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The fall; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> comprehensiveness(model, image, map, torch.tensor([1]), fraction=0.5, output="logit")
        1.0
    """
    return _fall(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=False)


@described(
    MetricInfo(
        "Sufficiency",
        "model",
        higher_is_better=False,
        range=(-1.0, 1.0),
        meaning="How far the score of the class falls when nothing but the most important pixels is left.",
        pitfalls="A network that answers this class for an empty image finds everything sufficient. Negative where "
        "the rest of the image speaks against the class.",
        picture="only the top",
        citation=_ERASER,
    )
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
    r"""How much the score of the target falls when only the most important pixels are left: are they enough?

    .. math:: f_y(x) - f_y(\text{only the top-}k \text{ pixels of } x)

    DeYoung et al. (2020), Section 4, with pixels for tokens. In [-1, 1] for probabilities, lower is better. Pixels are
    ranked by value; ties in the order of the pixels.

    Departures: as of :func:`comprehensiveness`. Quantus' ``Sufficiency`` is another metric (Dasgupta et al. 2022): it
    compares predictions of samples with similar maps.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that are left (rounded, at least one pixel); of several, the mean.
        baseline: What replaces the others: a number, one a channel, ``"blur"``, or what broadcasts to the images.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The fall; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: As for :func:`comprehensiveness`.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> sufficiency(model, image, map, torch.tensor([1]), fraction=0.5, output="logit")
        0.0
    """
    return _fall(model, images, maps, targets, fraction, baseline, output, batch_size, reduction, reveal=True)


def _fall(
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
    check_common(batch_size, reduction)
    shares = list(fraction) if isinstance(fraction, Sequence) else [fraction]
    if not shares:
        raise ValueError("fraction must be one share of the pixels or several, got none.")
    for share in shares:
        check_fraction("fraction", share)
    samples = as_samples(model, images, targets)
    values, pixels = as_map_tensor(maps, samples), samples.pixels
    counts = [
        pixels if reveal else 0,
        *(count_of_share(share, pixels) for share in shares),
    ]  # the first is the image itself
    spans = [(0, count) for count in counts]
    scores = perturbed_scores(
        model, samples, values, spans, baseline=baseline, reveal=reveal, output=output, batch_size=batch_size
    )
    return reduce_tensor(scores[:, 0] - scores[:, 1:].mean(1), reduction, maps)
