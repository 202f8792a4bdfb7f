"""Perturbations that are the same for all samples and do not depend on the map, and the model's scores under them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from xaibench.metrics.shared.model_inputs import LabeledImages, Model
from xaibench.metrics.shared.model_scores import MakeRows, ModelOutput, model_scorer
from xaibench.metrics.shared.perturbed_images import Baseline, resolve_baseline

#: Returns a perturbation ``[H, W]`` float64 by its index.
Field: TypeAlias = Callable[[int], Tensor]


class Fields(NamedTuple):
    """The perturbations of an image.

    Attributes:
        number: Number of perturbations.
        field: Returns a perturbation by its index; the one after the last is zero.
        replace: True if the field marks pixels to set to the baseline, False if it is subtracted from the image.
    """

    number: int
    field: Field
    replace: bool


def field_scores(
    model: Model,
    samples: LabeledImages,
    fields: Fields,
    *,
    output: ModelOutput,
    batch_size: int | None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """Return the model's scores under each perturbation.

    Args:
        model: The model that is called.
        samples: Images and targets.
        fields: The perturbations.
        output: Class score.
        batch_size: Rows per forward pass.
        baseline: Values of marked pixels.

    Returns:
        ``[N, number + 1]`` float64; the last column is the original image.
    """
    base_of = resolve_baseline(baseline, samples.images)

    def prepare(group: slice) -> MakeRows:
        image, base = samples.images[group], base_of(group)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            # Neighboring rows belong to the same point, whose field is computed once.
            made = {index: fields.field(index) for index in set(point.tolist())}
            perturbations = torch.stack([made[index] for index in point.tolist()])[:, None]
            if fields.replace:
                return torch.where(perturbations > 0, base[sample], image[sample])
            return image[sample] - perturbations.to(image)

        return rows

    with model_scorer(model, samples, fields.number + 1, output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, fields.number + 1, prepare)
