"""What of a classifier is explained: the probability, the logit or the margin of a class, computed from its logits.

The head is functional: explainers that walk over the modules (LRP, DeepLift) see no softmax layer.

A network that is sure of itself saturates: p rounds to 1, and the textbook gradient of the softmax,
``p_i (g_i - sum_j g_j p_j)``, cancels to exactly zero. Written as ``p_i sum_j p_j (g_i - g_j)`` it does not cancel,
and stays exact until the other probabilities underflow (a difference of some 700 between the logits in float64,
against 37 for the textbook form).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.vocabulary import Output


class ExplainedOutput(nn.Module):
    """The network with the head whose output is explained.

    Args:
        network: Returns logits ``[N, K]``.
        output: ``"probability"``: the softmax of the logits. ``"logit"``: the logits as they are. ``"margin"``: each
            logit minus the log-sum-exp of the others; its gradient is the probability's up to a factor a sample.

    Attributes:
        network: The network.
        output: As given.
        largest: Rows of the largest pass so far.
        watch: Told the rows of each pass: of those that go forward, and of those that a gradient takes back.

    Example:
        >>> import torch
        >>> network = torch.nn.Identity()
        >>> ExplainedOutput(network, "margin")(torch.tensor([[3.0, 1.0]]))
        tensor([[ 2., -2.]])
    """

    def __init__(self, network: nn.Module, output: Output = "probability") -> None:
        super().__init__()
        check_choice("output", output, get_args(Output))
        self.network = network
        self.output = output
        self.largest = 0
        self.watch: Callable[[int], None] = lambda rows: None

    def forward(self, images: Tensor) -> Tensor:
        """What is explained.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            ``[N, K]``: probabilities, logits or margins.
        """
        self.largest = max(self.largest, images.shape[0])
        logits: Tensor = self.network(images)
        self.watch(images.shape[0])
        if logits.requires_grad:
            rows, hooked = images.shape[0], cast(Any, logits)
            hooked.register_hook(lambda gradient: self.watch(rows))
        # Under autocast they come in bfloat16.
        return self.head(logits.to(torch.promote_types(logits.dtype, images.dtype)))

    def head(self, logits: Tensor) -> Tensor:
        """What is explained, from the logits.

        Args:
            logits: ``[N, K]``.

        Returns:
            ``[N, K]``: probabilities, logits or margins.
        """
        if self.output == "probability":
            return exact_softmax(logits)
        return margins(logits) if self.output == "margin" else logits


def network_of(model: nn.Module) -> nn.Module:
    """The classifier itself, without the head that chooses the explained output; layers are named from here.

    Args:
        model: An :class:`ExplainedOutput`, or any other, which is its own network.

    Returns:
        The network.
    """
    return model.network if isinstance(model, ExplainedOutput) else model


class _ExactSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        probabilities = logits.softmax(1)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        p: Tensor = ctx.saved_tensors[0]
        largest = p.argmax(1, keepdim=True)
        # The gradient only depends on differences of g: taken from the likeliest class, whose p is the one that rounds
        # to 1, every remaining term is a product of small numbers and nothing cancels. O(N K).
        relative = upstream - upstream.gather(1, largest)
        return p * (relative - (p * relative).sum(1, keepdim=True))


def exact_softmax(logits: Tensor) -> Tensor:
    """Softmax over dimension 1 whose gradient does not vanish by rounding when it saturates.

    Args:
        logits: ``[N, K]``.

    Returns:
        ``[N, K]``; the values are those of ``torch.softmax``. Once differentiable.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[100.0, 0.0]], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.grad(exact_softmax(logits)[0, 0], logits)[0].tolist()
        [[3.720075976020836e-44, -3.720075976020836e-44]]
        >>> torch.autograd.grad(logits.softmax(1)[0, 0], logits)[0].tolist()
        [[0.0, -3.720075976020836e-44]]
    """
    return _ExactSoftmax.apply(logits)  # type: ignore[no-any-return]


def margins(logits: Tensor) -> Tensor:
    """Each logit minus the log-sum-exp of the others: the log-odds of its softmax probability.

    Args:
        logits: ``[N, K]``, K at least two.

    Returns:
        ``[N, K]``; for two classes the difference of the logits, either way round.
    """
    # log-odds = z_k - logsumexp(z) - log(1 - p_k). Only the likeliest class can have p_k near 1, where the last term
    # would cancel: for it the others are summed themselves. O(N K).
    largest = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.argmax(1, keepdim=True), value=True)
    others = logits.masked_fill(largest, -torch.inf).logsumexp(1, keepdim=True)
    p = exact_softmax(logits).masked_fill(largest, 0.0)
    return logits - torch.where(largest, others, logits.logsumexp(1, keepdim=True) + torch.log1p(-p))
