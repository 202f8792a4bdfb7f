"""The three networks of XAI-TRIS, for each size: LLR, MLP and CNN.

Source: Clark, Wilming, Haufe (2024), "XAI-TRIS: non-linear image benchmarks to quantify false positive post-hoc
attribution of feature importance" (arXiv 2306.12816): section 3.2 for 64x64, appendix A for 8x8.

====  ==============================================================  ==========================================
name  64x64 (as released: no biases in the linear layers)             8x8
====  ==============================================================  ==========================================
LLR   Linear(4096, 2)                                                 Linear(64, 2), no bias
MLP   4096-256-256-64-2, ReLU, dropout 0.3 after each hidden layer    64-32-16-8-2, ReLU
CNN   4 x [Conv k4 pad1 -> 4, 8, 16, 32 filters, ReLU, MaxPool k2],   4 x [Conv k2 pad1 -> 4 filters, ReLU,
      Linear(288, 2)                                                  MaxPool k2], Linear(4, 2)
====  ==============================================================  ==========================================

At 16x16x16, which the paper does not have: Linear(4096, 2) without bias; 4096-32-16-8-2 with ReLU; and 4 x [Conv3d k3
pad1 -> 8, 8, 16, 16 filters, ReLU, MaxPool k2], Linear(16, 2).

Departures from the text of the paper: a network returns logits, without softmax (to explain the probability, a
softmax is added), and at 64x64 pooling has stride two, as in the released code, where the text says one.

Conventions: every operation that explainers have a rule for is a module that is used once, so that hooks on modules
(DeepLift, LRP, guided backpropagation) reach all of them; flattening is a function call and has no rule.
"""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from xaibench.models.networks.base import Network, he_normal_, image_side
from xaibench.registry.info import ModelInfo

_CITATION = "Clark, Wilming, Haufe (2024): XAI-TRIS. Machine Learning. arXiv:2306.12816"


@ModelInfo("LLR", citation=_CITATION, revision=2)
class LLR(Network):
    """Linear logistic regression: one linear layer without bias.

    Args:
        in_shape: ``(1, 8, 8)``, ``(1, 64, 64)`` or ``(1, 16, 16, 16)``.
        num_classes: Number of logits.

    Raises:
        ValueError: If the paper's networks do not support ``in_shape`` or ``num_classes``.

    Example:
        >>> import torch
        >>> LLR((1, 8, 8))(torch.zeros(5, 1, 8, 8)).tolist()[0]
        [0.0, 0.0]
    """

    def __init__(self, in_shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 2) -> None:
        image_side("LLR", in_shape, num_classes)
        super().__init__(nn.Linear(math.prod(in_shape), num_classes, bias=False))
        he_normal_(self)


@ModelInfo("MLP", citation=_CITATION, revision=3)
class MLP(Network):
    """Multi-layer perceptron: three hidden layers with ReLU; at 64x64 with dropout and without biases.

    Args:
        in_shape: ``(1, 8, 8)``, ``(1, 64, 64)`` or ``(1, 16, 16, 16)``.
        num_classes: Number of logits.

    Raises:
        ValueError: If the paper's networks do not support ``in_shape`` or ``num_classes``.

    Example:
        >>> [tuple(weight.shape) for weight in MLP((1, 64, 64)).parameters()]
        [(256, 4096), (256, 256), (64, 256), (2, 64)]
    """

    def __init__(self, in_shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 2) -> None:
        big = image_side("MLP", in_shape, num_classes) == 64
        widths = (4096, 256, 256, 64) if big else (math.prod(in_shape), 32, 16, 8)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after, bias=not big), nn.ReLU()]
            if big:
                layers.append(nn.Dropout(0.3))
        super().__init__(*layers, nn.Linear(widths[-1], num_classes, bias=not big))
        he_normal_(self)


@ModelInfo("CNN", citation=_CITATION, revision=3)
class CNN(Network):
    """Convolutional network: four blocks of convolution, ReLU and max-pooling, and a linear layer.

    Args:
        in_shape: ``(1, 8, 8)``, ``(1, 64, 64)`` or ``(1, 16, 16, 16)``.
        num_classes: Number of logits.

    Raises:
        ValueError: If the paper's networks do not support ``in_shape`` or ``num_classes``.

    Example:
        >>> CNN((1, 64, 64))[-1]
        Linear(in_features=288, out_features=2, bias=False)
    """

    def __init__(self, in_shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 2) -> None:
        if image_side("CNN", in_shape, num_classes) == 16:
            super().__init__(*_volume_layers(), nn.Linear(128, num_classes))
        else:
            super().__init__(*_image_layers(in_shape[1], num_classes))
        he_normal_(self)


def _image_layers(side: int, num_classes: int) -> list[nn.Module]:
    kernel, filters, features = (4, (1, 4, 8, 16, 32), 288) if side == 64 else (2, (1, 4, 4, 4, 4), 4)
    layers: list[nn.Module] = []
    for before, after in pairwise(filters):
        layers += [nn.Conv2d(before, after, kernel, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return [*layers, nn.Linear(features, num_classes, bias=side != 64)]


def _volume_layers() -> list[nn.Module]:
    # The stride of the first convolution, which sees a whole tetracube, saves nine tenths of the time.
    layers: list[nn.Module] = [nn.Conv3d(1, 8, 4, stride=2, padding=1), nn.ReLU()]
    for before, after in pairwise((8, 16, 16)):
        layers += [nn.Conv3d(before, after, 2, padding=1), nn.ReLU(), nn.MaxPool3d(2)]
    return layers
