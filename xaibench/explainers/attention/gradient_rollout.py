"""Gradient-weighted attention rollout: through which attention the patches reach the logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.attention_calls import attention_gradients
from xaibench.explainers.attention.attention_maps import AttentionGradients, check_same_tokens
from xaibench.explainers.attention.token_places import TokenLayout


@described(
    ExplainerInfo(
        "Gradient Rollout",
        family="Attention",
        citation="Chefer, Gur, Wolf: Generic Attention-model Explainability for Interpreting Bi-Modal and "
        "Encoder-Decoder Transformers. ICCV 2021.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class GradientRollout(AttentionGradients):
    """Rollout of the attention times its gradient: R = R + A' R from layer to layer, R the identity at first.

    A' is the mean over the heads of the positive part of A times dy/dA, the gradient of the explained output by it
    (equations 5 and 6, for self-attention). The map is the row of the token that the head reads, at the patches; where
    it reads several, the mean of their rows. Never negative. It is the method of the paper of ICCV 2021; that of CVPR
    2021 by the same authors has relevance (LRP) in the place of A.
    """

    name: ClassVar[str] = "gradient_rollout"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """The row of what is read.

        Args:
            model: Maps images to ``[N, K]``.
            layout: Where the tokens lie.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n, h, w]``.

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
