"""F-Fidelity: the score's drop when few marked pixels are removed at random, compared with as few others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from xaibench.core.checks import check_choice, check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores
from xaibench.metrics.shared.model_scores import (
    MakeRows,
    Model,
    ModelOutput,
    check_fraction,
    check_fractions,
    checked_inputs,
    count_of_share,
    model_scorer,
    random_generator,
    reduce_tensor,
)
from xaibench.metrics.shared.perturb import Baseline, constant, ranks, resolve_baseline
from xaibench.registry.info import MetricInfo

#: Pixels from which some are removed: the marked ones, the others, or both in turn.
Side: TypeAlias = Literal["both", "plus", "minus"]


@MetricInfo(
    "F-Fidelity",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="How much more the score of the class drops when a few of the marked pixels are removed at random "
    "than when as few of the others are. About 0: no better than chance.",
    pitfalls="In-domain only for a network that was trained with as many pixels removed "
    "(`xb.models.fine_tune_for_deletion`): evaluate that network on the maps of the explained network. "
    "The scores of `both`, `plus` and `minus` have different ranges: state the side.",
    class_name="FFidelity",
    citation="Zheng, Shirani, Chen, Lin, Cheng, Guo, Luo: F-Fidelity: A Robust Framework for Faithfulness "
    "Evaluation of Explainable AI, ICLR 2025, arXiv 2410.02970",
)
def f_fidelity(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    fractions: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    alpha: float = 0.5,
    beta: float = 0.1,
    n_samples: int = 50,
    side: Side = "both",
    baseline: Baseline = 0.0,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Fine-tuned fidelity: do marked pixels matter more than others, if no more are removed than in training?

    .. math:: \mathrm{FFid}^+ - \mathrm{FFid}^- =
        \frac{1}{S}\sum_s \mathbb E\bigl[f_y(\chi^-_s(x)) - f_y(\chi^+_s(x))\bigr]

    In :math:`\chi^+_s(x)`, each pixel of the share :math:`s` with the largest map values is removed with probability
    :math:`\min(\alpha, \beta / s)`. In :math:`\chi^-_s(x)`, each of the other pixels is removed with probability
    :math:`\min(\alpha, \beta / (1 - s))`. So at most the share :math:`\beta` of all pixels is removed on average,
    regardless of the size of the explanation. :func:`xaibench.models.fine_tune_for_deletion` trains the evaluated model
    on such images. Zheng et al. (2024), Section 3. Higher is better for every ``side``:

    - ``"both"``: the formula above, in [-1, 1] for probabilities, 0 on average for a random map;
    - ``"plus"``: :math:`\mathrm{FFid}^+`, the mean of :math:`f_y(x) - f_y(\chi^+_s(x))`;
    - ``"minus"``: :math:`-\mathrm{FFid}^-`, the mean of :math:`f_y(\chi^-_s(x)) - f_y(x)`.

    ``2 · S · n_samples + 1`` passes per image.

    Departures: the authors compare predicted labels; for that, pass a callable ``output`` that is one at the largest
    logit. They report the two fidelities separately, for 19 sizes; here the default is their difference, for five. The
    random draws are the same for all sizes, sides and samples, so that differences between maps are not due to chance.
    Captum, Quantus, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        model: The fine-tuned model. Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``; the largest value is the most important.
        targets: ``[N]``.
        fractions: Shares of the pixels that are taken as the explanation, above 0 and at most 1.
        alpha: Largest share of the pixels of a side that is removed.
        beta: Largest share of all pixels that is removed; the value that the model was fine-tuned with.
        n_samples: Draws per size and side.
        side: ``"both"``, ``"plus"`` or ``"minus"``.
        baseline: Values of replaced pixels: a number, one number per channel, ``"blur"``, ``"mean"``, or an array that
            broadcasts to the images.
        seed: Seed of the draws, which are the same for all samples.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The fidelity; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> weight = torch.arange(100.0).reshape(10, 10) / 4950
        >>> model = lambda images: (images * weight).sum((2, 3))
        >>> image, target = torch.ones(1, 1, 10, 10), torch.tensor([0])
        >>> right, wrong = (f_fidelity(model, image, map[None], target, output="logit") for map in (weight, -weight))
        >>> right > 0.05, wrong < -0.05
        (True, True)
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    check_choice("side", side, ("both", "plus", "minus"))
    check_count("n_samples", n_samples)
    check_fraction("alpha", alpha)
    check_fraction("beta", beta)
    fractions = check_fractions(fractions, "fractions")
    pixels, base_of = samples.pixels, resolve_baseline(baseline, samples.images)
    signs = {"both": (-1.0, 1.0), "plus": (-1.0,), "minus": (1.0,)}[side]
    # Draws in the outer loop: consecutive points share the random field of their draw.
    points = list(
        itertools.product(range(n_samples), signs, [count_of_share(fraction, pixels) for fraction in fractions])
    )

    def removed(point: int, rank: Tensor, fields: dict[int, Tensor]) -> Tensor:
        """Return which pixels ``[H, W]`` are removed at a point; the point after the last is the image itself."""
        if point == len(points):
            return torch.zeros_like(rank, dtype=torch.bool)
        number, sign, count = points[point]
        among, of = (rank < count, count) if sign < 0 else (rank >= count, max(1, pixels - count))
        return among & (fields[number] < min(alpha, beta * pixels / of))

    def prepare(group: slice) -> MakeRows:
        image, base, rank = samples.images[group], base_of(group), ranks(values[group])

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            numbers = {points[index][0] for index in set(point.tolist()) if index < len(points)}
            fields = {
                n: torch.from_numpy(random_generator(seed, n).random(rank.shape[1:])).to(rank.device) for n in numbers
            }
            places = zip(sample.tolist(), point.tolist(), strict=True)
            masks = torch.stack([removed(index, rank[place], fields) for place, index in places])
            return torch.where(masks[:, None], base[sample], image[sample])

        return rows

    with model_scorer(model, samples, len(points) + 1, output=output, batch_size=batch_size) as scorer:
        scores = scorer.predict(samples, len(points) + 1, prepare)
    change = (scores[:, :-1] - scores[:, -1:]).reshape(len(samples), n_samples, len(signs), len(fractions)).mean((1, 3))
    scores = (change @ change.new_tensor(signs)).masked_fill_(constant(values), torch.nan)
    return reduce_tensor(scores, reduction, maps)
