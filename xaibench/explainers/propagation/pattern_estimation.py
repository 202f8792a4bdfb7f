"""Estimate patterns from running sums over data (see :mod:`xaibench.explainers.propagation.pattern_net`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.propagation.layer_operations import OWN_STATISTICS, Operation
from xaibench.explainers.propagation.layer_walk import unsupported_operation, visit_operations
from xaibench.explainers.shared.layers import check_rows
from xaibench.explainers.shared.tokens import PRODUCTS

#: Estimator of the signal: ``"two_component"`` for neurons before a ReLU (S_a+-), ``"linear"`` for any (S_a).
Signal: TypeAlias = Literal["two_component", "linear"]

# A variance below this share of the second moment is the rounding error of a constant.
_CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Recorded:
    """A linear operation, its output y without bias, and the copy of its weight that y was computed with."""

    operation: Operation
    y: Tensor
    weight: Tensor


class PatternSums:
    """Running sums of one layer that determine its patterns."""

    def __init__(self, operation: Operation, signal: Signal) -> None:
        assert operation.weight is not None
        self.operation, self.signal = operation, signal
        self.weight = operation.weight.detach().double()
        self.active_x = torch.zeros_like(self.weight)
        self.active_xy = torch.zeros_like(self.weight)
        self.y = self.weight.new_zeros(len(self.weight))
        self.count = 0

    def add(self, found: Recorded) -> None:
        """Add a batch."""
        y, bias = found.y.detach(), self.operation.bias
        active = torch.ones_like(y)
        if self.signal == "two_component":
            active = ((y if bias is None else y + bias) > 0).to(y)
        # The gradient with respect to the weight sums x times a cotangent over samples and positions, without
        # unfolding.
        self.active_x += torch.autograd.grad(found.y, found.weight, active, retain_graph=True)[0]
        self.active_xy += torch.autograd.grad(found.y, found.weight, active * y)[0]
        neuron = y.ndim - 1 if self.operation.called == "linear" else 1
        self.y += y.movedim(neuron, 0).flatten(1).sum(1, dtype=torch.float64)
        self.count += y.numel() // len(self.weight)

    def pattern(self) -> Tensor:
        """Return the pattern in the shape of the weight; the number of active samples cancels in the quotient."""
        mean_y = (self.y / self.count).reshape(-1, *[1] * (self.weight.ndim - 1))
        covariance = self.active_xy - self.active_x * mean_y
        variance = _response(self.weight, covariance)
        constant = variance.abs() <= _CONSTANT * _response(self.weight, self.active_xy).abs()
        return torch.where(constant, 0.0, covariance / torch.where(constant, 1.0, variance))


def _response(weight: Tensor, pattern: Tensor) -> Tensor:
    """Return wᵀa of each neuron, broadcasting with the weight."""
    return (weight * pattern).flatten(1).sum(1).reshape(-1, *[1] * (weight.ndim - 1))


def record_linear_operations(network: nn.Module, images: Tensor) -> dict[str, Recorded]:
    """Record each linear operation of one forward pass, by name."""
    seen: dict[str, Recorded] = {}

    def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
        if operation.kind != "linear":
            return plain_output(operation, inputs)
        assert operation.weight is not None
        check_rows(operation.where, inputs[0], images)
        weight = operation.weight.detach().clone().requires_grad_()
        y = operation.function(inputs[0].detach(), weight)
        # A batch normalization calls this again for the same operation, with its weights folded in.
        seen[operation.name] = Recorded(operation, y, weight)
        output = y.detach() if operation.bias is None else y.detach() + operation.bias
        return output.requires_grad_().clone()  # the network may overwrite it

    # A clone, since the network may change its input in place.
    visit_operations(network, images.detach().clone().requires_grad_().clone(), treat)
    return seen


def plain_output(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the plain output of an operation, for which the method uses the gradient."""
    attends = operation.called in OWN_STATISTICS or operation.called in PRODUCTS
    if attends or (operation.kind == "activation" and not operation.rectifies):
        raise unsupported_operation(
            operation.where,
            operation.called,
            "Patterns are defined for networks of ReLU and ReLU6; use lrp_epsilon, or saliency or "
            "integrated_gradients.",
        )
    return operation(*inputs)
