"""What the explainers of one layer share: which layer, how its map becomes as large as the image, rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.vocabulary import Output
from xaibench.explainers.shared.captured_maps import Layer, activations
from xaibench.explainers.shared.interface import chunks
from xaibench.explainers.shared.layer_activations import Resize, find_layer, forward_rows, resized


@dataclass(frozen=True, kw_only=True)
class FeatureMaps:
    """What the explainers of one layer share.

    Attributes:
        layer: The layer to look at: its name in ``model.named_modules()``, such as ``"layer4"``, or the module itself,
            ``model.layer4``; ``None``: the last feature map before pooling, or in a transformer the last tokens before
            the last attention. If it runs more than once in a pass, its last run counts.
        resize: How the map becomes as large as the image: ``"bilinear"`` (without aligned corners), ``"nearest"``, or
            ``None``: it stays as large as the layer's.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images. It bounds the memory and
            changes the maps by no more than rounding.
    """

    #: What is explained unless the caller says otherwise.
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
        """Maps ``[N, H, W]``, or as large as the layer's without ``resize``.

        Raises:
            UnsupportedModelError: If the network has no layer that the method can look at.
            ValueError: If it has no ``layer`` of that name, or one whose output is neither feature map nor tokens.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        chunk = forward_rows(images, self.batch_size)
        parts = [self._maps(model, layer, x, y) for x, y in chunks(chunk, images, targets)]
        return resized(torch.cat(parts), (images.shape[-2], images.shape[-1]), self.resize)

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[n, h, w]`` as large as the layer's."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EveryMap(FeatureMaps):
    """What the explainers share that ask the network once for each feature map of the layer, and once for the image."""

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Passes for these images, of which the network's layer decides; looks at the first.

        Args:
            model: From images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``.

        Returns:
            So many.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        return len(images) * (1 + activations(model, layer, images[:1]).shape[1])


def weighted_sum(weights: Tensor, features: Tensor) -> Tensor:
    """Sum over k of w_k A_k: ``[N, h, w]`` from ``[N, C]`` and ``[N, C, h, w]``."""
    return torch.einsum("nc,nchw->nhw", weights, features)
