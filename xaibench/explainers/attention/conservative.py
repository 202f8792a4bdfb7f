"""Conservative Input×Gradient: nothing of the output gets lost in attention or layer normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    RuledInputXGradient,
    Rules,
)


@described(
    ExplainerInfo(
        "Conservative Input × Gradient",
        family="Attention",
        citation="Ali et al.: XAI for Transformers: Better Explanations through Conservative Propagation. ICML 2022.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class ConservativeInputXGradient(RuledInputXGradient):
    """The image times a gradient that takes the attention, and the denominators of normalisations, for constants.

    In the backward pass the attention p_ij of y_j = sum_i x_i p_ij(x), and the sqrt(eps + Var[x]) under x - E[x], are
    constants (section 4, LRP-AH and LRP-LN); all else is differentiated as it is. A layer that is linear then passes on
    as much as it gets, where a plain gradient loses or multiplies it: without biases, with embeddings of position and
    class token 0 and ReLU for activation, the map sums to the logit. GELU is left as it is; LibraGrad treats it.
    """

    name: ClassVar[str] = "conservative_input_x_gradient"

    def rules(self) -> Rules:
        """Constant attention and constant denominators.

        Returns:
            By the name under which torch reports a call.
        """
        return {**CONSTANT_DENOMINATORS, **CONSTANT_ATTENTION}
