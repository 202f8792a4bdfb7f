"""LibraGrad: Input×Gradient with a gradient that every operation of a transformer conserves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    CONSTANT_GATES,
    HALVED_PRODUCTS,
    BackwardRules,
    RuleBasedInputXGradient,
)


@ExplainerInfo(
    "LibraGrad",
    family="Attention",
    citation="Mehri et al.: LibraGrad: Balancing Gradient Flow for Universally Better Vision Transformer "
    "Attributions. CVPR 2025.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class LibraGrad(RuleBasedInputXGradient):
    """The image times a balanced gradient: every operation is affine or splits the gradient between its factors.

    In the backward pass, these are constants: the attention weights, the denominators of normalizations, and the gate
    f(x) / x of an activation with f(0) = 0 (GELU, SiLU). A product of two numbers that both depend on the image passes
    half of its gradient to each. The network is then FullGrad-complete: image times gradient, plus every bias, position
    embedding and class token times its gradient, sums to the logit. The paper balances any gradient-based method; this
    is its Input×Gradient, on pixels.
    """

    name: ClassVar[str] = "libragrad"

    def rules(self) -> BackwardRules:
        """Return the backward rules.

        Constant attention weights, denominators and gates, and halved gradients of products.

        Returns:
            Rules by the name under which torch reports a call.
        """
        return {**CONSTANT_DENOMINATORS, **CONSTANT_ATTENTION, **CONSTANT_GATES, **HALVED_PRODUCTS}
