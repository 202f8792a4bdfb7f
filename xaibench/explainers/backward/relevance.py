"""Layer-wise relevance propagation: the rules epsilon, gamma and alpha-beta, and deep Taylor decomposition.

The relevance R_j of the outputs of a layer is shared among its inputs in proportion to what each contributed,
c_ij = x_i w_ij; the rules differ in which contributions count. What every rule has in common:

- The logit of the target is explained, whatever output is asked for: rules know no softmax. Where a network takes
  classes together by a log-sum-exp, relevance starts at the members j of the target's group g, with z_j dz_g/dz_j; that
  sums to z_g less the entropy of the members' shares.
- Relevance passes unchanged through an elementwise activation (ReLU6, SiLU and GELU as well as ReLU) and through layer
  normalisation, to the largest
  input of a max-pooling, and through average pooling and the sum of branches in proportion to the inputs (with ``z+``
  to the positive ones).
- The weights of an attention are taken as they are (Ali et al. 2022): it is a weighted sum of its values, which get
  what average pooling would give them, and queries and keys nothing.
- Batch normalisation is folded into the linear layer before it.
- An output without any contribution (0/0) passes nothing on.

Written here rather than taken from zennit (LGPL), with which it agrees: zennit hooks into modules, so it takes no
notice of what is called as a function, needs a canoniser for each architecture with branches, and goes on where it
cannot treat a layer. The walk is the one that PatternNet needs anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar, Literal, TypeAlias, get_args

from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.backward.layer_operations import Operation
from xaibench.explainers.backward.layer_walk import propagate, unsupported, with_backward
from xaibench.explainers.backward.relevance_rules import (
    Bound,
    alpha_beta_rule,
    bound_like,
    check_inside,
    epsilon_rule,
    gamma_rule,
    w2_rule,
    zb_rule,
)
from xaibench.explainers.shared.interface import Attribution

Rule: TypeAlias = Literal["epsilon", "gamma", "alpha_beta", "z+", "zB", "w2"]

# The rules of deep Taylor decomposition that know what the inputs of the network are; only linear layers have them.
_INPUT_RULES = ("zB", "w2")


@dataclass(frozen=True, kw_only=True)
class LayerwiseRelevance(Attribution):
    """Relevance of the target's logit, propagated to the pixels by a rule for each layer.

    With b_j the bias, c+ and c- the positive and negative parts of c_ij = x_i w_ij, sums over i:

    ==============  ==============================================================================================
    rule            what input i gets of R_j
    ==============  ==============================================================================================
    ``epsilon``     c_ij / (z_j + epsilon sign(z_j)), z_j = sum(c_ij) + b_j, sign(0) = 1 (Bach et al. 2015, eq. 58)
    ``gamma``       (c_ij + gamma c'_ij) / (sum(c_ij + gamma c'_ij) + b_j + gamma b'_j), c' and b' the parts with the
                    sign of z_j (Andeol et al. 2021; of Montavon et al. 2019 where inputs and outputs are positive)
    ``alpha_beta``  alpha c+_ij / (sum(c+) + b+_j) - beta c-_ij / (sum(c-) + b-_j) (Bach et al. 2015, eq. 60)
    ``z+``          ``alpha_beta`` with alpha 1 and beta 0
    ``zB``          (x_i w_ij - l_i w+_ij - h_i w-_ij) / sum(the same), l and h the bounds of the inputs; without bias
                    (Montavon et al. 2017, table 1)
    ``w2``          w_ij² / sum(w_ij²); without bias (Montavon et al. 2017, table 1)
    ==============  ==============================================================================================

    Without biases (``bias=False``, or none in the network) the maps sum to the logit: with ``z+``, ``zB``, ``w2`` and
    ``gamma`` where each output has a contribution that counts, with ``alpha_beta`` where it has some of both signs,
    with ``epsilon`` up to what epsilon absorbs.

    Attributes:
        rule: For every layer that ``input_rule`` and ``rules`` do not name.
        input_rule: For the first linear or convolutional layer that runs; ``None``: ``rule``.
        rules: ``{layer: rule}``, layers as in ``model.named_modules()``, wildcards allowed: ``{"features.*": "z+"}``.
            The first that fits counts, also before ``input_rule``.
        epsilon: Stabiliser of the epsilon rule, absolute; larger absorbs more of weak contributions.
        gamma: How much the contributions with the sign of the output are favoured.
        alpha: Weight of the positive contributions; ``alpha - beta`` must be 1.
        beta: Weight of the negative contributions.
        bias: Whether the bias is a contribution like the others; its share of relevance is then lost.
        low: Smallest value of the first layer's input, for ``zB``: a number, or one for each channel.
        high: Largest value.

    Raises:
        ValueError: If a rule is unknown, or parameters do not fit it.
    """

    rule: Rule = "epsilon"
    input_rule: Rule | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    epsilon: float = 1e-6
    gamma: float = 0.25
    alpha: float = 2.0
    beta: float = 1.0
    bias: bool = True
    low: Bound | None = None
    high: Bound | None = None
    #: What of the model is explained; nothing else can be.
    explains: ClassVar[Output] = "logit"
    explains_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        used = {"rule": self.rule, **{f"rules[{name!r}]": rule for name, rule in self.rules.items()}}
        if self.input_rule is not None:
            used["input_rule"] = self.input_rule
        for name, rule in used.items():
            check_choice(name, rule, get_args(Rule), owner=owner)
        if self.rule in _INPUT_RULES:
            raise ValueError(f"{owner}(rule={self.rule!r}): it is for the first layer; give it as input_rule.")
        if self.epsilon < 0 or self.gamma < 0:
            raise ValueError(f"{owner}(epsilon={self.epsilon}, gamma={self.gamma}): expected neither to be negative.")
        if self.beta < 0 or abs(self.alpha - self.beta - 1) > 1e-9:
            raise ValueError(f"{owner}(alpha={self.alpha}, beta={self.beta}): expected beta >= 0 and alpha = 1 + beta.")
        if "zB" in used.values() and (self.low is None or self.high is None):
            raise ValueError(f"{owner}: the rule 'zB' needs low and high, the bounds of the first layer's input.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If relevance cannot be carried back through a layer.
            ValueError: If ``rules`` names no layer, or with ``zB`` an image leaves its bounds.
        """
        return self.by_chunk(partial(self._attribute, model), images, targets)

    def _attribute(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        layers: list[str] = []

        def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
            if operation.kind == "linear":
                layers.append(_layer(operation))
            return with_backward(operation, inputs, self._backward(operation, inputs))

        relevance = propagate(model, images, targets, treat, self._start)
        for pattern in self.rules:
            if not any(fnmatchcase(layer, pattern) for layer in layers):
                raise ValueError(
                    f"{type(self).__name__}(rules={dict(self.rules)}): no layer is called {pattern!r}; the layers that "
                    f"have a rule are {', '.join(dict.fromkeys(layers))}."
                )
        return relevance

    def _start(self, logits: Tensor) -> Tensor:
        return logits

    def _backward(self, operation: Operation, inputs: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
        """What shares the relevance of the operation's output among its inputs."""
        if operation.kind in ("activation", "affine"):
            self._check_elementwise(operation, inputs)
            return lambda relevance, *_: (relevance,)
        if operation.kind == "sum" and self.rule != "z+":
            return partial(epsilon_rule, operation, 0.0, self.bias)
        rule = self._rule_of(operation)
        if rule == "zB":
            low, high = bound_like(self.low, operation, *inputs), bound_like(self.high, operation, *inputs)
            check_inside(inputs[0], low, high)
            return partial(zb_rule, operation, low, high)
        if rule == "w2":
            return partial(w2_rule, operation)
        if rule == "epsilon":
            return partial(epsilon_rule, operation, self.epsilon, self.bias)
        if rule == "gamma":
            return partial(gamma_rule, operation, self.gamma, self.bias)
        alpha, beta = (1.0, 0.0) if rule == "z+" else (self.alpha, self.beta)
        return partial(alpha_beta_rule, operation, alpha, beta, self.bias)

    def _rule_of(self, operation: Operation) -> Rule:
        if operation.kind == "linear":
            for pattern, rule in self.rules.items():
                if fnmatchcase(_layer(operation), pattern):
                    return rule
            if operation.is_input and self.input_rule is not None:
                return self.input_rule
        return self.rule

    def _check_elementwise(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        if operation(*inputs).shape != inputs[0].shape:
            raise unsupported(operation.where, f"{operation.called} that changes the shape")


@described(
    ExplainerInfo(
        "LRP epsilon",
        family="Relevance",
        citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
        "Propagation. PLOS ONE 10(7), 2015.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class LRPEpsilon(LayerwiseRelevance):
    """Layer-wise relevance propagation by the epsilon rule (see :class:`LayerwiseRelevance`).

    With ``epsilon=0`` and ReLU layers it equals Input×Gradient of the logit, where no denominator vanishes.
    """


@described(
    ExplainerInfo(
        "LRP gamma",
        family="Relevance",
        citation="Montavon et al.: Layer-Wise Relevance Propagation: An Overview. In: Explainable AI, 2019.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class LRPGamma(LayerwiseRelevance):
    """Layer-wise relevance propagation by the gamma rule (see :class:`LayerwiseRelevance`)."""

    rule: Rule = "gamma"


@described(
    ExplainerInfo(
        "LRP alpha-beta",
        family="Relevance",
        citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
        "Propagation. PLOS ONE 10(7), 2015.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class LRPAlphaBeta(LayerwiseRelevance):
    """Layer-wise relevance propagation by the alpha-beta rule (see :class:`LayerwiseRelevance`)."""

    rule: Rule = "alpha_beta"


@described(
    ExplainerInfo(
        "Deep Taylor",
        family="Relevance",
        citation="Montavon et al.: Explaining NonLinear Classification Decisions with Deep Taylor Decomposition. "
        "Pattern Recognition 65, 2017.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class DeepTaylor(LayerwiseRelevance):
    """Deep Taylor decomposition of the ReLU of the target's logit, for networks of ReLU and its smooth relatives.

    z+ without bias in every layer, as in the released XAI-TRIS runs (iNNvestigate's alpha1-beta0 without bias). The
    paper takes another rule where the layer sees the image: ``input_rule="zB"`` with ``low`` and ``high`` for pixels
    with bounds, ``"w2"`` for unbounded ones. Maps of z+, zB and w2 are never negative.

    The paper's networks are of ReLU. Where inputs of a layer are negative too, as after GELU, z+ takes the positive
    ones of the contributions x_i w_ij (Chefer et al. 2021, equation 5).

    A logit that is not positive has no relevance: its map is zero everywhere.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[3.0, -1.0], [0.0, 0.0]]))
        >>> DeepTaylor()(model, torch.ones(1, 1, 1, 2), torch.tensor([0]))
        tensor([[[2., 0.]]])
        >>> DeepTaylor(input_rule="w2")(model, torch.ones(1, 1, 1, 2), torch.tensor([0]))
        tensor([[[1.8000, 0.2000]]])
    """

    rule: Rule = "z+"
    bias: bool = False

    def _start(self, logits: Tensor) -> Tensor:
        return logits.clamp(min=0)

    def _check_elementwise(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        if operation.kind == "activation" and not (operation.rectifies or operation.smooth):
            raise unsupported(
                operation.where,
                operation.called,
                "Deep Taylor decomposition is for networks of ReLU and ReLU6, and of GELU, SiLU, Mish or Hardswish; "
                "use lrp_epsilon, or saliency or integrated_gradients.",
            )
        super()._check_elementwise(operation, inputs)


def _layer(operation: Operation) -> str:
    return operation.name.partition("#")[0]
