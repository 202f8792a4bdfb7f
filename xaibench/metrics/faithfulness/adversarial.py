"""Adversarial drop: can an attack on only the most important pixels lower the model's score?"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from xaibench.core.checks import check_amount, check_choice, check_count, check_finite
from xaibench.core.messages import first_line
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores, check_finite_number
from xaibench.metrics.shared.model_scores import (
    Model,
    ModelOutput,
    ModelScorer,
    check_fraction,
    checked_inputs,
    count_of_share,
    model_scorer,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import constant, ranks
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.registry.info import MetricInfo
from xaibench.tensors.batching import is_out_of_memory

#: Pixels that the attack may change: the most important ones, or as many random ones.
Pixels: TypeAlias = Literal["top", "random"]

_HSIEH = (
    "Hsieh et al.: Evaluations and Methods for Explanation through Robustness Analysis, ICLR 2021, arXiv 2006.00442"
)


@MetricInfo(
    "Adversarial drop",
    "model",
    higher_is_better=True,
    meaning="How much the score of the class drops under an attack that may change only the most important pixels.",
    pitfalls="With a large epsilon any pixels suffice: report the control with it. Epsilon is in the units of "
    "the given images. A network without useful gradients appears robust.",
    picture="attacked pixels",
    citation=_HSIEH,
)
def adversarial(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fraction: float = 0.1,
    epsilon: float = 0.1,
    steps: int = 10,
    step_size: float | None = None,
    bounds: tuple[float, float] | None = None,
    pixels: Pixels = "top",
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Drop of the target's score under an attack confined to the most important pixels.

    .. math:: f_y(x) - \min_{t \le T} f_y(x_t), \qquad
        x_{t+1} = \Pi\bigl(x_t - \alpha\, m \odot \operatorname{sign} \nabla f_y(x_t)\bigr)

    with :math:`m` the top-k pixels (all channels), :math:`\Pi` the projection onto :math:`\|x_t - x\|_\infty \le
    \epsilon` and onto ``bounds``, and :math:`x_0 = x`. The more the model relies on these pixels, the more the score
    drops. In [0, 1] for probabilities, higher is better; the lowest score along the path counts, so the drop is never
    negative. Compare it with its control, the same attack on as many random pixels (``pixels="random"``).

    Source: robustness on relevant features of Hsieh et al. (2021), Section 3. The attack is projected gradient descent
    (Madry et al. 2018) without a random start, so it is deterministic. With ``output="probability"`` it descends the
    margin, whose gradient has the same signs and does not vanish where the probability is saturated.

    Departures: the authors report the size of the smallest perturbation that changes the prediction, found by a search
    over epsilon (lower is better). Here epsilon is fixed, the perturbation is bounded in the maximum norm (theirs in
    the Euclidean norm), and the score is the drop, which always exists. Captum, Quantus, torch-cam and pytorch-grad-cam
    do not provide this metric.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``; differentiable.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``; the largest value is the most important, ties are broken by pixel order.
        targets: ``[N]``.
        fraction: Share of the pixels that may change (rounded, at least one pixel).
        epsilon: Largest change of a value, in the units of the images.
        steps: Number of steps T.
        step_size: Alpha; ``None``: 2.5 epsilon / steps.
        bounds: Smallest and largest allowed value of an image; ``None`` for no bounds.
        pixels: ``"top"``, or ``"random"`` for the control, in which the maps only decide which samples are undefined.
        seed: Seed of the random pixels, which are the same for all samples: average over several seeds.
        output: Class score: ``"probability"``, ``"logit"``, ``"margin"`` or a differentiable callable; see
            :func:`deletion`.
        batch_size: Rows per forward and backward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The drop; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]`` or has no gradient, images are outside ``bounds``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.flatten(1)  # the score of class k is pixel k
        >>> image, map = torch.ones(1, 1, 2, 2), torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> drops = [
        ...     adversarial(model, image, map, torch.tensor([k]), fraction=0.5, epsilon=0.25, output="logit")
        ...     for k in (1, 2)
        ... ]
        >>> [round(drop, 6) for drop in drops]
        [0.25, 0.0]
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    check_fraction("fraction", fraction)
    check_amount("epsilon", epsilon)
    check_count("steps", steps)
    check_choice("pixels", pixels, ("top", "random"))
    if step_size is not None:
        check_amount("step_size", step_size)
    lowest, highest = _check_bounds(bounds, samples.images)
    alpha, k = step_size or 2.5 * epsilon / steps, count_of_share(fraction, samples.pixels)
    scoring = model_scorer(model, samples, 1, output=output, batch_size=batch_size, gradients=True)
    with torch.inference_mode(False), scoring as scorer:

        def drops(group: slice) -> Tensor:
            rank = ranks(values[group]) if pixels == "top" else _random_ranks(seed, values[group])
            batch = samples.images[group], samples.targets[group], (rank < k)[:, None]
            return _attack(scorer, *batch, epsilon, alpha, steps, bounds=(lowest, highest))

        scores = scorer.rows.each(len(samples), drops)
    return reduce_tensor(scores.masked_fill(constant(values), math.nan), reduction, maps)


def _attack(
    scorer: ModelScorer,
    images: Tensor,
    targets: Tensor,
    free: Tensor,
    epsilon: float,
    alpha: float,
    steps: int,
    bounds: tuple[float, float],
) -> Tensor:
    """Return the drop ``[n]`` of the score under projected gradient descent on the ``free`` pixels ``[n, 1, H, W]``."""
    lowest, highest = (images - epsilon).clamp_min(bounds[0]), (images + epsilon).clamp_max(bounds[1])
    x, scores = images, []
    for _ in range(steps):
        score, gradient = _score_gradient(scorer, x, targets)
        scores.append(score)
        x = torch.where(free, (x - alpha * gradient.sign()).clamp(lowest, highest), images)
    with torch.no_grad():
        scores.append(scorer.target_scores(scorer.outputs(x), targets))
    path = torch.stack(scores, 1)
    check_finite(path, "The scores of the model")
    return path[:, 0] - path.amin(1)


def _score_gradient(scorer: ModelScorer, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores ``[n]`` and a gradient ``[n, C, H, W]`` with the signs of the scores' gradient."""
    with torch.enable_grad():
        x = images.detach().requires_grad_()
        try:
            outputs = scorer.outputs(x)
            objective = scorer.attack_objective(outputs, targets)
            if not objective.requires_grad:
                raise ValueError(
                    "The model's output has no gradient with respect to the images, which the attack needs. "
                    "Use comprehensiveness or deletion."
                )
            # Only the gradient with respect to the images is computed; those of the parameters are unchanged.
            (gradient,) = torch.autograd.grad(objective.sum(), x)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise UnsupportedModelError(
                f"The attack needs the gradient with respect to the images, which torch does not compute: "
                f"{first_line(error)}. Let the network write into clones, or use comprehensiveness or deletion."
            ) from error
    return scorer.target_scores(outputs.detach(), targets), gradient


def _random_ranks(seed: int, maps: Tensor) -> Tensor:
    pixels = maps[0].numel()
    places = torch.from_numpy(random_generator(seed, 0).permutation(pixels)).to(maps.device)
    return places.reshape(maps.shape[1:]).expand(maps.shape)


def _check_bounds(bounds: tuple[float, float] | None, images: Tensor) -> tuple[float, float]:
    if bounds is None:
        return -math.inf, math.inf
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise TypeError(f"bounds must be a smaller and a larger number, got {bounds!r}.")
    low, high = bounds
    check_finite_number(low, "bounds")
    check_finite_number(high, "bounds")
    if not low < high:
        raise ValueError(f"bounds must be a smaller and a larger number, got {bounds!r}.")
    if images.min() < low or images.max() > high:
        raise ValueError(
            f"The images must be within bounds={bounds!r}, got values from {float(images.min()):g} to "
            f"{float(images.max()):g}."
        )
    return low, high
