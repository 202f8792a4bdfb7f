"""SmoothGrad²: the mean squared gradient over noisy copies of the image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import reduce_channels
from xaibench.explainers.gradients.smoothgrad import NoisyGradients


@ExplainerInfo(
    "SmoothGrad²",
    family="Gradients",
    citation="Hooker et al.: A Benchmark for Interpretability Methods in Deep Neural Networks. NeurIPS 2019.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class SmoothGradSquared(NoisyGradients):
    """The mean of the squared gradient over copies of the image with Gaussian noise; never negative.

    It equals the elementwise square of SmoothGrad plus VarGrad.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        total = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            total[samples] += gradients.square().sum(1)
        return reduce_channels(total / self.n_samples, self.channels)
