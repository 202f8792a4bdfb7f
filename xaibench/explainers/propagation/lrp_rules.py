"""The rules of layer-wise relevance propagation.

:class:`~xaibench.explainers.propagation.lrp.LayerwiseRelevance` has the equations.

Each takes an operation, its parameters, the relevance of the output and the inputs, and returns the relevance of each
input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from xaibench.explainers.propagation.layer_operations import Operation

#: A bound of the first layer's input: one number, or one per channel.
Bound = float | tuple[float, ...]


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
