"""Integrated Gradients with random noise images as baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import Attribution, append_axes, reduce_channels
from xaibench.explainers.gradients.integrated_gradients import integrated_gradients
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.tensors.random_numbers import sample_generators


@ExplainerInfo(
    "Random-baseline IG",
    family="Gradients",
    citation="Sturmfels, Lundberg, Lee: Visualizing the Impact of Feature Attribution Baselines. Distill, 2020.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class RandomBaselineIG(Repeating, Attribution):
    """The mean of Integrated Gradients over baselines of independent uniform noise.

    With a constant baseline, a pixel of that value gets zero, regardless of the network; with random baselines, no
    pixel does. The noise ranges from the smallest to the largest value of the image.

    Attributes:
        n_baselines: Number of baselines.
        n_steps: Points of the quadrature for each baseline.
        seed: Seed of the baselines. The draws of an image do not depend on its position in the batch.
    """

    counted: ClassVar[str] = "n_baselines"

    n_baselines: int = 5
    n_steps: int = 20
    seed: int = 0

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and baseline: a gradient at each point of the quadrature."""
        return GRADIENT * self.n_steps

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes, for error messages."""
        return f"n_steps below {self.n_steps}"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; they sum to about f(x) minus the mean of f over the baselines."""
        generators = sample_generators(self.seed, images)
        low, high = (append_axes(end, images) for end in images.flatten(1).aminmax(dim=1))
        total = torch.zeros_like(images)
        for _ in range(self.n_baselines):
            drawn = images.new_tensor(np.stack([rng.random(images.shape[1:]) for rng in generators]))
            baseline = low + (high - low) * drawn
            total += integrated_gradients(model, images, targets, baseline, self.n_steps, self.rows(images))
        return reduce_channels(total / self.n_baselines, self.channels)
