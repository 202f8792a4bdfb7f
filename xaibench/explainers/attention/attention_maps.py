"""Maps made of attention and its gradient: rollout, gradient-weighted rollout, and attention × gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.types import Output
from xaibench.explainers.base import CheckedParameters, chunks
from xaibench.explainers.shared.layers import Resize, forward_rows, resize_maps
from xaibench.explainers.shared.tokens import TokenLayout, Tokens, attention_gradients, record_attention, token_layout
from xaibench.network.explained_output import UnsupportedModelError


@dataclass(frozen=True, kw_only=True)
class AttentionGradients(CheckedParameters):
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


@ExplainerInfo(
    "Attention Rollout",
    family="Attention",
    needs_gradient=False,
    citation="Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020.",
    revision=2,
    passes=1,
)
@dataclass(frozen=True, kw_only=True)
class AttentionRollout(CheckedParameters):
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


@ExplainerInfo(
    "Gradient Rollout",
    family="Attention",
    citation="Chefer, Gur, Wolf: Generic Attention-model Explainability for Interpreting Bi-Modal and "
    "Encoder-Decoder Transformers. ICCV 2021.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class GradientRollout(AttentionGradients):
    """Rollout of the attention times its gradient: R = R + A' R from layer to layer, starting with the identity.

    A' is the mean over the heads of the positive part of A times dy/dA, the gradient of the explained output (equations
    5 and 6, for self-attention). The map is the row of the token that the head of the network reads, at the patches. If
    it reads several tokens, the map is the mean of their rows. Never negative. This is the method of the ICCV 2021
    paper; that of CVPR 2021 by the same authors uses relevance (LRP) instead of A.
    """

    name: ClassVar[str] = "gradient_rollout"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the values of the patches ``[n, h, w]``.

        Raises:
            UnsupportedModelError: If the layers do not all attend over the same tokens, as in Swin.
        """
        check_same_tokens(self.name, layout)
        seen, gradients = attention_gradients(self.name, model, images, targets)
        tokens = layout.layers[0]
        rollout = torch.eye(tokens.count, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
        for attention, gradient in zip(seen, gradients, strict=True):
            weighted = (attention.weights.detach() * gradient).clamp(min=0).mean(1)
            rollout = rollout + weighted.to(rollout.dtype) @ rollout
        return tokens.on_grid(rollout[:, layout.read.to(rollout.device)].mean(1))


@ExplainerInfo(
    "Attention × Gradient",
    family="Attention",
    citation="Serrano, Smith: Is Attention Interpretable? ACL 2019.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class AttentionXGradient(AttentionGradients):
    """The attention of the last layer times the gradient of the explained output with respect to it, per token.

    The value of patch s is sum_t A_ts dy/dA_ts, averaged over the heads. If the head of the network reads a class
    token, only the row t of that token has a gradient. Signed. The paper weights the words of a text in this way. Here
    the tokens are patches, also those in the windows of Swin.
    """

    name: ClassVar[str] = "attention_x_gradient"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the values of the patches ``[n, h, w]``."""
        seen, gradients = attention_gradients(self.name, model, images, targets)
        return layout.layers[-1].on_grid((seen[-1].weights.detach() * gradients[-1]).mean(1).sum(1))
