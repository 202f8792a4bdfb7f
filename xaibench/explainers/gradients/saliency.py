"""Saliency, the gradient of the output with respect to the image, and Input × Gradient."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import Tensor, nn

from xaibench.explainers.base import Attribution, Channels, target_gradient
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo(
    "Saliency",
    family="Gradients",
    citation="Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks. ICLR workshop 2014.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class Saliency(Attribution):
    """The gradient of the target output with respect to the image, with its sign.

    Departure from Captum, whose default is the absolute value: the map stays signed, and metrics take the magnitude.
    The default of ``channels`` is ``"max_abs"``, as in the paper (section 3.1).
    """

    channels: Channels = "max_abs"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        return self.by_chunk(functools.partial(target_gradient, model), images, targets)


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
