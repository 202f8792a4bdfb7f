"""Gradient-weighted attention rollout: the influence of the patches on the logit through all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.attention.attention_maps import AttentionGradients, check_same_tokens
from xaibench.explainers.shared.tokens import TokenLayout, attention_gradients


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
