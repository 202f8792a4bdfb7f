"""Does the map predict what the model's score does when the image is disturbed?"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.core.part_info import AskedOnce, MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.asked_model import MakeRows, ModelOutput, model_scorer
from xaibench.metrics.shared.map_inputs import Scores
from xaibench.metrics.shared.model_inputs import (
    LabeledImages,
    Model,
    as_map_tensor,
    as_samples,
    check_common,
    check_finite,
    draw,
    reduce_tensor,
)
from xaibench.metrics.shared.undefined_scores import ZERO_MAP

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: How the image is disturbed: a square is taken out, or noise is added.
Perturbation: TypeAlias = Literal["square", "gaussian"]

#: A disturbance ``[H, W]`` float64, by its number.
Field: TypeAlias = Callable[[int], Tensor]


class Fields(NamedTuple):
    """The disturbances of an image.

    Attributes:
        number: How many.
        field: Each by its number; the one after the last is zero.
        replace: The field says which pixels are taken out, not what is taken off them.
    """

    number: int
    field: Field
    replace: bool


# The authors take out squares of side 1 to 10 from images of 28 × 28.
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
    """What :func:`infidelity` asks the model, whatever the map: each disturbed image, and the whole one last.

    Returns:
        ``[N, disturbances + 1]`` float64, on the device of the model.
    """
    samples = as_samples(model, images, targets)
    return _asked(model, samples, _fields(samples.images, perturbation, n_samples, noise_std, seed), output, batch_size)


def infidelity_from_scores(
    answers: Tensor,
    maps: Array,
    *,
    perturbation: Perturbation = "square",
    n_samples: int = 200,
    noise_std: float = 0.2,
    rescale: bool = True,
    seed: int = 0,
    reduction: Reduction = "mean",
) -> Scores:
    """:func:`infidelity` of maps ``[N, H, W]``, given what the model said (:func:`infidelity_model_scores`)."""
    values = torch.as_tensor(maps).to(answers.device)
    check_finite(values, "maps")
    fields = _fields(values, perturbation, n_samples, noise_std, seed)
    return reduce_tensor(_error(answers, values, fields, rescale), reduction, maps)


def _asked(model: Model, samples: LabeledImages, fields: Fields, output: ModelOutput, batch_size: int | None) -> Tensor:
    def prepare(group: slice) -> MakeRows:
        image = samples.images[group]

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            # Neighbouring rows share their point: its field is made once for all of them.
            made = {index: fields.field(index) for index in set(point.tolist())}
            disturbance = torch.stack([made[index] for index in point.tolist()])[:, None]
            if fields.replace:
                return image[sample].masked_fill(disturbance > 0, 0.0)
            return image[sample] - disturbance.to(image)

        return rows

    with model_scorer(model, samples, fields.number + 1, output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, fields.number + 1, prepare)  # the last is that of the image itself


def _error(scores: Tensor, values: Tensor, fields: Fields, rescale: bool) -> Tensor:
    # Maps are scaled to a largest magnitude of one, so that squares of huge or tiny values do not leave float64.
    peak = values.double().abs().amax((1, 2), keepdim=True)
    flat = (values.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)
    predicted = torch.stack([flat @ fields.field(index).flatten() for index in range(fields.number)], 1)
    fall = scores[:, -1:] - scores[:, :-1]
    if rescale:
        # The best beta undoes any scale, so take one at which no square of a tiny number vanishes.
        largest = predicted.abs().amax(1, keepdim=True)
        predicted = predicted / torch.where(largest > 0, largest, 1.0)
        beta = (predicted * fall).mean(1, keepdim=True) / predicted.square().mean(1, keepdim=True)
    else:
        beta = peak[:, 0]
    error = (beta * predicted - fall).square().mean(1)
    if rescale:  # to predict nothing is beta = 0, which the best is no worse than; rounding may be
        error = torch.minimum(error, fall.square().mean(1))
    return error


@described(
    MetricInfo(
        "Infidelity",
        "model",
        higher_is_better=False,
        range=(0.0, 1.0),
        meaning="How far the fall of the class’s score under small changes of the image differs from what the map "
        "predicts, squared and averaged, at the best scale of the map.",
        pitfalls="In squares of the score: networks of different sureness do not compare. The perturbation must fit "
        "what the map means, shares or slopes; with the wrong one a right map scores badly.",
        undefined=(ZERO_MAP,),
        picture="erased squares",
        asked_once=AskedOnce(infidelity_model_scores, infidelity_from_scores),
        citation="Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (In)fidelity and Sensitivity of Explanations, "
        "NeurIPS 2019, arXiv 1901.09392",
    )
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
    r"""Mean squared error of the map as a linear prediction of how the score of the target falls.

    .. math:: \mathbb E_I \bigl[\bigl(\beta\, I^\top s - (f_y(x) - f_y(x - I))\bigr)^2\bigr], \qquad
        \beta = \frac{\mathbb E_I [I^\top s\,(f_y(x) - f_y(x - I))]}{\mathbb E_I [(I^\top s)^2]}

    Yeh et al. (2019), Definition 2.1; beta is the scale of the map that fits best, sample by sample, as in the authors'
    code (``get_exp_infid``), so that only the pattern of the map counts. With beta and probabilities in [0, 1] (the
    all-zero prediction is allowed), lower is better.

    A map has one number a pixel, so a disturbance has, too:

    - ``"square"``: a square of pixels is set to zero, and :math:`I^\top s` is the sum of the map over it. Right for
      maps that are shares of the output (integrated gradients, Shapley values, input times gradient). As the authors
      (``binary_I``), squares of all sides up to 10/28 of the image at all places are equally likely; ``n_samples`` of
      them are drawn without replacement, and all are taken if there are no more.
    - ``"gaussian"``: :math:`I = \sigma z` with one standard normal z for each pixel, the same in all its channels.
      Right for maps that are slopes (saliency summed over the channels). The authors' noise is clipped to the range of
      their images, which normalised images do not have.

    What the model is asked, a pass for each disturbance and one, does not depend on the map: ``xb.evaluate`` and suites
    ask once for all methods.

    Departures: Captum's ``infidelity`` leaves the disturbance to the caller and beta out unless ``normalize=True``,
    and sums the squares of its expansion, which cancels; Quantus' ``Infidelity`` has no beta.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``, signed.
        targets: ``[N]``.
        perturbation: ``"square"`` or ``"gaussian"``.
        n_samples: Disturbances of each image.
        noise_std: Of the Gaussian noise, in the units of the images.
        rescale: Take the best beta; ``False``: 1, and the range is [0, inf).
        seed: Of the disturbances. They are the same for all samples.
        output: ``"probability"`` of logits, ``"logit"``, or a callable.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The error; with ``rescale``, ``nan`` where no disturbance meets the map (an all-zero map): beta is 0/0.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite, targets that are no class, a model that
            does not return ``[N, K]``, or a parameter out of its range.
        TypeError: For images, maps or targets of another kind.

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
    check_common(batch_size, reduction, seed)
    samples = as_samples(model, images, targets)
    values = as_map_tensor(maps, samples)
    fields = _fields(samples.images, perturbation, n_samples, noise_std, seed)
    answers = _asked(model, samples, fields, output, batch_size)
    return reduce_tensor(_error(answers, values, fields, rescale), reduction, maps)


