"""Base class of small networks that can be trained in a stack, with their initialization."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from xaibench.compute.normal_numbers import normal_numbers


class Network(nn.Sequential):
    """A sequence of layers; inputs of linear layers are flattened first.

    Called with images ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``, returns logits ``[N, K]``.

    Attributes:
        explain_dtype: Dtype in which explainers run these networks. In float32, the softmax of a confident prediction
            saturates and its gradient becomes exactly zero.
    """

    explain_dtype = torch.float64

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Classify images.

        Args:
            input: Images ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``.

        Returns:
            Logits ``[N, K]``.
        """
        for layer in self:
            if isinstance(layer, nn.Linear):
                input = input.flatten(1)
            input = layer(input)
        return input


def he_normal_(model: nn.Module) -> None:
    """Initialize all linear and convolution layers, with the same bits on every machine.

    Weights are from N(0, 2 / fan_in) (He et al. 2015, equation 10), biases uniform in ±1 / sqrt(fan_in), as PyTorch's
    are. PyTorch's own normal numbers differ in their last bits between processors, and training turns that into other
    networks. One number is drawn from the global generator, which :func:`xaibench.models.build` seeds and restores.

    Args:
        model: Changed in place.
    """
    seed = int(torch.randint(2**62, ()))
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d | nn.Conv3d)]
    with torch.no_grad():
        for index, layer in enumerate(layers):
            fan_in = layer.weight[0].numel()
            weights = np.empty(tuple(layer.weight.shape))
            normal_numbers(np.random.SeedSequence((seed, index, 0)), weights)
            layer.weight.copy_(torch.from_numpy(weights * math.sqrt(2 / fan_in)))
            if layer.bias is not None:
                bits = np.random.Philox(np.random.SeedSequence((seed, index, 1))).random_raw(len(layer.bias))
                shares = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1  # in [-1, 1), exact
                layer.bias.copy_(torch.from_numpy(shares / math.sqrt(fan_in)))


def image_side(name: str, in_shape: tuple[int, ...], num_classes: int) -> int:
    """Check the arguments of the XAI-TRIS networks and return the side of the images."""
    if tuple(in_shape) not in ((1, 8, 8), (1, 64, 64), (1, 16, 16, 16)):
        raise ValueError(
            f"{name}: in_shape is {tuple(in_shape)}, but the XAI-TRIS networks take (1, 8, 8), (1, 64, 64) or "
            "(1, 16, 16, 16). For other images, give your own model as 'package.module:name'."
        )
    if num_classes < 2:
        raise ValueError(f"{name}: num_classes is {num_classes}, but a classifier needs at least 2.")
    return in_shape[1]
