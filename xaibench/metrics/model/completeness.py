"""Does the map add up to what it explains?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import MakeRows, ModelOutput, model_scorer
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import Model, as_map_tensor, as_samples, check_common, reduce_tensor
from xaibench.metrics.shared.replaced_pixels import Baseline, resolve_baseline
from xaibench.metrics.shared.undefined_scores import ZERO_MAP

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


@described(
    MetricInfo(
        "Completeness error",
        "model",
        higher_is_better=False,
        range=(0.0, float("inf")),
        meaning="How far the sum of the map is from the difference between the score of the class for the image and "
        "that for the baseline.",
        pitfalls="Only methods that share out a difference (integrated gradients, Shapley values, DeepLIFT) promise a "
        "sum, and only of the output and the baseline that they explain: state the same here. Where in the image the "
        "mass lies is not asked. In units of the score.",
        undefined=(ZERO_MAP,),
        revision=2,
        citation="Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017, arXiv 1703.01365",
    )
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
    r"""How far the map is from adding up to the difference that it shares out.

    .. math:: \Bigl|\sum_p s_p - \bigl(f_y(x) - f_y(x')\bigr)\Bigr|

    :math:`x'` is the baseline. Completeness is the axiom of Sundararajan et al. (2017), Proposition 1, and the
    efficiency of Shapley values. In units of the score, from 0; lower is better, and 0 is a complete map.

    Departures: Captum's ``compute_convergence_delta`` is this with its sign. Quantus' ``Completeness`` says whether the
    two are equal to the last bit, which rounding seldom lets them be. torch-cam and pytorch-grad-cam have no such
    metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed and not scaled.
        targets: ``[N]``.
        baseline: The one that the maps were made with: a number, one a channel, ``"blur"``, or what broadcasts to the
            images.
        relative: Divide by the magnitude of the difference.
        output: The output that the maps explain: ``"probability"`` (the default of :func:`xaibench.explain`),
            ``"logit"``, ``"margin"`` or a callable; see :func:`deletion`.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The error; ``nan`` for a map that is zero everywhere, which explains nothing, and with ``relative`` where the
        image and the baseline score the same.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

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
    check_common(batch_size, reduction)
    samples = as_samples(model, images, targets)
    values, base_of = as_map_tensor(maps, samples).double(), resolve_baseline(baseline, samples.images)

    # A baseline that all share is asked once; beside each image where equal ones must score the same to the bit.
    shared = None if relative else base_of.shared
    points = 2 if shared is None else 1

    def prepare(group: slice) -> MakeRows:
        each = torch.stack([samples.images[group], base_of(group)][:points])
        return lambda sample, point: each[point, sample]

    with model_scorer(model, samples, points, output=output, batch_size=batch_size) as scorer:
        whole, base = scorer.predict(samples, points, prepare, shared).unbind(1)
    peak = values.abs().amax((1, 2), keepdim=True)
    # At a largest magnitude of one, sums of huge values of either sign leave float64 only as a whole.
    total = (values / torch.where(peak > 0, peak, 1.0)).sum((1, 2)) * peak[:, 0, 0]
    error = (total - (whole - base)).abs()
    if relative:
        error = torch.where(whole == base, torch.nan, error / (whole - base).abs())
    error[peak[:, 0, 0] == 0] = torch.nan
    return reduce_tensor(error, reduction, maps)
