"""LibraGrad: Input×Gradient with a gradient of which nothing gets lost in any operation of a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    CONSTANT_GATES,
    HALVED_PRODUCTS,
    RuledInputXGradient,
    Rules,
)


@described(
    ExplainerInfo(
        "LibraGrad",
        family="Attention",
        citation="Mehri et al.: LibraGrad: Balancing Gradient Flow for Universally Better Vision Transformer "
        "Attributions. CVPR 2025.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class LibraGrad(RuledInputXGradient):
    """The image times a balanced gradient, in which every operation is affine or its factors share alike.

    In the backward pass these are constants: the attention, the denominators of normalisations, and the gate f(x) / x
    of an activation with f(0) = 0 (GELU, SiLU); a product of two numbers that both depend on the image passes half of
    its gradient to each. The network is then FullGrad-complete: image times gradient, and every bias, embedding of
    position and class token times its own, sum to the logit. The paper balances any method made of gradients; this is
    its Input×Gradient, on pixels.
    """

    name: ClassVar[str] = "libragrad"

    def rules(self) -> Rules:
        """Constant attention, denominators and gates, and halved products.

        Returns:
            By the name under which torch reports a call.
        """
        return {**CONSTANT_DENOMINATORS, **CONSTANT_ATTENTION, **CONSTANT_GATES, **HALVED_PRODUCTS}
