"""The networks of the suite ``parts``: a small convolutional network and a small vision transformer for color images.

==========  ====================================================================================================
name        layers
==========  ====================================================================================================
parts_cnn   Conv k5 stride 2 -> 16 filters, then 3 x Conv k3 -> 32, 48, 48 filters; ReLU after each, max-pooling by
            2 after the first two; global average pooling; Linear. 40,904 weights for 8 classes.
parts_vit   stem: Conv k5 stride 2 -> 16 filters and Conv k3 -> 32 filters, each with ReLU and max-pooling by 2; a
            convolution k2 stride 2 that makes patches of 16 pixels of width 32; learned position embeddings; 2
            blocks of self-attention (4 heads) and an MLP; layer norm; mean over the patches; Linear. 28,552 weights
            for 8 classes at 96 x 96 pixels.
==========  ====================================================================================================

The stem of convolutions is from Xiao et al. (2021), "Early convolutions help transformers see better" (arXiv
2106.14881). On 2,400 training images, a transformer with a linear embedding of patches of 12 pixels did not leave
chance in 10 epochs, and this one ended at 91 %, far below its training accuracy; on 4,800, it reaches 96.7 % (the CNN
on 2,400: 95.7 %).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xaibench.models.networks.base import Network, he_normal_
from xaibench.models.networks.tiny_vit import TransformerBlock
from xaibench.network.outputs import ImageShapeError, check_plane
from xaibench.registry.info import ModelInfo

_CITATION = (
    "Hesse, Schaub-Meyer, Roth: FunnyBirds, ICCV 2023, arXiv 2308.06248 (the task; the network is that of xaibench)"
)


def _stem(channels: int) -> list[nn.Module]:
    """Return layers that make 32 features, with sides of an eighth of the image."""
    first = nn.Conv2d(channels, 16, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2)
    return [*first, nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]


@ModelInfo("Parts CNN", citation=_CITATION)
class PartsCNN(Network):
    """Convolutional network with global average pooling.

    Args:
        in_shape: ``(C, H, W)``, with sides of at least 8 pixels.
        num_classes: Number of logits.

    Attributes:
        explain_dtype: Dtype in which explainers run the network: float32.

    Raises:
        ImageShapeError: If the images are smaller.

    Example:
        >>> PartsCNN()(torch.zeros(5, 3, 96, 96)).shape
        torch.Size([5, 8])
    """

    explain_dtype = torch.float32

    def __init__(self, in_shape: tuple[int, ...] = (3, 96, 96), num_classes: int = 8) -> None:
        check_plane("PartsCNN", in_shape)
        if min(in_shape[1:]) < 8:
            raise ImageShapeError(f"PartsCNN: in_shape is {tuple(in_shape)}, expected sides of at least 8 pixels.")
        super().__init__(
            *_stem(in_shape[0]),
            *(nn.Conv2d(32, 48, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(48, 48, 3, padding=1), nn.ReLU()),
            nn.AdaptiveAvgPool2d(1),
            nn.Linear(48, num_classes),
        )
        he_normal_(self)


@ModelInfo("Parts ViT", citation=_CITATION)
class PartsViT(nn.Module):
    """Vision transformer with a stem of convolutions; the head reads the mean over the patches.

    Args:
        in_shape: ``(C, H, W)``, with sides that are multiples of 16 pixels.
        num_classes: Number of logits.

    Raises:
        ImageShapeError: If a side is not a multiple of 16.

    Example:
        >>> PartsViT()(torch.zeros(5, 3, 96, 96)).shape
        torch.Size([5, 8])
    """

    def __init__(self, in_shape: tuple[int, ...] = (3, 96, 96), num_classes: int = 8) -> None:
        check_plane("PartsViT", in_shape)
        channels, height, width = in_shape
        if height % 16 or width % 16:
            raise ImageShapeError(f"PartsViT: in_shape is {tuple(in_shape)}, expected sides that are multiples of 16.")
        super().__init__()
        self.patches = nn.Sequential(*_stem(channels), nn.Conv2d(32, 32, 2, stride=2))
        self.positions = nn.Parameter(0.02 * torch.randn(1, height // 16 * (width // 16), 32))
        self.blocks = nn.Sequential(TransformerBlock(32, 4), TransformerBlock(32, 4))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, num_classes)

    def forward(self, input: Tensor) -> Tensor:
        """Classify images.

        Args:
            input: Images ``[N, C, H, W]``.

        Returns:
            Logits ``[N, K]``.
        """
        tokens = self.patches(input).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits
