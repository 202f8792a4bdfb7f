"""DeepLIFT through a transformer: layer normalisation and the softmax of attention, taken apart.

Both are made of sums, products and functions of one number. By the rescale rule for the functions and half and half for
the products, the multipliers of the parts are put together here in closed form, so that the difference of the outputs
is shared out among the inputs without a rest. The first half of each tensor is of the images, the second of baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from xaibench.explainers.backward.layer_operations import Operation


def normalised(
    input: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Callable[..., tuple[Tensor]]:
    """What passes back through ``layer_norm`` of these arguments: d / s with d = x - mean and s = sqrt(mean d² + eps).

    The product of d and 1/s is shared half and half, 1/s by the rescale rule: the quotient of the differences of 1/s
    and s² is -1 / (s s' (s + s')), that of the mean of d² is (d + d') / D for each d.
    """
    axes = tuple(range(-len(shape), 0))

    def back(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor]:
        signal = signal if weight is None else signal * weight
        centred = x - x.mean(axes, keepdim=True)
        deviation = (centred.square().mean(axes, keepdim=True) + eps).sqrt()
        d, s = _other(centred), _other(deviation)
        direct = signal * (1 / deviation + 1 / s) / 2
        by_deviation = (signal * (centred + d)).mean(axes, keepdim=True) / 2
        through = by_deviation * (centred + d) / (deviation * s * (deviation + s))
        multiplier = direct - through
        return (multiplier - multiplier.mean(axes, keepdim=True),)

    return back


def softmaxed(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor]:
    """What passes back through a softmax over the last axis: p = exp(x - log sum exp x), each by the rescale rule.

    The quotient of the differences of p and log p is the logarithmic mean of p and p'; that of log sum exp x and x_j
    those of exp x_j and exp x'_j over that of their sums. Without a difference it is the gradient.
    """
    # Minus infinity, where something is masked, has no difference from itself.
    scores = x.clamp(min=torch.finfo(x.dtype).min / 4)
    total = scores.logsumexp(-1, keepdim=True)
    mean = _log_mean(scores - total)
    share = _log_mean(scores - torch.maximum(total, _other(total))) / _log_mean(
        total - torch.maximum(total, _other(total))
    )
    weighed = signal * mean
    return (weighed - share * weighed.sum(-1, keepdim=True),)


def _other(x: Tensor) -> Tensor:
    """The halves exchanged: of the baselines for the images, and the other way round."""
    return torch.cat(x.chunk(2)[::-1])


def _log_mean(x: Tensor) -> Tensor:
    """(exp x - exp x') / (x - x'), without overflow: exp of the larger times (1 - exp(-d)) / d, d their distance."""
    other = _other(x)
    distance = (x - other).abs()
    safe = torch.where(distance == 0, 1.0, distance)
    return torch.maximum(x, other).exp() * torch.where(distance == 0, 1.0, -torch.expm1(-safe) / safe)
