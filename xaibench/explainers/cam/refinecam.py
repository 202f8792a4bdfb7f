"""RefineCAM: the product of the class activation maps of several layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.base import chunks
from xaibench.explainers.cam.gradcam import FeatureMaps, GradCAM, GradCAMPlusPlus, LayerCAM
from xaibench.explainers.cam.newer_maps import HiResCAM, XGradCAM
from xaibench.explainers.shared.layers import Layer, find_finer_layers, find_layer, forward_rows, resize_maps
from xaibench.explainers.shared.passes import GRADIENT
from xaibench.registry.info import ExplainerInfo

#: The method whose maps are multiplied, by its registered name.
Method: TypeAlias = Literal["gradcam++", "gradcam", "layercam", "hirescam", "xgradcam"]

_METHODS: dict[str, type[FeatureMaps]] = {
    "gradcam++": GradCAMPlusPlus,
    "gradcam": GradCAM,
    "layercam": LayerCAM,
    "hirescam": HiResCAM,
    "xgradcam": XGradCAM,
}


@ExplainerInfo(
    "RefineCAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Domeniconi et al.: How to Evaluate and Refine your CAM. arXiv:2605.14641, 2026.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class RefineCAM(FeatureMaps):
    """The product over the layers of their class activation maps, each without its negative part and scaled to [0, 1].

    The map of a late layer distinguishes the classes but is coarse; earlier layers add detail. Maps are
    enlarged to the image before they are scaled, by their smallest and largest value; the product is scaled in the same
    way. A constant map counts as zero, so the product is zero everywhere.

    The layers are ``layer`` and earlier ones: the last feature map of each larger size in a convolutional network or a
    Swin transformer, the tokens before each earlier attention in a ViT. The authors take pooled feature maps in a VGG
    and the input of the last block of each stage in a Swin transformer. In a ResNet and a ViT, the layers are theirs.
    For equal layers, the map equals the result of the ``grad-cam`` package (tested).

    Attributes:
        method: The method whose maps are multiplied; ``"gradcam++"`` is the default of the ``grad-cam`` package.
        n_layers: Maximum number of layers; 4 in the paper's experiments, 1 is the scaled map of ``method``.
        resize: As in the other methods, but ``None`` gives maps of the size of the earliest layer.
    """

    method: Method = "gradcam++"
    n_layers: int = 4

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of passes, which depends on the layers of the network.

        Args:
            model: Maps images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``; the model is called with the first.

        Returns:
            One gradient per image and layer.
        """
        return len(images) * GRADIENT * len(self._layers(model, images))

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]`` in [0, 1].

        Raises:
            UnsupportedModelError: If the network has no layer that the method can use.
            ValueError: If there is no ``layer`` of that name, or its output is neither a feature map nor tokens.
        """
        layers, method = self._layers(model, images), _METHODS[self.method]()
        size = tuple(images.shape[2:])
        products = []
        for x, y in chunks(forward_rows(images, self.batch_size), images, targets):
            # From the earliest layer, whose size the maps have if they are not enlarged.
            maps = [method._maps(model, layer, x, y).relu() for layer in reversed(layers)]
            if self.resize is None:
                size = tuple(maps[0].shape[1:])
            scaled = [_scale_to_unit(resize_maps(each, size, self.resize or "bilinear")) for each in maps]
            products.append(_scale_to_unit(torch.stack(scaled).prod(0)))
        return torch.cat(products)

    def _layers(self, model: nn.Module, images: Tensor) -> list[Layer]:
        layer = find_layer(type(self).__name__, model, images, self.layer)
        return [layer, *find_finer_layers(type(self).__name__, model, images, layer)][: self.n_layers]


def _scale_to_unit(maps: Tensor) -> Tensor:
    """Scale each map ``[N, h, w]`` to [0, 1] by its smallest and largest value; zeros if it is constant."""
    axes = tuple(range(1, maps.ndim))
    low, high = maps.amin(axes, keepdim=True), maps.amax(axes, keepdim=True)
    return torch.where(high > low, (maps - low) / torch.where(high > low, high - low, 1.0), 0.0)
