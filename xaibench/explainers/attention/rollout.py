"""Attention rollout: how much of each patch's input reaches the class token through the attention of all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_choice, check_count
from xaibench.explainers.base import chunks
from xaibench.explainers.shared.layers import Resize, forward_rows, resize_maps
from xaibench.explainers.shared.tokens import TokenLayout, Tokens, record_attention, token_layout
from xaibench.network.explained_output import UnsupportedModelError


@ExplainerInfo(
    "Attention Rollout",
    family="Attention",
    needs_gradient=False,
    citation="Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020.",
    revision=2,
    passes=1,
)
@dataclass(frozen=True, kw_only=True)
class AttentionRollout:
    """The product over the layers of (A + I) / 2, with A the attention averaged over the heads (section 3).

    The map is the row of the token that the head of the network reads, at the patches. If it reads several tokens (all
    patches, averaged, or a class and a distillation token), the map is the mean of their rows. Never negative, and
    independent of the target class.

    Beyond the paper, in a transformer with windows (Swin), A is zero between tokens of different windows. Where patches
    are merged, the mean of their rows is taken.

    Attributes:
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (without aligned corners),
            ``"nearest"``, or ``None``: one value per patch.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    resize: Resize | None = "bilinear"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            check_choice("resize", self.resize, get_args(Resize), owner="AttentionRollout")
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner="AttentionRollout")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the grid of patches without ``resize``; targets are ignored.

        Raises:
            UnsupportedModelError: If the network has no attention, or its tokens cannot be located in the image.
        """
        layout = token_layout("attention_rollout", model, images)
        _check_token_merging(layout)
        parts = [_rollout(model, layout, x) for (x,) in chunks(forward_rows(images, self.batch_size), images)]
        return resize_maps(torch.cat(parts), tuple(images.shape[2:]), self.resize)


def _rollout(model: nn.Module, layout: TokenLayout, images: Tensor) -> Tensor:
    """Compute ``[n, h, w]``: the share of each patch in the tokens that the head reads."""
    with record_attention(model) as seen, torch.no_grad():
        model(images)
    first = layout.layers[0]
    # [n, tokens, tokens of the first layer]: the share of the latter in each token.
    rollout = torch.eye(first.count, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
    before = first
    for tokens, attention in zip(layout.layers, seen, strict=True):
        if tokens.count != before.count:
            # The rows of patches that are merged are averaged.
            rows = rollout.transpose(1, 2).reshape(len(rollout), -1, *before.grid)
            pool = nn.AdaptiveAvgPool2d if len(before.grid) == 2 else nn.AdaptiveAvgPool3d
            rollout = torch.as_tensor(pool(tokens.grid)(rows)).flatten(2).transpose(1, 2)
        rollout = _apply_attention(rollout, tokens, attention.weights.mean(1).to(rollout.dtype))
        before = tokens
    rows = rollout[:, layout.read.to(rollout.device)].mean(1)
    return rows[:, first.extra :].reshape(-1, *first.grid)


def _apply_attention(rollout: Tensor, tokens: Tokens, attention: Tensor) -> Tensor:
    """Multiply the rollout by (A + I) / 2, window by window; padding is zero."""
    places = tokens.places.to(rollout.device)
    padded = torch.cat([rollout, torch.zeros_like(rollout[:, :1])], 1)
    windows = padded[:, places]
    windows = (attention.reshape(-1, len(places), *attention.shape[1:]) @ windows + windows) / 2
    there = places.flatten() >= 0
    return rollout.index_copy(1, places.flatten()[there], windows.flatten(1, 2)[:, there])


def _check_token_merging(layout: TokenLayout) -> None:
    """Require that each layer has the tokens of the previous layer, possibly merged."""
    before = layout.layers[0]
    for tokens, attention in zip(layout.layers, layout.attentions, strict=True):
        shape = tuple(attention.weights.shape[-2:])
        merged = before.extra == tokens.extra == 0 and all(
            a >= b for a, b in zip(before.grid, tokens.grid, strict=True)
        )
        if shape[0] != shape[1] or (tokens.count != before.count and not merged):
            raise UnsupportedModelError(
                f"attention_rollout: the attention of layer {attention.name!r} is over {shape} of {tokens.count} "
                f"tokens, that before over {before.count}; expected self-attention over the same tokens in every "
                "layer, or over patches that are merged. Use gradcam, or rise."
            )
        before = tokens
