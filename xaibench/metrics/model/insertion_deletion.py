"""How soon does the model's score fall, or rise, when pixels go, or come, in the order of the map? The curves of RISE.

Both metrics are called ``(model, images, maps, targets)``. They rank pixels by the value of the map, the largest first:
of a signed map, the pixels that speak against the class come last. Pass ``maps.abs()`` to rank by magnitude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from xaibench.core.checks import check_count
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import ModelOutput
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import (
    Model,
    as_map_tensor,
    as_samples,
    check_common,
    convert_like,
    reduce_tensor,
)
from xaibench.metrics.shared.replaced_pixels import Baseline, Curves, Segmentation, perturbed_scores

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_RISE = "Petsiuk, Das, Saenko: RISE, BMVC 2018, arXiv 1806.07421"


@described(
    MetricInfo(
        "Deletion",
        "model",
        higher_is_better=False,
        range=(0.0, 1.0),
        meaning="Mean score of the class while the image loses its pixels, most important first, all in the end.",
        pitfalls="An image with holes is none that the network has seen, and its score falls for that reason, too; "
        "`road` tries to mend it. A baseline of 0 is black where pixels are in [0, 1], the mean colour where they are "
        "normalised. A signed map's negative pixels go last: pass magnitudes if that is meant. The score depends on "
        "how sure the network is, so compare methods on one network, not networks.",
        picture="pixels taken away",
        citation=_RISE,
    )
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
    r"""Area under the score of the target while the most important pixels are taken away.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the image in which the share :math:`r` of its pixels, those where the map is largest, is the
    baseline; ``steps`` equal shares make ``steps + 1`` points, the whole image and the whole baseline among them
    (shares are rounded to whole pixels, and there are never more of them than pixels). Petsiuk et al. (2018); 224
    pixels a step, as theirs, at 224×224. The mean of a probability, in [0, 1]; lower is better.

    Pixels are ranked by value, not by magnitude; ties in the order of the pixels, row by row.

    Departures: RISE's code follows the class that the model predicts, and leaves tied pixels in the order that its sort
    happens to give. Quantus' ``PixelFlipping`` has no point for the whole image and replaces by the smallest value of
    the image (``"black"``), not by zero. torch-cam's ``DeletionInsertionMetric`` makes the maps itself, takes outputs
    as they are unless it is told otherwise, steps of equal size with a shorter last one, and leaves out maps with
    ``nan``. pytorch-grad-cam and Captum have no such curve.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``. Run where its parameters are, in evaluation mode.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Equal shares of the pixels.
        baseline: What replaces the pixels: a number, one a channel, ``"blur"`` (RISE's blur of the image: 11 taps,
            sigma 5), or what broadcasts to the images.
        output: ``"probability"`` when the model returns logits, as the library's own models do; ``"logit"`` when it
            returns probabilities, or to score logits; or a callable ``[n, K] -> [n, K]``.
        segmentation: What goes as one: ``"pixels"``, ``"grid"`` (squares) or ``"slic"`` (superpixels; needs
            scikit-image). Segments are ranked by the mean of the map over them, and each goes as soon as the whole of
            it fits among the share's pixels.
        n_segments: Squares or superpixels of an image, about.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images. The steps of many images
            share a pass. Bounds the memory, moves scores by rounding only.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``, the curves with the ``fractions`` ``[steps + 1]`` and the
            ``values`` ``[N, steps + 1]``.

    Returns:
        The area; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> deletion(model, image, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), target, steps=4, output="logit")
        0.125
        >>> deletion(model, image, torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]), target, steps=4, output="logit")
        0.875
    """
    cut = segmentation, n_segments
    return _area(
        model, images, maps, targets, steps, baseline, output, cut, batch_size, reduction, return_curves, reveal=False
    )


@described(
    MetricInfo(
        "Insertion",
        "model",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Mean score of the class while a blurred image gets its pixels back, most important first, all in the "
        "end.",
        pitfalls="A blurred image still shows what is large, so that the curve may begin high. Smooth maps put whole "
        "regions in, scattered ones single pixels on a blur: it favours the former, at equal rightness.",
        picture="pixels put in",
        citation=_RISE,
    )
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
    r"""Area under the score of the target while the most important pixels are put into a blurred image.

    .. math:: \int_0^1 f_y(x_r)\,dr \approx \sum_{i=1}^{S} \tfrac{1}{2}\,(f_i + f_{i-1})\,(r_i - r_{i-1})

    :math:`x_r` is the baseline in which the share :math:`r` of the pixels, those where the map is largest, is that of
    the image. Petsiuk et al. (2018); the baseline is their blur, whose Gaussian kernel (11 taps, sigma 5, zeros outside
    the image) is nearly a box. The mean of a probability, in [0, 1]; higher is better. Everything else as in
    :func:`deletion`.

    Departures: as of :func:`deletion`; torch-cam inserts into zeros. Quantus, pytorch-grad-cam and Captum have no such
    curve.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Equal shares of the pixels.
        baseline: What the image is put into: a number, one a channel, ``"blur"``, or what broadcasts to the images.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        segmentation: What goes as one, as of :func:`deletion`.
        n_segments: Squares or superpixels of an image, about.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``.

    Returns:
        The area; ``nan`` for a constant map, which ranks no pixel.

    Raises:
        ValueError: As for :func:`deletion`.
        TypeError: For images, maps or targets of another kind.

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
    cut = segmentation, n_segments
    return _area(
        model, images, maps, targets, steps, baseline, output, cut, batch_size, reduction, return_curves, reveal=True
    )


def _area(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    steps: int,
    baseline: Baseline,
    output: ModelOutput,
    cut: tuple[Segmentation, int],
    batch_size: int | None,
    reduction: Reduction,
    return_curves: bool,
    *,
    reveal: bool,
) -> Scores:
    check_common(batch_size, reduction)
    check_count("steps", steps)
    samples = as_samples(model, images, targets)
    values, pixels = as_map_tensor(maps, samples), samples.pixels
    shares = min(steps, pixels)
    counts = [round(i * pixels / shares) for i in range(shares + 1)]
    spans = [(0, count) for count in counts]
    curve = perturbed_scores(
        model,
        samples,
        values,
        spans,
        baseline=baseline,
        reveal=reveal,
        output=output,
        batch_size=batch_size,
        segmentation=cut[0],
        n_segments=cut[1],
    )
    fractions = torch.tensor(counts, dtype=torch.float64, device=curve.device) / pixels
    # A mean of the curve, which rounding must not lift off it.
    area = torch.trapezoid(curve, fractions).clamp(curve.amin(1), curve.amax(1))
    scores = reduce_tensor(area, reduction, maps)
    if return_curves:
        return scores, Curves(convert_like(maps, fractions), convert_like(maps, curve))
    return scores
