"""Layer-wise relevance propagation (rules epsilon, gamma and alpha-beta), and deep Taylor decomposition.

The relevance R_j of the outputs of a layer is distributed over its inputs in proportion to their contributions
c_ij = x_i w_ij. The rules differ in the contributions that count. All rules have in common:

- The target's logit is explained, since the rules have no softmax or sigmoid. Under ``output="sigmoid"``, class 0 of a
  network with one output z has the logit -z. A function v of the outputs z_j starts with z_j dv/dz_j. If a network
  merges classes by a log-sum-exp, relevance starts at the members j of the target's group g, with z_j dz_g/dz_j; it
  sums to z_g minus the entropy of the members' shares.
- Relevance passes unchanged through an elementwise activation (ReLU6, SiLU and GELU as well as ReLU) and through layer,
  group and instance normalization. Max-pooling passes it to the largest input; average pooling, upsampling and the sum
  of branches distribute it in proportion to the inputs (with ``z+`` to the positive ones).
- Attention weights are constants (Ali et al. 2022): an attention is a weighted sum of its values, which are treated as
  in average pooling. Queries and keys get nothing.
- Batch normalization is folded into the linear layer before it.
- An output without any contribution (0/0) passes on nothing.

This implementation agrees with zennit, which is not used because of its license (LGPL) and because it hooks into
modules: it does not see operations called as functions, needs a canonizer for each architecture with branches, and
continues silently where it does not support a layer. The propagation is shared with PatternNet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.types import Output
from xaibench.explainers.base import Attribution
from xaibench.explainers.propagation.layer_operations import Operation
from xaibench.explainers.propagation.layer_walk import Condition, propagate, unsupported_operation, with_backward
from xaibench.network.explained_output import UnsupportedModelError, explains_function
from xaibench.registry.info import ExplainerInfo

#: A bound of the first layer's input: one number, or one per channel.
Bound = float | tuple[float, ...]

RuleName: TypeAlias = Literal["epsilon", "gamma", "alpha_beta", "z+", "zB", "w2"]

# Rules of deep Taylor decomposition for the input layer; only linear layers have them.
_INPUT_RULES = ("zB", "w2")

# Rules by which contributions of both signs count differently.
_ONE_SIDED_RULES = ("alpha_beta", "z+")


@dataclass(frozen=True, kw_only=True)
class LayerwiseRelevance(Attribution):
    """Relevance of the target's logit, propagated to the pixels with one rule per layer.

    With b_j the bias, c+ and c- the positive and negative parts of c_ij = x_i w_ij, sums over i:

    ==============  ==============================================================================================
    rule            share of R_j for input i
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

    Without biases (``bias=False``, or none in the network), the maps sum to the logit: with ``z+``, ``zB``, ``w2`` and
    ``gamma`` if each output has a contribution that counts, with ``alpha_beta`` if it has contributions of both signs,
    with ``epsilon`` except for the share that epsilon absorbs.

    Attributes:
        rule: Rule of every layer that ``input_rule`` and ``rules`` do not cover.
        input_rule: Rule of the first linear or convolutional layer that is called; ``None``: ``rule``.
        rules: ``{layer: rule}``, layers as in ``model.named_modules()``, wildcards allowed: ``{"features.*": "z+"}``.
            The first match is used; it takes precedence over ``input_rule``.
        epsilon: Stabilizer of the epsilon rule, absolute; a larger value absorbs more of weak contributions.
        gamma: Additional weight of the contributions with the sign of the output.
        alpha: Weight of the positive contributions; ``alpha - beta`` must be 1.
        beta: Weight of the negative contributions.
        bias: Whether the bias counts as a contribution; its share of relevance is then lost.
        low: Smallest value of the first layer's input, for ``zB``: a number, or one per channel.
        high: Largest value of the first layer's input, for ``zB``.

    Raises:
        ValueError: If a rule is unknown, or its parameters are invalid.
    """

    rule: RuleName = "epsilon"
    input_rule: RuleName | None = None
    rules: Mapping[str, RuleName] = field(default_factory=dict)
    epsilon: float = 1e-6
    gamma: float = 0.25
    alpha: float = 2.0
    beta: float = 1.0
    bias: bool = True
    low: Bound | None = None
    high: Bound | None = None
    #: The only output that can be explained.
    explains: ClassVar[Output] = "logit"
    explains_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        for name, rule in self.rules.items():
            check_choice(f"rules[{name!r}]", rule, get_args(RuleName), owner=owner)
        if self.rule in _INPUT_RULES:
            raise ValueError(
                f"{owner}(rule={self.rule!r}): this rule is for the first layer only; pass it as input_rule."
            )
        if self.epsilon < 0 or self.gamma < 0:
            raise ValueError(f"{owner}(epsilon={self.epsilon}, gamma={self.gamma}): expected both to be nonnegative.")
        if self.beta < 0 or abs(self.alpha - self.beta - 1) > 1e-9:
            raise ValueError(f"{owner}(alpha={self.alpha}, beta={self.beta}): expected beta >= 0 and alpha = 1 + beta.")
        if "zB" in (self.rule, self.input_rule, *self.rules.values()) and (self.low is None or self.high is None):
            raise ValueError(f"{owner}: the rule 'zB' needs low and high, the bounds of the first layer's input.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If relevance cannot be propagated through a layer.
            ValueError: If a name in ``rules`` matches no layer, or if an image exceeds the bounds of ``zB``.
        """
        return self.by_chunk(partial(self._attribute, model), images, targets)

    def _attribute(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        return self._propagate(model, images, targets)

    def _propagate(
        self,
        model: nn.Module,
        images: Tensor,
        targets: Tensor,
        watch: Callable[[Operation, Tensor], Tensor] = lambda operation, output: output,
        condition: Condition | None = None,
    ) -> Tensor:
        """Return the relevance of the pixels ``[n, C, H, W]``.

        Args:
            model: See :func:`.propagate`.
            images: See :func:`.propagate`.
            targets: See :func:`.propagate`.
            watch: Called with every operation and its output, which it returns.
            condition: See :func:`.propagate`.
        """
        layers: list[str] = []

        def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
            if operation.kind == "linear":
                layers.append(operation_layer(operation))
            return watch(operation, with_backward(operation, inputs, self._backward(operation, inputs)))

        # The slope of a logit of several classes is never negative, and the check would wait for a GPU.
        may_fall = explains_function(model) or getattr(model, "output", None) == "sigmoid"
        start = self._checked_start if may_fall else self._start
        relevance = propagate(model, images, targets, treat, start, condition)
        for pattern in self.rules:
            if not any(fnmatchcase(layer, pattern) for layer in layers):
                raise ValueError(
                    f"{type(self).__name__}(rules={dict(self.rules)}): no layer matches {pattern!r}; the layers with "
                    f"a rule are {', '.join(dict.fromkeys(layers))}."
                )
        return relevance

    def _start(self, outputs: Tensor, slope: Tensor) -> Tensor:
        return slope * outputs

    def _checked_start(self, outputs: Tensor, slope: Tensor) -> Tensor:
        """Return the start values, if the explained value does not fall where an output of the network rises."""
        if {self.rule, *self.rules.values()} & set(_ONE_SIDED_RULES) and bool((slope < 0).any()):
            raise UnsupportedModelError(
                f"{type(self).__name__}: the explained value falls where an output of the network rises, but the rules "
                f"{', '.join(_ONE_SIDED_RULES)} weight contributions by their sign. Explain class 1 instead of class 0 "
                "of a network with one output, or use lrp_epsilon or lrp_gamma."
            )
        return self._start(outputs, slope)

    def _backward(self, operation: Operation, inputs: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
        """Return the function that distributes the relevance of the operation's output over its inputs."""
        if operation.kind in ("activation", "affine"):
            self._check_elementwise(operation, inputs)
            return lambda relevance, *_: (relevance,)
        if operation.kind == "sum" and self.rule != "z+":
            return partial(epsilon_rule, operation, 0.0, self.bias)
        rule = self._choose_rule(operation)
        if rule == "zB":
            low, high = broadcast_bound(self.low, operation, *inputs), broadcast_bound(self.high, operation, *inputs)
            check_within_bounds(inputs[0], low, high)
            return partial(zb_rule, operation, low, high)
        if rule == "w2":
            return partial(w2_rule, operation)
        if rule == "epsilon":
            return partial(epsilon_rule, operation, self.epsilon, self.bias)
        if rule == "gamma":
            return partial(gamma_rule, operation, self.gamma, self.bias)
        alpha, beta = (1.0, 0.0) if rule == "z+" else (self.alpha, self.beta)
        return partial(alpha_beta_rule, operation, alpha, beta, self.bias)

    def _choose_rule(self, operation: Operation) -> RuleName:
        if operation.kind == "linear":
            for pattern, rule in self.rules.items():
                if fnmatchcase(operation_layer(operation), pattern):
                    return rule
            if operation.is_input and self.input_rule is not None:
                return self.input_rule
        return self.rule

    def _check_elementwise(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        if operation(*inputs).shape != inputs[0].shape:
            raise unsupported_operation(operation.where, f"{operation.called} that changes the shape")


@ExplainerInfo(
    "LRP epsilon",
    family="Relevance",
    citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
    "Propagation. PLOS ONE 10(7), 2015.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class LRPEpsilon(LayerwiseRelevance):
    """Layer-wise relevance propagation by the epsilon rule (see :class:`LayerwiseRelevance`).

    With ``epsilon=0`` and ReLU layers it equals Input×Gradient of the logit where no denominator vanishes.
    """


@ExplainerInfo(
    "LRP gamma",
    family="Relevance",
    citation="Montavon et al.: Layer-Wise Relevance Propagation: An Overview. In: Explainable AI, 2019.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class LRPGamma(LayerwiseRelevance):
    """Layer-wise relevance propagation by the gamma rule (see :class:`LayerwiseRelevance`)."""

    rule: RuleName = "gamma"


@ExplainerInfo(
    "LRP alpha-beta",
    family="Relevance",
    citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
    "Propagation. PLOS ONE 10(7), 2015.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class LRPAlphaBeta(LayerwiseRelevance):
    """Layer-wise relevance propagation by the alpha-beta rule (see :class:`LayerwiseRelevance`)."""

    rule: RuleName = "alpha_beta"


@ExplainerInfo(
    "Deep Taylor",
    family="Relevance",
    citation="Montavon et al.: Explaining NonLinear Classification Decisions with Deep Taylor Decomposition. "
    "Pattern Recognition 65, 2017.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class DeepTaylor(LayerwiseRelevance):
    """Deep Taylor decomposition of the ReLU of the target's logit, for networks of ReLU and similar smooth activations.

    The rule is z+ without bias in every layer, as in the released XAI-TRIS runs (iNNvestigate's alpha1-beta0 without
    bias). For the layer that receives the image, the paper uses another rule: ``input_rule="zB"`` with ``low`` and
    ``high`` for bounded pixels, ``"w2"`` for unbounded ones. Maps of z+, zB and w2 are never negative.

    The networks of the paper use ReLU. If inputs of a layer are negative, as after GELU, z+ takes the positive
    contributions x_i w_ij (Chefer et al. 2021, equation 5).

    A logit that is not positive has no relevance, so its map is zero everywhere.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[3.0, -1.0], [0.0, 0.0]]))
        >>> DeepTaylor()(model, torch.ones(1, 1, 1, 2), torch.tensor([0]))
        tensor([[[2., 0.]]])
        >>> DeepTaylor(input_rule="w2")(model, torch.ones(1, 1, 1, 2), torch.tensor([0]))
        tensor([[[1.8000, 0.2000]]])
    """

    rule: RuleName = "z+"
    bias: bool = False

    def _start(self, outputs: Tensor, slope: Tensor) -> Tensor:
        return (slope * outputs).clamp(min=0)

    def _check_elementwise(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        if operation.kind == "activation" and not (operation.rectifies or operation.smooth):
            raise unsupported_operation(
                operation.where,
                operation.called,
                "Deep Taylor decomposition supports ReLU, ReLU6, GELU, SiLU, Mish and Hardswish; "
                "use lrp_epsilon, or saliency or integrated_gradients.",
            )
        super()._check_elementwise(operation, inputs)


def operation_layer(operation: Operation) -> str:
    """Return the name of the layer of an operation, without the number of the call."""
    return operation.name.partition("#")[0]


# Each rule takes an operation, its parameters, the relevance of the output and the inputs, and returns the relevance of
# each input (:class:`LayerwiseRelevance` has the equations).


def epsilon_rule(
    operation: Operation, epsilon: float, bias: bool, relevance: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Distribute over all contributions, with a denominator that epsilon keeps away from zero."""
    total = operation(*inputs) if bias else operation.function(*inputs, operation.weight)
    share = _divide(relevance, torch.where(total < 0, total - epsilon, total + epsilon))
    back = operation.pullback(operation.weight, share, *inputs)
    return tuple(x * g for x, g in zip(inputs, back, strict=True))


def alpha_beta_rule(
    operation: Operation, alpha: float, beta: float, bias: bool, relevance: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Distribute over positive and negative contributions separately."""
    positive = _Contributions(operation, inputs, 1, bias, relevance)
    result = positive.share(alpha * _divide(relevance, positive.total))
    if not beta:
        return result
    negative = _Contributions(operation, inputs, -1, bias, relevance)
    other = negative.share(beta * _divide(relevance, negative.total))
    return tuple(a - b for a, b in zip(result, other, strict=True))


def gamma_rule(
    operation: Operation, gamma: float, bias: bool, relevance: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Distribute over all contributions, weighting those with the sign of the output by 1 + gamma."""
    positive = _Contributions(operation, inputs, 1, bias, relevance)
    negative = _Contributions(operation, inputs, -1, bias, relevance)
    # The sign of the full output, including the bias even if it does not count as a contribution.
    output = operation(*inputs)
    up = 1 + gamma * (output > 0).to(output.dtype)
    down = 1 + gamma * (output < 0).to(output.dtype)
    share = _divide(relevance, positive.total * up + negative.total * down) * (output != 0)
    return tuple(a + b for a, b in zip(positive.share(share * up), negative.share(share * down), strict=True))


def zb_rule(operation: Operation, low: Tensor, high: Tensor, relevance: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Distribute in proportion to the contributions of the distances from the bounds."""
    # x w - l w+ - h w- = (x - l) w+ + (x - h) w-, both terms positive.
    up, down = _signed_part(_weight(operation), 1), _signed_part(_weight(operation), -1)
    share = _divide(relevance, operation.function(x - low, up) + operation.function(x - high, down))
    (from_low,), (from_high,) = operation.pullback(up, share, x), operation.pullback(down, share, x)
    return ((x - low) * from_low + (x - high) * from_high,)


def w2_rule(operation: Operation, relevance: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Distribute in proportion to the squared weights."""
    squared = _weight(operation) ** 2
    share = _divide(relevance, operation.function(torch.ones_like(x), squared))
    return operation.pullback(squared, share, x)


class _Contributions:
    """Positive or negative contributions c_ij of inputs i to outputs j: sums over i, and the backward pass."""

    def __init__(
        self, operation: Operation, inputs: tuple[Tensor, ...], sign: int, bias: bool, relevance: Tensor
    ) -> None:
        self.inputs = inputs
        self.pieces: list[tuple[list[Tensor], Tensor]] = []
        self.total = torch.zeros_like(relevance)
        for x_sign in (1, -1):
            leaves = [_signed_part(x, x_sign) for x in inputs]
            # After a ReLU no input is negative, and the weights of a sum are positive.
            if (x_sign < 0 and not any(x.any() for x in leaves)) or (operation.weight is None and x_sign != sign):
                continue
            weight = None if operation.weight is None else _signed_part(operation.weight, sign * x_sign)
            with torch.enable_grad():
                output = operation.function(*[x.requires_grad_() for x in leaves], weight)
            self.pieces.append((leaves, output))
            self.total = self.total + output.detach()
        if bias and operation.bias is not None:
            self.total = self.total + _signed_part(operation.bias, sign)

    def share(self, signal: Tensor) -> tuple[Tensor, ...]:
        """Return the sum over the outputs of ``signal`` times contribution, for each input."""
        shares = [torch.zeros_like(x) for x in self.inputs]
        for leaves, output in self.pieces:
            for share, leaf, g in zip(shares, leaves, torch.autograd.grad(output, leaves, signal), strict=True):
                share += leaf.detach() * g
        return tuple(shares)


def _signed_part(x: Tensor, sign: int) -> Tensor:
    """Return the positive or the negative part."""
    return x.detach().clamp(min=0) if sign > 0 else x.detach().clamp(max=0)


def _divide(relevance: Tensor, by: Tensor) -> Tensor:
    """Return the quotient; zero where the denominator is zero."""
    return torch.where(by == 0, 0.0, relevance / torch.where(by == 0, 1.0, by))


def _weight(operation: Operation) -> Tensor:
    assert operation.weight is not None, operation.name
    return operation.weight


def broadcast_bound(value: Bound | None, operation: Operation, x: Tensor) -> Tensor:
    """Return the bound of each input value of the layer, ``[C, ...]`` or ``[features]``, for images with C channels."""
    bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if bound.ndim == 0:
        return bound
    if bound.ndim == 1 and x.shape[1] % len(bound) == 0 and (x.ndim == 2 or x.shape[1] == len(bound)):
        return bound.repeat_interleave(x.shape[1] // len(bound)).reshape(-1, *[1] * (x.ndim - 2))
    raise ValueError(
        f"{operation.where}: the bounds {value} do not fit its input of shape {list(x.shape)}; "
        "expected a number, or one per channel."
    )


def check_within_bounds(x: Tensor, low: Tensor, high: Tensor) -> None:
    """Raise an error for an input outside its bounds, for which relevance could become negative."""
    x, slack = x.detach(), 1e-5 * (high - low).abs()
    if bool((x < low - slack).any()) or bool((x > high + slack).any()):
        raise ValueError(
            f"rule 'zB': the first layer's input ranges from {float(x.min()):g} to {float(x.max()):g}, outside the "
            f"bounds low={low.tolist()}, high={high.tolist()}. Pass the smallest and largest possible value of the "
            "(normalized) images."
        )
