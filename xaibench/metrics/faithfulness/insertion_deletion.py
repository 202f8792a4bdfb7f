"""Insertion and deletion (RISE), and symmetric relevance gain, the area between the curves of two opposite orders.

All metrics are called with ``(model, images, maps, targets)``. For insertion and deletion, pixels are ranked by the
value of the map, the largest first: in a signed map, pixels with negative values come last. Pass ``maps.abs()`` to rank
by magnitude.
"""

from __future__ import annotations

import torch

from xaibench.core.checks import check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import Model, ModelOutput, checked_inputs
from xaibench.metrics.shared.perturb import Baseline, Segmentation, perturbed_scores, reduce_curves
from xaibench.registry.info import MetricInfo

_RISE = "Petsiuk, Das, Saenko: RISE, BMVC 2018, arXiv 1806.07421"


@MetricInfo(
    "Deletion",
    "model",
    higher_is_better=False,
    meaning="Mean score of the class while the pixels of the image are deleted, the most important first, until "
    "none is left.",
    pitfalls="The network has never seen images with holes, so the score also falls for that reason; `road` tries to "
    "avoid it. A baseline of 0 is black where pixels are in [0, 1], and the mean color where they are normalized. "
    "Negative pixels of a signed map are deleted last: pass magnitudes if you do not want that. The score depends on "
    "the confidence of the network, so compare methods on one network, not networks.",
    picture="pixels taken away",
    citation=_RISE,
)
def deletion(
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
    r"""Area under the curve of the target's score while the most important pixels are deleted.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the image in which the share :math:`r` of the pixels with the largest map values is replaced by the
    baseline. ``steps`` equal shares give ``steps + 1`` points, including the whole image and the whole baseline (shares
    are rounded to whole pixels, and there are at most as many as pixels). Petsiuk et al. (2018); at 224×224 the default
    removes 224 pixels per step, as they do. A mean probability, in [0, 1]; lower is better.

    Pixels are ranked by value, not by magnitude; ties are broken by pixel order, row by row.

    Departures: RISE's code uses the class that the model predicts, and breaks ties by the order of its sort. Quantus'
    ``PixelFlipping`` has no point for the whole image and replaces pixels by the smallest value of the image
    (``"black"``), not by zero. torch-cam's ``DeletionInsertionMetric`` computes the maps itself, uses the outputs as
    they are by default, has steps of equal size with a shorter last one, and skips maps with NaN. pytorch-grad-cam and
    Captum do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``. Runs on the device of its parameters, in evaluation
            mode.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``, or multi-hot rows with one map per set label, as in :func:`xaibench.explain`.
        steps: Number of equal shares of the pixels.
        baseline: Values of replaced pixels: a number, one number per channel, ``"blur"`` (RISE's blur of the image: 11
            taps, sigma 5), ``"mean"`` (the mean color of each image), or an array that broadcasts to the images.
        output: Class score, as in :func:`xaibench.explain`. ``"probability"``: softmax of the model's outputs.
            ``"sigmoid"``: sigmoid of each, or the outputs as they are if the model ends in a sigmoid. ``"logit"``: the
            outputs as they are, also if the model returns probabilities. ``"margin"``: each output minus the
            log-sum-exp of the others. Or a callable that gets what the model returned and computes one score per image
            ``[n]``, for which targets are ignored and may be None, or class scores ``[n, K]``.
        segmentation: Units that are replaced together: ``"pixels"``, ``"grid"`` (squares) or ``"slic"`` (superpixels;
            needs scikit-image). Segments are ranked by their mean map value. A segment is replaced once all of its
            pixels fit into the share.
        n_segments: Approximate number of squares or superpixels per image.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size. The steps of many images
            share a pass. Bounds the memory; affects scores by rounding error only.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves have ``fractions`` ``[steps + 1]`` and ``values`` ``[N,
            steps + 1]``.

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
        >>> deletion(model, image, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), target, steps=4, output="logit")
        0.125
        >>> deletion(model, image, torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]), target, steps=4, output="logit")
        0.875
    """
    units = segmentation, n_segments
    return _area(
        model, images, maps, targets, steps, baseline, output, units, batch_size, reduction, return_curves, reveal=False
    )


@MetricInfo(
    "Insertion",
    "model",
    higher_is_better=True,
    meaning="Mean score of the class while the pixels of the image are inserted into a blurred copy, the most "
    "important first, until the image is complete.",
    pitfalls="A blurred image still shows large objects, so the curve may start high. Smooth maps insert whole "
    "regions, scattered maps insert single pixels into a blur: the metric favors the former even if "
    "both are equally right.",
    picture="pixels put in",
    citation=_RISE,
)
def insertion(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    steps: int = 224,
    baseline: Baseline = "blur",
    output: ModelOutput = "probability",
    segmentation: Segmentation = "pixels",
    n_segments: int = 100,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Area under the curve of the target's score while the most important pixels are inserted into a blurred image.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the baseline in which the share :math:`r` of the pixels with the largest map values is that of the
    image. Petsiuk et al. (2018); the baseline is their blur, whose Gaussian kernel (11 taps, sigma 5, zeros outside the
    image) is nearly a box. A mean probability, in [0, 1]; higher is better. Everything else is as in :func:`deletion`.

    Departures: as in :func:`deletion`; torch-cam inserts into zeros. Quantus, pytorch-grad-cam and Captum do not
    provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Number of equal shares of the pixels.
        baseline: Image into which pixels are inserted: a number, one number per channel, ``"blur"``, ``"mean"``, or an
            array that broadcasts to the images.
        output: Class score, a name or a callable; see :func:`deletion`.
        segmentation: Units that are replaced together, as in :func:`deletion`.
        n_segments: Approximate number of squares or superpixels per image.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``.

    Returns:
        The area; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: As in :func:`deletion`.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> score, curves = insertion(
        ...     model, image, map, torch.tensor([1]), steps=4, baseline=0.0, output="logit", return_curves=True
        ... )
        >>> score, curves.values.tolist()
        (0.625, [[0.0, 0.0, 1.0, 1.0, 1.0]])
    """
    units = segmentation, n_segments
    return _area(
        model, images, maps, targets, steps, baseline, output, units, batch_size, reduction, return_curves, reveal=True
    )


def _area(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    steps: int,
    baseline: Baseline,
    output: ModelOutput,
    units: tuple[Segmentation, int],
    batch_size: int | None,
    reduction: Reduction,
    return_curves: bool,
    *,
    reveal: bool,
) -> Scores:
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    check_count("steps", steps)
    pixels = samples.pixels
    shares = min(steps, pixels)
    counts = [round(i * pixels / shares) for i in range(shares + 1)]
    spans = [(0, count) for count in counts]
    curve = perturbed_scores(model, samples, values, spans, baseline, output, batch_size, reveal=reveal, units=units)
    fractions = torch.tensor(counts, dtype=torch.float64, device=curve.device) / pixels
    # The area is a mean of the curve; rounding must not move it outside of the curve's range.
    area = torch.trapezoid(curve, fractions).clamp(curve.amin(1), curve.amax(1))
    return reduce_curves(area, fractions, curve, reduction, maps, return_curves)


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
