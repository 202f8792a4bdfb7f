"""Attention × gradient: the contribution of each token to the logit through the attention of the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.attention.attention_maps import AttentionGradients
from xaibench.explainers.shared.tokens import TokenLayout, attention_gradients


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
