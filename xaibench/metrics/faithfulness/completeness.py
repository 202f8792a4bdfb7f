"""Completeness error: does the map add up to the difference that it explains?"""

from __future__ import annotations

import torch

from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import ZERO_MAP, Scores
from xaibench.metrics.shared.model_scores import (
    MakeRows,
    Model,
    ModelOutput,
    checked_inputs,
    model_scorer,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import Baseline, peaks, resolve_baseline
from xaibench.registry.info import MetricInfo


@MetricInfo(
    "Completeness error",
    "model",
    higher_is_better=False,
    range=(0.0, float("inf")),
    meaning="How far the sum of the map is from the difference between the class’s score for the image and for "
    "the baseline.",
    pitfalls="Only methods that distribute a difference (integrated gradients, Shapley values, DeepLIFT) promise "
    "this sum, and only for the output and the baseline that they explain: pass the same here. The "
    "position of the mass in the image does not matter. In units of the score.",
    undefined=(ZERO_MAP,),
    revision=2,
    citation="Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017, arXiv 1703.01365",
)
def completeness_error(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    baseline: Baseline = 0.0,
    relative: bool = False,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Absolute difference between the sum of the map and the score difference that it explains.

    .. math:: \Bigl|\sum_p s_p - \bigl(f_y(x) - f_y(x')\bigr)\Bigr|

    :math:`x'` is the baseline. Completeness is the axiom of Sundararajan et al. (2017), Proposition 1, and the
    efficiency of Shapley values. In units of the score, at least 0; lower is better, and 0 means that the map is
    complete.

    Departures: Captum's ``compute_convergence_delta`` is the signed difference. Quantus' ``Completeness`` tests exact
    equality, which rounding error nearly always violates. torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed and not scaled.
        targets: ``[N]``.
        baseline: The baseline that the maps were computed with: a number, one number per channel, ``"blur"``,
            ``"mean"``, or an array that broadcasts to the images.
        relative: Divide by the magnitude of the score difference.
        output: The output that the maps explain: ``"probability"`` (the default of :func:`xaibench.explain`),
            ``"logit"``, ``"margin"`` or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The error; ``nan`` for a map that is all zero, and with ``relative`` where the image and the baseline have the
        same score.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
        >>> model = lambda images: (images * weight).flatten(1).sum(1, keepdim=True)
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> completeness_error(model, image, weight[None], target, output="logit")
        0.0
        >>> completeness_error(model, image, weight.abs()[None], target, output="logit", relative=True)
        0.5
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction)
    values, base_of = values.double(), resolve_baseline(baseline, samples.images)

    # A shared baseline is evaluated once. With ``relative`` it is evaluated next to each image, so that equal images
    # get bit-identical scores.
    shared = None if relative else base_of.shared
    points = 2 if shared is None else 1

    def prepare(group: slice) -> MakeRows:
        each = torch.stack([samples.images[group], base_of(group)][:points])
        return lambda sample, point: each[point, sample]

    with model_scorer(model, samples, points, output=output, batch_size=batch_size) as scorer:
        whole, base = scorer.predict(samples, points, prepare, shared).unbind(1)
    peak = peaks(values)
    # Scaling to a maximum of one avoids overflow while huge values of both signs are summed.
    total = (values / torch.where(peak > 0, peak, 1.0)).sum(tuple(range(1, values.ndim))) * peak.flatten()
    error = (total - (whole - base)).abs()
    if relative:
        error = torch.where(whole == base, torch.nan, error / (whole - base).abs())
    error[peak.flatten() == 0] = torch.nan
    return reduce_tensor(error, reduction, maps)
