"""Attention × gradient: what each token adds to the logit by being attended to in the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.attention_calls import attention_gradients
from xaibench.explainers.attention.attention_maps import AttentionGradients
from xaibench.explainers.attention.token_places import TokenLayout


@described(
    ExplainerInfo(
        "Attention × Gradient",
        family="Attention",
        citation="Serrano, Smith: Is Attention Interpretable? ACL 2019.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class AttentionXGradient(AttentionGradients):
    """The last layer's attention times the gradient of the explained output by it, of each token that is attended to.

    sum_t A_ts dy/dA_ts for patch s, averaged over the heads; where the head of the network reads a class token, only
    its row t has a gradient. Signed. The paper weighs the words of a text so; here the tokens are patches, those of
    Swin's windows too, which are put where they lie.
    """

    name: ClassVar[str] = "attention_x_gradient"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Of each token that is attended to.

        Args:
            model: Maps images to ``[N, K]``.
            layout: Where the tokens lie.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n, h, w]``.
        """
        seen, gradients = attention_gradients(self.name, model, images, targets)
        return layout.layers[-1].on_grid((seen[-1].weights.detach() * gradients[-1]).mean(1).sum(1))
