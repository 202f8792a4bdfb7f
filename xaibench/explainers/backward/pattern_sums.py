"""Patterns estimated from running sums over data (see :mod:`xaibench.explainers.backward.pattern_methods`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.attention.attention_calls import PRODUCTS
from xaibench.explainers.backward.layer_operations import Operation
from xaibench.explainers.backward.layer_walk import unsupported, walk

#: Estimator of the signal: ``"two_component"`` for neurons before a ReLU (S_a+-), ``"linear"`` for any (S_a).
Signal: TypeAlias = Literal["two_component", "linear"]

# A variance this much smaller than the second moment is the rounding of a constant.
_CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Recorded:
    """A linear operation, its output y without bias, and the copy of its weight that y has a gradient by."""

    operation: Operation
    y: Tensor
    weight: Tensor


class PatternSums:
    """Running sums of one layer, from which its patterns follow."""

    def __init__(self, operation: Operation, signal: Signal) -> None:
        assert operation.weight is not None
        self.operation, self.signal = operation, signal
        self.weight = operation.weight.detach().double()
        self.active_x = torch.zeros_like(self.weight)
        self.active_xy = torch.zeros_like(self.weight)
        self.y = self.weight.new_zeros(len(self.weight))
        self.count = 0

    def add(self, found: Recorded) -> None:
        """Count in a batch."""
        y, bias = found.y.detach(), self.operation.bias
        active = torch.ones_like(y)
        if self.signal == "two_component":
            active = ((y if bias is None else y + bias) > 0).to(y)
        # The gradient by the weight sums x times a cotangent over samples and positions: no patches are cut out.
        self.active_x += torch.autograd.grad(found.y, found.weight, active, retain_graph=True)[0]
        self.active_xy += torch.autograd.grad(found.y, found.weight, active * y)[0]
        neuron = y.ndim - 1 if self.operation.called == "linear" else 1
        self.y += y.movedim(neuron, 0).flatten(1).sum(1, dtype=torch.float64)
        self.count += y.numel() // len(self.weight)

    def pattern(self) -> Tensor:
        """Shaped as the weight. The number of active samples cancels in the quotient, so it is not kept."""
        mean_y = (self.y / self.count).reshape(-1, *[1] * (self.weight.ndim - 1))
        covariance = self.active_xy - self.active_x * mean_y
        variance = _response(self.weight, covariance)
        constant = variance.abs() <= _CONSTANT * _response(self.weight, self.active_xy).abs()
        return torch.where(constant, 0.0, covariance / torch.where(constant, 1.0, variance))


def _response(weight: Tensor, pattern: Tensor) -> Tensor:
    """wᵀa of each neuron, broadcasting with the weight."""
    return (weight * pattern).flatten(1).sum(1).reshape(-1, *[1] * (weight.ndim - 1))


def record(network: nn.Module, images: Tensor) -> dict[str, Recorded]:
    """Each linear operation of one forward pass."""
    seen: dict[str, Recorded] = {}

    def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
        if operation.kind != "linear":
            return gradient(operation, inputs)
        assert operation.weight is not None
        weight = operation.weight.detach().clone().requires_grad_()
        y = operation.function(inputs[0].detach(), weight)
        # A batch normalisation comes as the same operation once more, with its weights folded in.
        seen[operation.name] = Recorded(operation, y, weight)
        output = y.detach() if operation.bias is None else y.detach() + operation.bias
        return output.requires_grad_()

    walk(network, images.detach().clone().requires_grad_(), treat)
    return seen


def gradient(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
    """The plain output, where the method takes the gradient."""
    attends = operation.called == "layer_norm" or operation.called in PRODUCTS
    if attends or (operation.kind == "activation" and not operation.rectifies):
        raise unsupported(
            operation.where,
            operation.called,
            "Patterns are defined for networks of ReLU and ReLU6; use lrp_epsilon, or saliency or "
            "integrated_gradients.",
        )
    return operation(*inputs)
