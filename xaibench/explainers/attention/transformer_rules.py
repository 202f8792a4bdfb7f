"""Input×Gradient of a transformer some of whose operations are differentiated by rules of their own.

The network runs forward under a watch. An operation that has a rule is carried out by it: the output is the same, the
way back another. Attention is carried out in matrix products and a softmax, each of which can have one. Where all rules
share out the whole of an output among its inputs in proportion to what they contribute, input times gradient *is*
relevance, in every layer: what :class:`~xaibench.explainers.LayerwiseRelevance` does by carrying relevance itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.vocabulary import Output
from xaibench.explainers.attention.attention_calls import PRODUCTS
from xaibench.explainers.backward.forward_watch import Watch, watching
from xaibench.explainers.backward.layer_operations import out_of_place
from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.interface import Attribution, UnsupportedModelError

#: Does what ``function(*args, **kwargs)`` does, with a backward pass of its own.
Rule: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
#: Rules by the name under which torch reports a call.
Rules: TypeAlias = Mapping[str, Rule]

#: What is common to the networks that the rules are for; a rule for linear layers alone makes nobody a transformer.
_OF_ALL_NETWORKS = ("linear", "conv2d")


@dataclass(frozen=True, kw_only=True)
class RuledInputXGradient(Attribution):
    """Input×Gradient of the target's output, with rules for the operations of a transformer."""

    #: What of the model is explained, unless another is asked for.
    explains: ClassVar[Output] = "logit"
    #: The name of the explainer, for messages.
    name: ClassVar[str]

    def rules(self) -> Rules:
        """The rules.

        Returns:
            By the name under which torch reports a call.
        """
        raise NotImplementedError

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has nothing that the rules change, or hides what it does.
        """
        return self.by_chunk(partial(self._attribute, model), images, targets)

    def _attribute(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        with watching(model, lambda network: _Ruled(network, self.rules())) as watch:
            inputs = images.detach().requires_grad_()
            outputs = watch.run(model, inputs).gather(1, targets[:, None])
            if not watch.ruled:
                raise UnsupportedModelError(
                    f"{self.name}: {type(network_of(model)).__name__} has no attention, layer normalisation "
                    "or other operation of a transformer, so that nothing is left of the method but Input×Gradient. "
                    "Use a transformer (vit_b_16, timm's), or input_x_gradient or lrp_gamma."
                )
            return images * torch.autograd.grad(outputs.sum(), inputs)[0]


class _Ruled(Watch):
    """Carries out by its rule every operation that has one."""

    def __init__(self, network: nn.Module, rules: Rules) -> None:
        super().__init__(network)
        self.rules = rules
        self.ruled = False

    def see(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        rule = self.rules.get(called)
        if rule is None:
            return func(*args, **kwargs)
        self.ruled = self.ruled or called not in _OF_ALL_NETWORKS
        return rule(func, args, kwargs)


def _depends(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _by_way_of(value: Tensor, way: Tensor) -> Tensor:
    """``value``, differentiated as ``way``."""
    return value.detach() + (way - way.detach())


def _constant(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A softmax whose result is a constant; that of class scores ``[N, K]`` is left as it is."""
    result = func(*args, **kwargs)
    return result.detach() if result.ndim > 2 else result


def _halved(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A product of two factors that both depend on the image: each gets half of what it would."""
    if sum(map(_depends, args)) < 2:
        return func(*args, **kwargs)
    # x stays x: its difference from itself is exactly zero.
    halves = (x.detach() + 0.5 * (x - x.detach()) if _depends(x) else x for x in args)
    return func(*halves, **kwargs)


def _gated(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An activation as x times a constant gate, f(x) / x; a gate of 0 at x = 0, where nothing flows."""
    x = args[0]
    y: Tensor = out_of_place(func, args, kwargs)(x.detach(), None)
    gate = torch.where(x == 0, 0, y / x).detach()
    return _by_way_of(y, x * gate)


def _layer_norm(
    input: Tensor,
    normalized_shape: Iterable[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    centred = input - input.mean(axes, keepdim=True)
    deviation = (centred.detach().square().mean(axes, keepdim=True) + eps).sqrt()
    return _scaled(centred / deviation, weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: Iterable[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _scaled(input / (input.detach().square().mean(axes, keepdim=True) + eps).sqrt(), weight)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    groups = input.reshape(len(input), num_groups, -1)
    normalised = _layer_norm(groups, groups.shape[2:], eps=eps).reshape(input.shape)
    ones = [1] * (input.ndim - 2)
    return _scaled(normalised, *(None if x is None else x.reshape(-1, *ones) for x in (weight, bias)))


def _normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(input.detach(), p, dim, keepdim=True)
    return input / norm.clamp(min=eps)


def _scaled(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _normalised(by: Callable[..., Tensor]) -> Rule:
    """A normalisation whose denominator is a constant; the mean is not."""
    return lambda func, args, kwargs: _by_way_of(func(*args, **kwargs), by(*args, **kwargs))


def _gamma(gamma: float, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A linear layer or convolution by the gamma rule: contributions with the sign of the output count 1 + gamma."""
    names = ("input", "weight", "bias")
    given = dict(zip(names, args, strict=False)) | kwargs
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    if _depends(weight):
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
    favoured = torch.where(y > 0, above, below)
    # An output of 0 has no relevance to share out.
    share = torch.where(y == 0, 0, y / favoured).detach()
    return _by_way_of(y, favoured * share)


#: The denominator of a normalisation is a constant.
CONSTANT_DENOMINATORS: Rules = {
    "layer_norm": _normalised(_layer_norm),
    "rms_norm": _normalised(_rms_norm),
    "group_norm": _normalised(_group_norm),
    "normalize": _normalised(_normalize),
}
#: The weights of the attention are constants: what is mixed by them matters, not how they came about.
CONSTANT_ATTENTION: Rules = {"softmax": _constant}
#: An activation with f(0) = 0 is a constant gate; that of ReLU and leaky ReLU is their gradient.
CONSTANT_GATES: Rules = dict.fromkeys(("gelu", "silu", "mish", "elu", "hardswish", "tanh"), _gated)
#: The factors of a product, elementwise or of matrices, share alike.
HALVED_PRODUCTS: Rules = dict.fromkeys(("mul", "__mul__", "__rmul__", "multiply", *PRODUCTS), _halved)


def favouring(linear: float, convolution: float) -> Rules:
    """The gamma rule.

    Args:
        linear: Gamma of the linear layers.
        convolution: Gamma of the convolutions.

    Returns:
        The rules, none for a gamma of 0.
    """
    gammas = {"linear": linear, "conv2d": convolution}
    return {name: partial(_gamma, gamma) for name, gamma in gammas.items() if gamma}
