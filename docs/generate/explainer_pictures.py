"""Draw one XAI-TRIS image and its map for each explainer: ``docs/images/explainers/NAME.png``.

``python docs/generate`` draws the missing pictures. Delete a picture to have it drawn again.

The networks are trained when a picture needs them, in seconds: the paper's CNN for most explainers; one with global
average pooling for those of feature maps (CAM requires it, and the CNN's last feature map is a single pixel); and a
vision transformer for those of attention.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from explainers import file_name
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import binary_erosion
from torch import Tensor, nn
from torchvision.models import VisionTransformer

import xaibench as xb
from xaibench.explainers import EXPLAINERS
from xaibench.models import build, fit
from xaibench.tensors.random_numbers import isolated_rng

FOLDER = Path(__file__).parents[1] / "images" / "explainers"
#: The test sample of the pictures, and the number of samples that are explained together (PFI permutes them).
SAMPLE, TOGETHER = 0, 10
#: Screen pixels per pixel of the image.
SCALE = 14
SIGNED = LinearSegmentedColormap.from_list("signed", ("#053061", "#4393c3", "#f7f7f7", "#d6604d", "#67001f"))


class Transformer(nn.Module):
    """A vision transformer of two layers on patches of 2×2 gray pixels."""

    explain_dtype = torch.float64

    def __init__(self) -> None:
        super().__init__()
        self.network = VisionTransformer(8, 2, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=2)
        nn.init.trunc_normal_(self.network.heads.head.weight, std=0.1)  # torchvision's zeros learn slowly

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``[N, 2]``."""
        return self.network(images.expand(-1, 3, -1, -1))


def pooled_network() -> nn.Module:
    """Return three convolutions with global average pooling."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))


@functools.cache
def data() -> Any:
    """Return the data set, whose signal is strong enough to be learned in seconds."""
    return xb.load("xai-tris/lin-corr-8x8", seed=0, n_samples=4000, alpha=0.3)


@functools.cache
def network(family: str) -> nn.Module:
    """Train the network on which the explainers of a family are shown."""
    with isolated_rng(0):
        if family == "Feature maps":
            model = pooled_network()
        else:
            model = Transformer() if family == "Attention" else build("cnn", (1, 8, 8), 2)
    fit(model, data().train, data().val, epochs=25, batch_size=128, progress=False, device="cpu")
    return model


def draw(name: str) -> None:
    """Draw the image and the map of one explainer next to each other; a line surrounds the ground truth."""
    explainer: Any = xb.explainers.build(name)
    model = network("Feature maps" if name == "crp" else explainer.info.family)
    if hasattr(explainer, "fit"):
        explainer = explainer.fit(model, [data().train[:]])
    images, masks, targets = data().test[:TOGETHER]
    found = xb.explain(explainer, model, images, targets, device="cpu", progress=False)[SAMPLE].float()
    if name == "rise":
        found = found - found.mean()  # the level of a weighted mean of masks has no meaning
    gray = ((images[SAMPLE] + 1) / 2).clamp(0, 1).permute(1, 2, 0).expand(-1, -1, 3).numpy()
    colors = SIGNED((0.5 + 0.5 * found / (found.abs().max() or 1.0)).numpy())[..., :3]
    tiles = [tile(pixels, masks[SAMPLE].numpy()) for pixels in (gray, colors)]
    gap = np.zeros((len(tiles[0]), SCALE, 4))  # transparent
    picture = (255 * np.concatenate([tiles[0], gap, tiles[1]], axis=1)).round().astype(np.uint8)
    FOLDER.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).quantize(64).save(path(name), optimize=True)


def tile(pixels: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Enlarge pixels ``[8, 8, 3]``, mark the border of the mask, and add a frame and an opaque alpha channel."""
    large, inside = np.kron(pixels, np.ones((SCALE, SCALE, 1))), np.kron(mask, np.ones((SCALE, SCALE))) > 0
    large[inside & ~binary_erosion(inside, np.ones((5, 5)))] = (0.0, 0.62, 0.33)
    framed = np.pad(large, ((1, 1), (1, 1), (0, 0)), constant_values=0.5)
    return np.concatenate([framed, np.ones((*framed.shape[:2], 1))], axis=2)


def path(name: str) -> Path:
    """Return the file of the picture of an explainer."""
    return FOLDER / f"{file_name(name)}.png"


def missing() -> dict[Path, str]:
    """Return the explainers without a picture, by the file that it will have."""
    return {path(name): name for name in EXPLAINERS if not path(name).exists()}
