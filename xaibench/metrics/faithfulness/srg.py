"""Symmetric relevance gain: the area between the least-influential-first and the most-influential-first curve."""

from __future__ import annotations

import torch

from xaibench.component.info import MetricInfo
from xaibench.core.checks import check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import Model, ModelOutput, checked_inputs
from xaibench.metrics.shared.perturb import Baseline, Segmentation, perturbed_scores, reduce_curves


@MetricInfo(
    "SRG",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Area between two curves of the class’s score: least important pixels removed first, and most "
    "important pixels removed first. About 0: no better than chance.",
    pitfalls="Only the order of the pixels counts. A random map scores about 0 regardless of the baseline. The "
    "authors found that the ranking of methods hardly depends on the baseline either; on XAI-TRIS with "
    "8×8 pixels [it does](uncertainty.md#effect-of-metric-parameters). The size of the score depends on the "
    "baseline and on the confidence of the network.",
    class_name="SRG",
    citation="Blücher, Vielhaben, Strodthoff: Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI "
    "Benchmarks, TMLR 2024, arXiv 2401.06654",
)
def srg(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    steps: int = 224,
    baseline: Baseline = 0.0,
    output: ModelOutput = "probability",
    segmentation: Segmentation = "pixels",
    n_segments: int = 100,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Symmetric relevance gain: area between the curves with the least and the most relevant pixels removed first.

    .. math:: \int_0^1 \bigl(f_y(x^{\mathrm{LIF}}_r) - f_y(x^{\mathrm{MIF}}_r)\bigr)\,dr

    :math:`x^{\mathrm{MIF}}_r` is the image in which the share :math:`r` of the pixels with the largest map values is
    replaced by the baseline (most influential first); in :math:`x^{\mathrm{LIF}}_r` it is the share with the smallest
    values (least influential first). Blücher et al. (2024), Section 5: an unsuitable baseline affects the two orders in
    opposite ways, and the ranking by their difference hardly depends on it. In [-1, 1] for probabilities;
    higher is better, and a random map scores 0 on average.

    The curves are equal at both ends (the whole image and the whole baseline), which are not evaluated: ``steps`` equal
    shares need ``2 (steps - 1)`` passes per image. Pixels are ranked by value; ties are broken by pixel order, row by
    row. Least influential first is the reverse order.

    Departures: the authors remove superpixels one by one, mostly SLIC segments; with ``segmentation="slic"`` they are
    removed in equal shares of the pixels. Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this metric;
    it is the difference of two curves of Quantus' ``PixelFlipping``, which has no point for the whole image.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``. Runs on the device of its parameters, in evaluation
            mode.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Number of equal shares of the pixels, at least 2 (rounded to whole pixels, at most as many as pixels).
        baseline: Values of replaced pixels: a number, one number per channel, ``"blur"``, ``"mean"``, or an array that
            broadcasts to the images.
        output: Class score, a name or a callable; see :func:`deletion`.
        segmentation: Units that are replaced together, as in :func:`deletion`; in either order a segment is replaced
            once all of its pixels fit into the share.
        n_segments: Approximate number of squares or superpixels per image.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves are the difference of the two scores over the share of
            removed pixels.

    Returns:
        The area; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> srg(model, image, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), target, steps=4, output="logit")
        0.75
        >>> srg(model, image, torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]), target, steps=4, output="logit")
        -0.75
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    check_count("steps", steps, least=2)
    pixels = samples.pixels
    shares = max(2, min(steps, pixels))
    counts = [round(i * pixels / shares) for i in range(shares + 1)]
    inner = counts[1:-1]
    spans = [*((0, count) for count in inner), *((pixels - count, pixels) for count in inner)]
    units = segmentation, n_segments
    class_scores = perturbed_scores(
        model, samples, values, spans, baseline, output, batch_size, reveal=False, units=units
    )
    least_first, most_first = class_scores[:, len(inner) :], class_scores[:, : len(inner)]
    gain = torch.nn.functional.pad(least_first - most_first, (1, 1))  # the curves meet at both ends
    gain.masked_fill_(class_scores[:, :1].isnan(), torch.nan)
    fractions = torch.tensor(counts, dtype=torch.float64, device=gain.device) / pixels
    return reduce_curves(torch.trapezoid(gain, fractions), fractions, gain, reduction, maps, return_curves)
