"""How far apart are the model's scores when the most and when the least relevant pixels go first?"""

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


@described(
    MetricInfo(
        "SRG",
        "model",
        higher_is_better=True,
        range=(-1.0, 1.0),
        meaning="How much longer the score of the class holds when the least relevant pixels go first than when the "
        "most relevant ones do: the area between the two curves. About 0: no better than chance.",
        pitfalls="The order of the pixels alone counts. A random map scores about 0 whatever is put in place of the "
        "pixels. The authors found that the order of methods hardly depends on that either; on XAI-TRIS with 8×8 "
        "pixels [it does](robust-rankings.md). The size depends on it, and on how sure the network is.",
        class_name="SRG",
        citation="Blücher, Vielhaben, Strodthoff: Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI "
        "Benchmarks, TMLR 2024, arXiv 2401.06654",
    )
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
    r"""Symmetric relevance gain: area between the scores with the least and with the most relevant pixels gone first.

    .. math:: \int_0^1 \bigl(f_y(x^{\mathrm{LIF}}_r) - f_y(x^{\mathrm{MIF}}_r)\bigr)\,dr

    :math:`x^{\mathrm{MIF}}_r` is the image in which the share :math:`r` of the pixels where the map is largest is the
    baseline (most influential first), :math:`x^{\mathrm{LIF}}_r` that in which the share where it is smallest is (least
    influential first). Blücher et al. (2024), Section 5: the two orders fail in opposite ways when the model cannot
    make sense of what is put in place of the pixels, and their difference ranks methods alike whatever that is. In
    [-1, 1] for probabilities; higher is better, and a random map scores 0 on average.

    The curves meet at both ends, the whole image and the whole baseline, which are not asked: ``steps`` equal shares
    take ``2 (steps - 1)`` passes an image. Pixels are ranked by value; ties in the order of the pixels, row by row, and
    the least influential first are that order backwards.

    Departures: the authors remove superpixels one by one, most of them segments of SLIC; with ``segmentation="slic"``
    they go in equal shares of the pixels. Quantus, Captum, torch-cam and pytorch-grad-cam have no such metric: it is
    the difference of two curves of Quantus' ``PixelFlipping``, which has no point for the whole image.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``. Run where its parameters are, in evaluation mode.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``.
        targets: ``[N]``.
        steps: Equal shares of the pixels, at least 2 (rounded to whole pixels, and never more than there are).
        baseline: What replaces the pixels: a number, one a channel, ``"blur"``, or what broadcasts to the images.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        segmentation: What goes as one, as of :func:`deletion`: in either order a segment goes as soon as the whole of
            it fits among the share's pixels.
        n_segments: Squares or superpixels of an image, about.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``: at the share of removed pixels, the difference of the two scores.

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
        >>> srg(model, image, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), target, steps=4, output="logit")
        0.75
        >>> srg(model, image, torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]), target, steps=4, output="logit")
        -0.75
    """
    check_common(batch_size, reduction)
    check_count("steps", steps, least=2)
    samples = as_samples(model, images, targets)
    values, pixels = as_map_tensor(maps, samples), samples.pixels
    shares = max(2, min(steps, pixels))
    counts = [round(i * pixels / shares) for i in range(shares + 1)]
    inner = counts[1:-1]
    spans = [*((0, count) for count in inner), *((pixels - count, pixels) for count in inner)]
    class_scores = perturbed_scores(
        model,
        samples,
        values,
        spans,
        baseline=baseline,
        reveal=False,
        output=output,
        batch_size=batch_size,
        segmentation=segmentation,
        n_segments=n_segments,
    )
    gain = torch.nn.functional.pad(
        class_scores[:, len(inner) :] - class_scores[:, : len(inner)], (1, 1)
    )  # the curves meet there
    gain.masked_fill_(class_scores[:, :1].isnan(), torch.nan)
    fractions = torch.tensor(counts, dtype=torch.float64, device=gain.device) / pixels
    scores = reduce_tensor(torch.trapezoid(gain, fractions), reduction, maps)
    if return_curves:
        return scores, Curves(convert_like(maps, fractions), convert_like(maps, gain))
    return scores
