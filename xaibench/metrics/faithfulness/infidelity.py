"""Infidelity: does the map predict the change of the model's score when the image is perturbed?"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from xaibench.core.checks import check_amount, check_choice, check_count, check_finite
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import ZERO_MAP, Scores, without_unit_axes
from xaibench.metrics.shared.model_scores import (
    Model,
    ModelOutput,
    as_samples,
    checked_inputs,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import Field, Fields, field_scores, peaks
from xaibench.registry.info import MetricInfo, SharedModelScores

#: Kinds of perturbation: a square is set to zero, or Gaussian noise is subtracted.
Perturbation: TypeAlias = Literal["square", "gaussian"]

# The authors remove squares of side 1 to 10 from images of 28 × 28.
_LARGEST_SIDE = 10 / 28


def infidelity_model_scores(
    model: Model,
    images: Array,
    targets: Array,
    *,
    perturbation: Perturbation = "square",
    n_samples: int = 200,
    noise_std: float = 0.2,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
) -> Tensor:
    """Return the model's scores for :func:`infidelity`, which do not depend on the map.

    Returns:
        ``[N, perturbations + 1]`` float64, on the device of the model; the last column is the original image.
    """
    samples = as_samples(model, images, targets, output)
    fields = _fields(samples.images.shape[2:], samples.images.device, perturbation, n_samples, noise_std, seed)
    return field_scores(model, samples, fields, output=output, batch_size=batch_size)


def infidelity_from_scores(
    scores: Tensor,
    maps: Array,
    *,
    perturbation: Perturbation = "square",
    n_samples: int = 200,
    noise_std: float = 0.2,
    rescale: bool = True,
    seed: int = 0,
    reduction: Reduction = "mean",
) -> Scores:
    """Return :func:`infidelity` of maps ``[N, H, W]`` from the scores of :func:`infidelity_model_scores`."""
    values = torch.as_tensor(maps).to(scores.device)
    check_finite(values, "maps")
    fields = _fields(values.shape[1:], values.device, perturbation, n_samples, noise_std, seed)
    return reduce_tensor(_error(scores, values, fields, rescale), reduction, maps)


def _error(scores: Tensor, values: Tensor, fields: Fields, rescale: bool) -> Tensor:
    # Maps are scaled to a largest magnitude of one, so that squares of huge or tiny values stay in the range of
    # float64.
    peak = peaks(values.double())
    flat = (values.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)
    predicted = torch.stack([flat @ fields.field(index).flatten() for index in range(fields.number)], 1)
    fall = scores[:, -1:] - scores[:, :-1]
    if rescale:
        # The optimal beta cancels any scale, so choose one that avoids underflow in squares of tiny numbers.
        largest = predicted.abs().amax(1, keepdim=True)
        predicted = predicted / torch.where(largest > 0, largest, 1.0)
        beta = (predicted * fall).mean(1, keepdim=True) / predicted.square().mean(1, keepdim=True)
    else:
        beta = peak.flatten(1)
    error = (beta * predicted - fall).square().mean(1)
    if rescale:  # beta = 0 is never better than the optimal beta, except for rounding
        error = torch.minimum(error, fall.square().mean(1))
    return error


@MetricInfo(
    "Infidelity",
    "model",
    higher_is_better=False,
    meaning="Mean squared difference between the drop of the class’s score under small changes of the image and "
    "the drop that the map predicts, at the best scale of the map.",
    pitfalls="In squares of the score: networks with different confidence are not comparable. The perturbation must "
    "match the meaning of the map, contributions or slopes; with the wrong one, a right map scores badly.",
    undefined=(ZERO_MAP,),
    picture="erased squares",
    shared_scores=SharedModelScores(infidelity_model_scores, infidelity_from_scores),
    citation="Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (In)fidelity and Sensitivity of Explanations, "
    "NeurIPS 2019, arXiv 1901.09392",
)
def infidelity(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    perturbation: Perturbation = "square",
    n_samples: int = 200,
    noise_std: float = 0.2,
    rescale: bool = True,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Mean squared error of the map as a linear prediction of the drop of the target's score.

    .. math:: \mathbb E_I \bigl[\bigl(\beta\, I^\top s - (f_y(x) - f_y(x - I))\bigr)^2\bigr], \qquad
        \beta = \frac{\mathbb E_I [I^\top s\,(f_y(x) - f_y(x - I))]}{\mathbb E_I [(I^\top s)^2]}

    Yeh et al. (2019), Definition 2.1; beta is the best-fitting scale of the map per sample, as in the authors' code
    (``get_exp_infid``), so that only the pattern of the map counts. With beta and probabilities in [0, 1] (an all-zero
    prediction is possible); lower is better.

    A map has one value per pixel, and so has a perturbation:

    - ``"square"``: a square of pixels is set to zero, and :math:`I^\top s` is the sum of the map over it. Suited to
      maps of contributions to the output (integrated gradients, Shapley values, input times gradient). As in the
      authors' code (``binary_I``), squares of all side lengths up to 10/28 of the image at all positions are equally
      likely; ``n_samples`` of them are drawn without replacement, or all if there are fewer.
    - ``"gaussian"``: :math:`I = \sigma z` with one standard normal z for each pixel, the same in all its channels.
      Suited to maps of slopes (saliency summed over the channels). The authors clip the noise to the range of their
      images; normalized images have no such range.

    The model calls (one pass per perturbation, plus one) do not depend on the map: ``xb.evaluate`` and suites share
    them between all methods.

    Departures: Captum's ``infidelity`` leaves the perturbation to the caller, uses beta only with ``normalize=True``,
    and sums the expanded squares, which suffers from cancellation; Quantus' ``Infidelity`` has no beta.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        perturbation: ``"square"`` or ``"gaussian"``.
        n_samples: Number of perturbations per image.
        noise_std: Standard deviation of the Gaussian noise, in the units of the images.
        rescale: Use the best beta; with ``False`` beta is 1, and the range is [0, inf).
        seed: Seed of the perturbations, which are the same for all samples.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The error; with ``rescale``, ``nan`` where all predictions are zero (an all-zero map): beta is 0/0.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
        >>> model = lambda images: (images * weight).flatten(1).sum(1, keepdim=True)
        >>> image, target = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> round(infidelity(model, image, 5 * weight[None], target, output="logit"), 9)  # right up to scale
        0.0
        >>> round(infidelity(model, image, weight.flip(0)[None], target, output="logit"), 3)
        2.857
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    fields = _fields(samples.images.shape[2:], samples.images.device, perturbation, n_samples, noise_std, seed)
    scores = field_scores(model, samples, fields, output=output, batch_size=batch_size)
    return reduce_tensor(_error(scores, values, fields, rescale), reduction, maps)


def _fields(
    shape: Sequence[int], device: torch.device, perturbation: Perturbation, n_samples: int, noise_std: float, seed: int
) -> Fields:
    """Return the perturbations for images with these spatial axes."""
    check_choice("perturbation", perturbation, ("square", "gaussian"))
    check_count("n_samples", n_samples)
    check_amount("noise_std", noise_std)
    if perturbation == "square":
        return Fields(*_squares(shape, device, n_samples, seed), replace=True)

    def noise(index: int) -> Tensor:
        numbers = random_generator(seed, index).standard_normal(shape) if index < n_samples else np.zeros(shape)
        return torch.from_numpy(noise_std * numbers).to(device)

    return Fields(n_samples, noise, replace=False)


def _squares(shape: Sequence[int], device: torch.device, number: int, seed: int) -> tuple[int, Field]:
    """Return the number of squares (in a volume: cubes) and a function from index to field; the last field is zero."""
    axes = without_unit_axes(shape)
    # All squares are enumerated by side, row and column.
    sides = range(1, max(1, round(_LARGEST_SIDE * min(axes))) + 1)
    ends = list(itertools.accumulate(math.prod(size - side + 1 for size in axes) for side in sides))
    chosen = list(range(ends[-1]))
    if number < ends[-1]:
        chosen = random_generator(seed, 0).choice(ends[-1], number, replace=False).tolist()

    def field(index: int) -> Tensor:
        zeros = torch.zeros(axes, dtype=torch.float64, device=device)
        if index < len(chosen):
            size_index = bisect.bisect_right(ends, chosen[index])
            side = sides[size_index]
            number = chosen[index] - (ends[size_index - 1] if size_index else 0)
            corner = np.unravel_index(number, [size - side + 1 for size in axes])
            zeros[tuple(slice(int(start), int(start) + side) for start in corner)] = 1
        return zeros.reshape(tuple(shape))

    return len(chosen), field
