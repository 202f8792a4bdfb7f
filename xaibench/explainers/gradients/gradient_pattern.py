"""Gradient Pattern: PatternLocal with the mean gradient at noisy copies of the image as the linear surrogate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import chunks, target_output
from xaibench.explainers.gradients.smoothgrad import NoisyGradients
from xaibench.explainers.shared.fitting import LocalPattern


@ExplainerInfo(
    "Gradient Pattern",
    family="Patterns",
    citation="After Gjølbye, Haufe, Hansen: Minimizing False-Positive Attributions in Explanations of Non-Linear "
    "Models. arXiv:2505.11210, 2025.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class GradientPattern(LocalPattern, NoisyGradients):
    """The mean gradient w at noisy copies of x, times the covariance C of the training images near x: C w.

    This is :class:`.PatternLocal` with another surrogate, which takes far fewer passes: the mean gradient, with the
    network's output as its value at x. The paper allows gradients; its experiments and its package use LIME.

    Attributes:
        n_samples: Noisy copies per image.
    """

    @property
    def once(self) -> int:
        """The pass for the output at the image, which determines the distance to the hyperplane."""
        return int(self.project_to_boundary)

    def _surrogates(self, model: nn.Module, images: Tensor, targets: Tensor, training: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean gradients ``[N, V]`` and the outputs ``[N]``, zeros if they are not needed."""
        weights = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            weights[samples] += gradients.sum(1) / self.n_samples
        values = images.new_zeros(len(images))
        if self.project_to_boundary:
            values = torch.cat([target_output(model, x, y) for x, y in chunks(self.rows(images), images, targets)])
        return weights.flatten(1), values
