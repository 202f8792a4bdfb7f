"""AttnLRP: layer-wise relevance propagation for transformers, written as Input×Gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from xaibench.core.checks import check_choice
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.transformer_rules import (
    CONSTANT_ATTENTION,
    CONSTANT_DENOMINATORS,
    CONSTANT_GATES,
    HALVED_PRODUCTS,
    RuledInputXGradient,
    Rules,
    favouring,
)

#: How relevance goes through the attention.
Through: TypeAlias = Literal["uniform", "constant"]


@described(
    ExplainerInfo(
        "AttnLRP",
        family="Attention",
        citation="Achtibat et al.: AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers. "
        "ICML 2024.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class AttnLRP(RuledInputXGradient):
    """Layer-wise relevance propagation from the target's logit through attention and all else to the pixels.

    Linear layers and convolutions share R_j among their inputs by the gamma rule (see :class:`LayerwiseRelevance`). A
    matrix product O = A V gives A_ji V_ip R_jp / (2 O_jp) to each of its factors (the uniform rule), and a softmax s
    gives x_i (R_i - s_i sum(R_j)), its Taylor decomposition at x. A layer normalisation is linear, its denominator a
    constant; GELU and SiLU pass all of R_i on (the identity rule); a sum of branches is shared in proportion to what
    each adds.

    What biases, embeddings of position and the class token get, no pixel has. On timm's ViT it agrees with the authors'
    package (LXT 2.1, its gamma zennit's) to 10⁻⁷ of the largest value; in torchvision's, that package has no gamma
    within ``nn.MultiheadAttention``.

    LRP is patented (US 12061966, EP 3271863; Fraunhofer and TU Berlin). The authors' package, LXT, is under the Clear
    BSD licence, which grants no patent rights; its README says that LRP may be used free of charge for personal and
    scientific purposes only. What is here was written from the equations, and grants no right to the patent either.

    Attributes:
        gamma: Of linear layers. The authors tune it network by network; the default is of the values that their
            example tries, as that of convolutions is.
        gamma_convolution: Of convolutions.
        attention_rule: ``"uniform"``: as above. ``"constant"``: the softmax passes nothing on and the values get all, as in
            Conservative Input × Gradient; what the authors' package does in vision transformers.
    """

    gamma: float = 0.05
    gamma_convolution: float = 0.25
    attention_rule: Through = "uniform"
    name: ClassVar[str] = "attnlrp"
    #: Nothing else can be explained.
    explains_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("attention_rule", self.attention_rule, get_args(Through), owner="AttnLRP")
        if not (self.gamma >= 0 and self.gamma_convolution >= 0):
            raise ValueError(
                f"AttnLRP(gamma={self.gamma!r}, gamma_convolution={self.gamma_convolution!r}): expected neither to be "
                "negative."
            )

    def rules(self) -> Rules:
        """The rules of the table.

        Returns:
            By the name under which torch reports a call.
        """
        through = CONSTANT_ATTENTION if self.attention_rule == "constant" else {}
        gamma = favouring(self.gamma, self.gamma_convolution)
        return {**CONSTANT_DENOMINATORS, **CONSTANT_GATES, **HALVED_PRODUCTS, **through, **gamma}
