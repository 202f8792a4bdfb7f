"""Conservative Input×Gradient: attention and layer normalization conserve the relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    BackwardRules,
    RuleBasedInputXGradient,
)


@ExplainerInfo(
    "Conservative Input × Gradient",
    family="Attention",
    citation="Ali et al.: XAI for Transformers: Better Explanations through Conservative Propagation. ICML 2022.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class ConservativeInputXGradient(RuleBasedInputXGradient):
    """The image times a gradient that treats attention weights and the denominators of normalizations as constants.

    In the backward pass, the attention p_ij of y_j = sum_i x_i p_ij(x) and the sqrt(eps + Var[x]) under x - E[x] are
    constants (section 4, LRP-AH and LRP-LN). All other operations have their usual gradient. Such linear layers
    conserve the relevance, whereas a plain gradient changes its sum. Without biases, with zero position embeddings and
    class token and with ReLU activations, the map sums to the logit. GELU keeps its gradient; LibraGrad treats it.
    """

    name: ClassVar[str] = "conservative_input_x_gradient"

    def rules(self) -> BackwardRules:
        """Return the backward rules: constant attention and constant denominators.

        Returns:
            Rules by the name under which torch reports a call.
        """
        return {**CONSTANT_DENOMINATORS, **CONSTANT_ATTENTION}
