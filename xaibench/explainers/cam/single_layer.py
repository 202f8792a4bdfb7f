"""Base classes of explainers that use the feature maps of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.types import Output
from xaibench.explainers.base import chunks
from xaibench.explainers.shared.layers import Layer, Resize, activations, find_layer, forward_rows, resize_maps


@dataclass(frozen=True, kw_only=True)
class FeatureMaps:
    """Base class with the parameters of explainers that use the feature maps of one layer.

    Attributes:
        layer: The layer: its name in ``model.named_modules()``, such as ``"layer4"``, or the module itself,
            ``model.layer4``. ``None``: the last feature map before pooling, or in a transformer the last tokens before
            the last attention. If it is called several times per pass, the last call counts.
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (trilinear for volumes;
            without aligned corners), ``"nearest"``, or ``None``: the map keeps the size of the layer's output.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It bounds the memory and changes
            the maps by rounding only.
    """

    #: The explained output by default.
    explains: ClassVar[Output] = "logit"

    layer: str | nn.Module | None = None
    resize: Resize | None = "bilinear"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            check_choice("resize", self.resize, get_args(Resize), owner=type(self).__name__)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner=type(self).__name__)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the layer's output without ``resize``.

        Raises:
            UnsupportedModelError: If the network has no layer that the method can use.
            ValueError: If there is no ``layer`` of that name, or its output is neither a feature map nor tokens.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        chunk = forward_rows(images, self.batch_size)
        parts = [self._maps(model, layer, x, y) for x, y in chunks(chunk, images, targets)]
        return resize_maps(torch.cat(parts), tuple(images.shape[2:]), self.resize)

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        """Compute maps ``[n, h, w]`` of the size of the layer's output."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PerFeatureMapCAM(FeatureMaps):
    """Base class of CAM methods with one forward pass per feature map of the layer, and one for the image."""

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of passes, which depends on the layer of the network.

        Args:
            model: Maps images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``; the model is called with the first.

        Returns:
            The number of passes.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        return len(images) * (1 + activations(model, layer, images[:1]).shape[1])


def weighted_sum(weights: Tensor, features: Tensor) -> Tensor:
    """Compute the sum over k of w_k A_k: ``[N, h, w]`` from ``[N, C]`` and ``[N, C, h, w]``."""
    return torch.einsum("nc,nc...->n...", weights, features)
