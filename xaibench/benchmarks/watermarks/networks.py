"""The network of the watermark suite."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from xaibench.benchmarks.watermarks.regimes import CITATION
from xaibench.component.info import ModelInfo
from xaibench.models.networks.base import Network, he_normal_
from xaibench.network.outputs import check_plane


@ModelInfo("Small CNN", citation=CITATION)
class SmallCNN(Network):
    """Three blocks of 3×3 convolution, ReLU and max-pooling (8, 12 and 16 filters), and a linear layer.

    The convolutional part has the form of the network of Clark et al. 2026 (arXiv 2602.09238). Departures: 8, 12 and 16
    filters instead of 64, 128 and 256, no batch normalization, and one linear layer instead of three with dropout.

    Args:
        in_shape: ``(C, H, W)``; height and width are multiples of 8.
        num_classes: Number of logits.

    Raises:
        ValueError: If the images cannot be halved three times, or there are fewer than 2 classes.

    Example:
        >>> model = SmallCNN((1, 64, 64))
        >>> sum(weight.numel() for weight in model.parameters())
        4750
    """

    def __init__(self, in_shape: tuple[int, ...] = (1, 64, 64), num_classes: int = 2) -> None:
        check_plane("SmallCNN", in_shape)
        channels, height, width = in_shape
        if min(in_shape) < 1 or height % 8 or width % 8:
            raise ValueError(
                f"SmallCNN: in_shape is {tuple(in_shape)}, expected (channels, height, width) with a height and a "
                "width that are multiples of 8, as images are halved three times."
            )
        if num_classes < 2:
            raise ValueError(f"SmallCNN: num_classes is {num_classes}, but a classifier needs at least 2.")
        layers: list[nn.Module] = []
        for before, after in pairwise((channels, 8, 12, 16)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Linear(16 * (height // 8) * (width // 8), num_classes))
        he_normal_(self)
