"""AttnLRP: layer-wise relevance propagation for transformers, computed as Input×Gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_choice
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    CONSTANT_GATES,
    HALVED_PRODUCTS,
    BackwardRules,
    RuleBasedInputXGradient,
    gamma_rules,
)

#: How relevance passes through the attention.
AttentionRule: TypeAlias = Literal["uniform", "constant"]


@ExplainerInfo(
    "AttnLRP",
    family="Attention",
    citation="Achtibat et al.: AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers. ICML 2024.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class AttnLRP(RuleBasedInputXGradient):
    """Layer-wise relevance propagation from the target's logit through attention and all other layers to the pixels.

    Linear layers and convolutions distribute R_j over their inputs by the gamma rule (see :class:`LayerwiseRelevance`).
    A matrix product O = A V gives A_ji V_ip R_jp / (2 O_jp) to each of its factors (the uniform rule). A softmax s
    gives x_i (R_i - s_i sum(R_j)), its Taylor decomposition at x. Layer normalization is linear, with a constant
    denominator. GELU and SiLU pass on all of R_i (the identity rule). A sum of branches is distributed in proportion to
    the branches.

    The relevance of biases, position embeddings and the class token is not assigned to any pixel. On timm's ViT, the
    map agrees with the authors' package (LXT 2.1, with the gamma rule of zennit) to 10⁻⁷ of the largest value. For
    torchvision's ViT, that package has no gamma rule within ``nn.MultiheadAttention``.

    LRP is patented (US 12061966, EP 3271863; Fraunhofer and TU Berlin). The authors' package, LXT, is under the Clear
    BSD license, which grants no patent rights; its README says that LRP may be used free of charge for personal and
    scientific purposes only. This implementation was written from the equations and grants no patent rights either.

    Attributes:
        gamma: Gamma of linear layers. The authors tune it for each network; this default and that for convolutions are
            values from their example.
        gamma_convolution: Gamma of convolutions.
        attention_rule: ``"uniform"``: as above. ``"constant"``: the softmax passes on nothing and the values get all
            relevance, as in Conservative Input × Gradient and in the authors' package for vision transformers.
    """

    gamma: float = 0.05
    gamma_convolution: float = 0.25
    attention_rule: AttentionRule = "uniform"
    name: ClassVar[str] = "attnlrp"
    #: No other output can be explained.
    explains_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("attention_rule", self.attention_rule, get_args(AttentionRule), owner="AttnLRP")
        if not (self.gamma >= 0 and self.gamma_convolution >= 0):
            raise ValueError(
                f"AttnLRP(gamma={self.gamma!r}, gamma_convolution={self.gamma_convolution!r}): expected neither to be "
                "negative."
            )

    def rules(self) -> BackwardRules:
        """Return the backward rules.

        Returns:
            Rules by the name under which torch reports a call.
        """
        through = CONSTANT_ATTENTION if self.attention_rule == "constant" else {}
        gamma = gamma_rules(self.gamma, self.gamma_convolution)
        return {**CONSTANT_DENOMINATORS, **CONSTANT_GATES, **HALVED_PRODUCTS, **through, **gamma}
