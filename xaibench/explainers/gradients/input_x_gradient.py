"""Input × Gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import (
    Attribution,
    target_gradient,
)


@ExplainerInfo(
    "Input × Gradient",
    family="Gradients",
    citation="Shrikumar et al.: Not Just a Black Box: Learning Important Features Through Propagating Activation "
    "Differences. arXiv:1605.01713, 2016.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class InputXGradient(Attribution):
    """The image times the gradient of the target output with respect to it, signed.

    For a linear network without bias, the map sums to the output. The default of ``channels`` is ``"sum"``, the share
    of the pixel.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        return self.by_chunk(lambda x, y: x * target_gradient(model, x, y), images, targets)
