"""Input×Gradient with modified backward rules for the operations of a transformer.

The forward pass is intercepted. An operation with a rule has the same output and another backward pass. Attention is
computed as matrix products and a softmax, each of which can have a rule. If all rules distribute an output over its
inputs in proportion to their contributions, input times gradient *is* the relevance in every layer;
:class:`~xaibench.explainers.propagation.lrp.LayerwiseRelevance` propagates the relevance itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import Attribution
from xaibench.explainers.propagation.forward_trace import OperationInterceptor, intercept_operations
from xaibench.explainers.propagation.layer_operations import (
    added_constant,
    as_bias,
    dense_product,
    out_of_place,
    tensor_version,
)
from xaibench.explainers.shared.tokens import PRODUCTS
from xaibench.network.explained_output import UnsupportedModelError, network_of
from xaibench.registry.info import ExplainerInfo

#: Computes ``function(*args, **kwargs)`` with another backward pass.
BackwardRule: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
#: Rules by the name under which torch reports a call.
BackwardRules: TypeAlias = Mapping[str, BackwardRule]

#: Operations that all networks have: rules for these alone do not make the network a transformer.
_IN_ALL_NETWORKS = ("linear", "conv2d", "conv3d")


@dataclass(frozen=True, kw_only=True)
class RuleBasedInputXGradient(Attribution):
    """Base class: Input×Gradient of the target output with backward rules for the operations of a transformer."""

    #: The explained output by default.
    explains: ClassVar[Output] = "logit"
    #: The name of the explainer, for error messages.
    name: ClassVar[str]

    def rules(self) -> BackwardRules:
        """Return the backward rules.

        Returns:
            Rules by the name under which torch reports a call.
        """
        raise NotImplementedError

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If no rule applies to the network, or its operations cannot be observed.
        """
        return self.by_chunk(partial(self._attribute, model), images, targets)

    def _attribute(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        with intercept_operations(model, lambda network: _RuleInterceptor(network, self.rules())) as interceptor:
            inputs = images.detach().requires_grad_()
            outputs = interceptor.run(model, inputs).gather(1, targets[:, None])
            if not interceptor.ruled:
                raise UnsupportedModelError(
                    f"{self.name}: {type(network_of(model)).__name__} has no attention, layer normalization "
                    "or other operation of a transformer, so the method would be Input×Gradient. "
                    "Use a transformer (vit_b_16, one of timm), or input_x_gradient or lrp_gamma."
                )
            return images * torch.autograd.grad(outputs.sum(), inputs)[0]


class _RuleInterceptor(OperationInterceptor):
    """Apply the rule of every operation that has one."""

    def __init__(self, network: nn.Module, rules: BackwardRules) -> None:
        super().__init__(network)
        self.rules = rules
        self.ruled = False
        #: Input, weight and output of products with a matrix, and their versions, by the id of the output.
        self.unbiased: dict[int, tuple[list[Tensor], list[int]]] = {}

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        # mul_ and __imul__ have the rules of mul and __mul__.
        plain = (
            f"__{called[3:]}" if called.startswith("__i") else called if called.endswith("__") else called.rstrip("_")
        )
        added = added_constant(called, args, kwargs)
        if added and (result := self._with_bias(*added)) is not None:
            return result
        rule = self.rules.get(plain)
        if rule is None:
            return func(*args, **kwargs)
        self.ruled = self.ruled or plain not in _IN_ALL_NETWORKS
        result = rule(func, args, kwargs)
        if func is dense_product and len(args) == 2:
            tensors = [*args, result]
            self.unbiased[id(result)] = tensors, list(map(tensor_version, tensors))
        return result

    def _with_bias(self, y: Tensor, constant: Tensor) -> Any:
        """Apply the rule to a product with a matrix and the constant that is added; None if they are not one layer."""
        tensors, versions = self.unbiased.get(id(y), ([], []))
        if not tensors or list(map(tensor_version, tensors)) != versions:
            return None
        x, weight, _ = tensors
        bias = as_bias(constant, weight)
        return None if bias is None else self.rules["linear"](dense_product, (x, weight, bias), {})


def _depends_on_image(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _with_gradient_of(value: Tensor, way: Tensor) -> Tensor:
    """Return ``value`` with the gradient of ``way``."""
    return value.detach() + (way - way.detach())


def _detach_softmax(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Detach the result of a softmax, except for class scores ``[N, K]``."""
    result = func(*args, **kwargs)
    return result.detach() if result.ndim > 2 else result


def _halve_product_gradient(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Halve the gradient of each factor of a product if both depend on the image."""
    if sum(map(_depends_on_image, args)) < 2:
        return func(*args, **kwargs)
    # The value stays exactly x, since its difference from itself is zero.
    halves = (x.detach() + 0.5 * (x - x.detach()) if _depends_on_image(x) else x for x in args)
    return func(*halves, **kwargs)


def _constant_gate(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat an activation as x times a constant gate f(x) / x, with the gate 0 at x = 0."""
    x = args[0]
    y: Tensor = out_of_place(func, args, kwargs)(x.detach(), None)
    gate = torch.where(x == 0, 0, y / x).detach()
    return _with_gradient_of(y, x * gate)


def _layer_norm(
    input: Tensor,
    normalized_shape: Iterable[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    centered = input - input.mean(axes, keepdim=True)
    deviation = (centered.detach().square().mean(axes, keepdim=True) + eps).sqrt()
    return _scale_and_shift(centered / deviation, weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: Iterable[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _scale_and_shift(input / (input.detach().square().mean(axes, keepdim=True) + eps).sqrt(), weight)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    groups = input.reshape(len(input), num_groups, -1)
    normalized = _layer_norm(groups, groups.shape[2:], eps=eps).reshape(input.shape)
    ones = [1] * (input.ndim - 2)
    return _scale_and_shift(normalized, *(None if x is None else x.reshape(-1, *ones) for x in (weight, bias)))


def _normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(input.detach(), p, dim, keepdim=True)
    return input / norm.clamp(min=eps)


def _scale_and_shift(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _constant_denominator(by: Callable[..., Tensor]) -> BackwardRule:
    """Return the rule for a normalization with a constant denominator (the mean is not constant)."""
    return lambda func, args, kwargs: _with_gradient_of(func(*args, **kwargs), by(*args, **kwargs))


def _apply_gamma_rule(
    gamma: float, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """Apply the gamma rule: contributions with the sign of the output are weighted by 1 + gamma."""
    names = ("input", "weight", "bias")
    given = dict(zip(names, args, strict=False)) | kwargs
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    if _depends_on_image(weight):
        return func(*args, **kwargs)
    named = {key: value for key, value in kwargs.items() if key not in names}

    def layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return func(x, weight, bias, *args[3:], **named)

    x_up, x_down = x.clamp(min=0), x.clamp(max=0)
    w_up, w_down = weight.clamp(min=0), weight.clamp(max=0)
    b_up, b_down = (None, None) if bias is None else (bias.clamp(min=0), bias.clamp(max=0))
    y = layer(x, weight, bias)
    above = y + gamma * (layer(x_up, w_up, b_up) + layer(x_down, w_down))
    below = y + gamma * (layer(x_down, w_up, b_down) + layer(x_up, w_down))
    favored = torch.where(y > 0, above, below)
    # An output of 0 has no relevance to distribute.
    share = torch.where(y == 0, 0, y / favored).detach()
    return _with_gradient_of(y, favored * share)


#: The denominator of a normalization is a constant.
CONSTANT_DENOMINATORS: BackwardRules = {
    "layer_norm": _constant_denominator(_layer_norm),
    "rms_norm": _constant_denominator(_rms_norm),
    "group_norm": _constant_denominator(_group_norm),
    "normalize": _constant_denominator(_normalize),
}
#: The attention weights are constants: only the values that they mix get relevance.
CONSTANT_ATTENTION: BackwardRules = {"softmax": _detach_softmax}
#: An activation with f(0) = 0 is a constant gate. For ReLU and leaky ReLU this is the gradient.
CONSTANT_GATES: BackwardRules = dict.fromkeys(("gelu", "silu", "mish", "elu", "hardswish", "tanh"), _constant_gate)
#: The factors of a product, elementwise or of matrices, get equal shares.
HALVED_PRODUCTS: BackwardRules = dict.fromkeys(
    ("mul", "__mul__", "__rmul__", "multiply", *PRODUCTS), _halve_product_gradient
)


def gamma_rules(linear: float, convolution: float) -> BackwardRules:
    """Return the gamma rule of linear layers and convolutions.

    Args:
        linear: Gamma of linear layers.
        convolution: Gamma of convolutions.

    Returns:
        The rules; none for a gamma of 0.
    """
    gammas = {"linear": linear, "conv2d": convolution, "conv3d": convolution}
    return {name: partial(_apply_gamma_rule, gamma) for name, gamma in gammas.items() if gamma}


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