def _fields(like: Tensor, perturbation: Perturbation, n_samples: int, noise_std: float, seed: int) -> Fields:
    """The disturbances of images or maps ``[..., H, W]`` of that size and on their device."""
    check_choice("perturbation", perturbation, ("square", "gaussian"))
    check_count("n_samples", n_samples)
    check_amount("noise_std", noise_std)
    shape = (like.shape[-2], like.shape[-1])
    if perturbation == "square":
        return Fields(*_squares(shape, like.device, n_samples, seed), replace=True)
    return Fields(*_noise(shape, like.device, n_samples, seed, noise_std), replace=False)


def _noise(shape: tuple[int, int], device: torch.device, number: int, seed: int, noise_std: float) -> tuple[int, Field]:
    """How many fields, and the field of that number; the one after the last is zero."""

    def field(index: int) -> Tensor:
        numbers = draw(seed, index).standard_normal(shape) if index < number else np.zeros(shape)
        return torch.from_numpy(noise_std * numbers).to(device)

    return number, field


def _squares(shape: tuple[int, int], device: torch.device, number: int, seed: int) -> tuple[int, Field]:
    """How many fields (one inside a square), and the field of that number; the one after the last is zero."""
    height, width = shape
    largest = max(1, round(_LARGEST_SIDE * min(height, width)))
    # All squares stand in one list, by side, row and column.
    sides = range(1, largest + 1)
    ends = list(itertools.accumulate((height - side + 1) * (width - side + 1) for side in sides))
    total = ends[-1]
    chosen = list(range(total)) if number >= total else draw(seed, 0).choice(total, number, replace=False).tolist()

    def field(index: int) -> Tensor:
        zeros = torch.zeros((height, width), dtype=torch.float64, device=device)
        if index < len(chosen):
            place = bisect.bisect_right(ends, chosen[index])
            side = sides[place]
            row, column = divmod(chosen[index] - (ends[place - 1] if place else 0), width - side + 1)
            zeros[row : row + side, column : column + side] = 1
        return zeros

    return len(chosen), field
