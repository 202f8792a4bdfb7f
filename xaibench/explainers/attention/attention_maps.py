"""Base class of maps made of attention and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.types import Output
from xaibench.explainers.base import chunks
from xaibench.explainers.shared.layers import Resize, forward_rows, resize_maps
from xaibench.explainers.shared.tokens import TokenLayout, token_layout
from xaibench.network.explained_output import UnsupportedModelError


@dataclass(frozen=True, kw_only=True)
class AttentionGradients:
    """Base class of explainers that compute one value per patch from the attention and the gradient with respect to it.

    Attributes:
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (without aligned corners),
            ``"nearest"``, or ``None``: one value per patch.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    resize: Resize | None = "bilinear"
    batch_size: int | None = None
    #: The explained output by default.
    explains: ClassVar[Output] = "logit"
    #: The name of the explainer, for error messages.
    name: ClassVar[str]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        if self.resize is not None:
            check_choice("resize", self.resize, get_args(Resize), owner=owner)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner=owner)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the grid of patches if ``resize`` is ``None``.

        Raises:
            UnsupportedModelError: If the network has no attention, or the method does not support its tokens.
        """
        layout = token_layout(self.name, model, images)
        rows = forward_rows(images, self.batch_size)
        parts = [self.on_patches(model, layout, x, y) for x, y in chunks(rows, images, targets)]
        return resize_maps(torch.cat(parts).to(images.dtype), tuple(images.shape[2:]), self.resize)

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the map before it is resized.

        Args:
            model: Maps images to ``[N, K]``.
            layout: The layout of the tokens.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n, h, w]``.
        """
        raise NotImplementedError


def check_same_tokens(owner: str, layout: TokenLayout) -> None:
    """Require that every layer attends over the same tokens, without windows.

    Args:
        owner: The explainer.
        layout: The layout of the tokens.

    Raises:
        UnsupportedModelError: If a layer attends within windows, or over other tokens.
    """
    count = layout.layers[0].count
    for tokens, attention in zip(layout.layers, layout.attentions, strict=True):
        shape = tuple(attention.weights.shape[-2:])
        if len(tokens.places) > 1 or shape != (count, count):
            windows = f" in {len(tokens.places)} windows" if len(tokens.places) > 1 else ""
            raise UnsupportedModelError(
                f"{owner}: layer {attention.name!r} attends over {shape} tokens{windows}; the method is defined for "
                "self-attention over the same tokens in every layer, as in ViT and DeiT. Use attention_x_gradient, "
                "libragrad or gradcam."
            )
