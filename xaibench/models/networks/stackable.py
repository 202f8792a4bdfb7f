"""Base class of small networks that can be trained in a stack, with their initialization."""

from __future__ import annotations

import torch
from torch import nn


class Network(nn.Sequential):
    """A sequence of layers; inputs of linear layers are flattened first.

    Called with images ``[N, C, H, W]``, returns logits ``[N, K]``.

    Attributes:
        explain_dtype: Dtype in which explainers run these networks. In float32, the softmax of a confident prediction
            saturates and its gradient becomes exactly zero.
    """

    explain_dtype = torch.float64

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Classify images.

        Args:
            input: Images ``[N, C, H, W]``.

        Returns:
            Logits ``[N, K]``.
        """
        for layer in self:
            if isinstance(layer, nn.Linear):
                input = input.flatten(1)
            input = layer(input)
        return input


def he_normal_(model: nn.Module) -> None:
    """Initialize the weights of all linear and convolution layers from N(0, 2 / fan_in) (He et al. 2015, equation 10).

    Biases keep PyTorch's default, uniform in ±1 / sqrt(fan_in). The global generator is used, which
    :func:`xaibench.models.build` seeds and restores.

    Args:
        model: Changed in place.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)


def image_side(name: str, in_shape: tuple[int, int, int], num_classes: int) -> int:
    """Check the arguments of the paper's networks and return the side of the images."""
    if tuple(in_shape) not in ((1, 8, 8), (1, 64, 64)):
        raise ValueError(
            f"{name}: in_shape is {tuple(in_shape)}, but the XAI-TRIS networks take (1, 8, 8) or (1, 64, 64). "
            "For other images, give your own model as 'package.module:name'."
        )
    if num_classes < 2:
        raise ValueError(f"{name}: num_classes is {num_classes}, but a classifier needs at least 2.")
    return in_shape[1]
