"""Gradient SHAP: gradients at random points between the image and random baselines.

It agrees with Captum (tested), but bounds its memory by ``batch_size`` and uses its own random generators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import (
    Attribution,
    append_axes,
    blocks,
    prepare_baselines,
    reduce_channels,
)
from xaibench.explainers.gradients.integrated_gradients import gradients_at
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.tensors.random_numbers import normal_numbers, sample_generators


@ExplainerInfo(
    "Gradient SHAP",
    family="Gradients",
    revision=2,
    citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class GradientSHAP(Repeating, Attribution):
    """The mean of (x - b) times the gradient at a random point between x and a random baseline b.

    Attributes:
        n_samples: Random points per image.
        stdev: Standard deviation of the Gaussian noise added to the image at each point.
        baselines: ``[B, C, H, W]``, from which one is drawn for each point; ``None``: zeros.
        seed: Seed of the random points. The draws of an image do not depend on its position in the batch.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_samples"

    n_samples: int = 5
    stdev: float = 0.0
    baselines: Tensor | None = field(default=None, repr=False, compare=False)
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        # The generators draw one number after another, so the blocks do not change the draws.
        generators = sample_generators(self.seed, images)
        shape = (len(images), self.n_samples)
        baselines = prepare_baselines(self.baselines, images)
        drawn = [(rng.random(self.n_samples), rng.integers(len(baselines), size=self.n_samples)) for rng in generators]
        along = images.new_tensor(np.stack([places for places, _ in drawn]))
        along = append_axes(along, images[:, None])
        start = torch.as_tensor(np.stack([chosen for _, chosen in drawn]), device=images.device)
        total = torch.zeros_like(images)
        cut = list(blocks(*shape, self.rows(images), across=images.device.type != "cpu"))
        noise = normal_numbers(generators, images, cut)
        for samples, steps in cut:
            end = images[samples, None].expand(-1, steps.stop - steps.start, *images.shape[1:])
            if self.stdev:
                end = end + self.stdev * next(noise)
            difference = end - baselines[start[samples, steps]]
            points = end - (1 - along[samples, steps]) * difference
            total[samples] += (difference * gradients_at(model, points, targets[samples])).sum(1)
        return reduce_channels(total / self.n_samples, self.channels)
