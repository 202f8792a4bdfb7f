"""Integrated Gradients from images of noise instead of one that is black."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.compute.sample_draws import sample_generators
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.gradients.plain_gradients import integrated
from xaibench.explainers.shared.counted_passes import GRADIENT, Repeating
from xaibench.explainers.shared.interface import Attribution, reduce_channels


@described(
    ExplainerInfo(
        "Random-baseline IG",
        family="Gradients",
        citation="Sturmfels, Lundberg, Lee: Visualizing the Impact of Feature Attribution Baselines. Distill, 2020.",
    )
)
@dataclass(frozen=True, kw_only=True)
class RandomBaselineIG(Repeating, Attribution):
    """The mean of Integrated Gradients over baselines whose values are drawn uniformly, each by itself.

    A pixel that equals a constant baseline gets nothing, whatever the network makes of it; of random baselines none is
    so. They are drawn between the smallest and the largest value of the image.

    Attributes:
        n_baselines: How many.
        n_steps: Points of the quadrature for each.
        seed: Of the baselines. An image draws the same wherever it stands in a batch.
    """

    counted: ClassVar[str] = "n_baselines"

    n_baselines: int = 5
    n_steps: int = 20
    seed: int = 0

    def passes_each(self, images: Tensor) -> int:
        """Passes for an image for each baseline.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            A gradient at each point of the quadrature.
        """
        return GRADIENT * self.n_steps

    def cheaper_each(self) -> str:
        """What else to change.

        Returns:
            In words.
        """
        return f"n_steps below {self.n_steps}"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``; they sum to f(x) less the mean of f over the baselines, but for quadrature."""
        generators = sample_generators(self.seed, images)
        low, high = (end.reshape(-1, 1, 1, 1) for end in images.flatten(1).aminmax(dim=1))
        total = torch.zeros_like(images)
        for _ in range(self.n_baselines):
            drawn = images.new_tensor(np.stack([rng.random(images.shape[1:]) for rng in generators]))
            baseline = low + (high - low) * drawn
            total += integrated(model, images, targets, baseline, self.n_steps, self.rows(images))
        return reduce_channels(total / self.n_baselines, self.channels)
