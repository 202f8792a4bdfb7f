"""DeepLIFT rules for normalizations by the statistics of the image itself, and for the softmax of attention.

Both consist of sums, products and functions of one number. Functions follow the rescale rule and products are split in
half. The multipliers of the parts are combined here in closed form, so the difference of the outputs is fully
distributed over the inputs. The first half of each tensor belongs to the images, the second to the baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xaibench.explainers.propagation.layer_operations import Operation


def layer_norm_rule(
    input: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Callable[..., tuple[Tensor]]:
    """Return the backward rule of ``layer_norm`` with these arguments: d / s, d = x - mean and s = sqrt(mean d² + eps).

    The product of d and 1/s is split in half, and 1/s follows the rescale rule: the quotient of the differences of 1/s
    and s² is -1 / (s s' (s + s')), that of the mean of d² is (d + d') / D for each d.
    """
    axes = tuple(range(-len(shape), 0))

    def back(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor]:
        signal = signal if weight is None else signal * weight
        centered = x - x.mean(axes, keepdim=True)
        deviation = (centered.square().mean(axes, keepdim=True) + eps).sqrt()
        d, s = _swap_halves(centered), _swap_halves(deviation)
        direct = signal * (1 / deviation + 1 / s) / 2
        by_deviation = (signal * (centered + d)).mean(axes, keepdim=True) / 2
        through = by_deviation * (centered + d) / (deviation * s * (deviation + s))
        multiplier = direct - through
        return (multiplier - multiplier.mean(axes, keepdim=True),)

    return back


def _group_norm_rule(
    input: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Callable[..., tuple[Tensor]]:
    """Return the backward rule of ``group_norm``: that of ``layer_norm``, group by group."""
    normalize = layer_norm_rule(input, [groups], eps=eps)

    def back(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor]:
        if weight is not None:
            signal = signal * weight.reshape(-1, *[1] * (x.ndim - 2))
        (found,) = normalize(operation, *(each.reshape(len(x), groups, -1) for each in (signal, x)))
        return (found.reshape(x.shape),)

    return back


def _instance_norm_rule(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Callable[..., tuple[Tensor, ...]]:
    """Return the backward rule of ``instance_norm``: groups of one channel, or the gradient with running statistics."""
    if use_input_stats:
        return _group_norm_rule(input, input.shape[1], weight, bias, eps)
    return lambda operation, signal, x: operation.pullback(None, signal, x)


_RULES: dict[str, Callable[..., Callable[..., tuple[Tensor, ...]]]] = {
    "layer_norm": layer_norm_rule,
    "group_norm": _group_norm_rule,
    "instance_norm": _instance_norm_rule,
}


def normalization_rule(called: str, *args: Any, **kwargs: Any) -> Callable[..., tuple[Tensor, ...]]:
    """Return the backward rule of ``layer_norm``, ``group_norm`` or ``instance_norm`` with these arguments."""
    return _RULES[called](*args, **kwargs)


def softmax_rule(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor]:
    """Propagate back through a softmax over the last axis, p = exp(x - log sum exp x), by the rescale rule.

    The quotient of the differences of p and log p is the logarithmic mean of p and p'. The quotient for log sum exp x
    and x_j is the logarithmic mean of exp x_j and exp x'_j divided by that of their sums. If there is no difference, it
    is the gradient.
    """
    # Minus infinity, the score of masked tokens, minus itself would be NaN.
    scores = x.clamp(min=torch.finfo(x.dtype).min / 4)
    total = scores.logsumexp(-1, keepdim=True)
    mean = _log_mean(scores - total)
    share = _log_mean(scores - torch.maximum(total, _swap_halves(total))) / _log_mean(
        total - torch.maximum(total, _swap_halves(total))
    )
    weighed = signal * mean
    return (weighed - share * weighed.sum(-1, keepdim=True),)


def _swap_halves(x: Tensor) -> Tensor:
    """Swap the halves of images and baselines."""
    return torch.cat(x.chunk(2)[::-1])


def _log_mean(x: Tensor) -> Tensor:
    """Compute (exp x - exp x') / (x - x') without overflow: exp of the larger times (1 - exp(-d)) / d, d = |x - x'|."""
    other = _swap_halves(x)
    distance = (x - other).abs()
    safe = torch.where(distance == 0, 1.0, distance)
    return torch.maximum(x, other).exp() * torch.where(distance == 0, 1.0, -torch.expm1(-safe) / safe)
