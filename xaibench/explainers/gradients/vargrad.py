"""VarGrad: the variance of the gradient over noisy copies of the image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import reduce_channels
from xaibench.explainers.gradients.smoothgrad import NoisyGradients


@ExplainerInfo(
    "VarGrad",
    family="Gradients",
    citation="Adebayo et al.: Local Explanation Methods for Deep Neural Networks Lack Sensitivity to Parameter "
    "Values. ICLR workshop 2018.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class VarGrad(NoisyGradients):
    """The variance of the gradient over copies of the image with Gaussian noise; never negative.

    It is the biased variance (divided by the number of copies), as in Captum. It is zero for a network that is linear
    around the image.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        first, total, squares = (torch.zeros_like(images) for _ in range(3))
        for samples, steps, gradients in self.noisy_gradients(model, images, targets):
            if steps.start == 0:
                first[samples] = gradients[:, 0]
            # Relative to the first gradient, so that a large common part does not lose the differences to rounding.
            apart = gradients - first[samples, None]
            total[samples] += apart.sum(1)
            squares[samples] += apart.square().sum(1)
        variance = squares / self.n_samples - (total / self.n_samples).square()
        return reduce_channels(variance.clamp(min=0), self.channels)
