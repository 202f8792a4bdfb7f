"""The explained output of a classifier: probability, logit or margin of a class, computed from the logits.

The head is a function and not a module, so explainers that go through the modules (LRP, DeepLIFT) see no softmax layer.

The softmax of a confident network saturates: p rounds to 1, and the textbook gradient ``p_i (g_i - sum_j g_j p_j)``
cancels to exactly zero. The equivalent form ``p_i sum_j p_j (g_i - g_j)`` does not cancel. It is accurate until the
other probabilities underflow, at a difference of about 700 between the logits in float64 (37 for the textbook form).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.vocabulary import Output


class ExplainedOutput(nn.Module):
    """The network with a head that computes the explained output.

    Args:
        network: Returns logits ``[N, K]``.
        output: ``"probability"``: the softmax of the logits. ``"logit"``: the logits. ``"margin"``: each logit minus
            the log-sum-exp of the others; its gradient is that of the probability up to one factor per sample.

    Attributes:
        network: The network.
        output: The explained output.
        largest_pass: Number of rows of the largest pass so far.
        on_rows: Called with the number of rows of every forward pass and of every backward pass.

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
        self.largest_pass = 0
        self.on_rows: Callable[[int], None] = lambda rows: None

    def forward(self, images: Tensor) -> Tensor:
        """Compute the explained output.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            ``[N, K]``: probabilities, logits or margins.
        """
        self.largest_pass = max(self.largest_pass, images.shape[0])
        logits: Tensor = self.network(images)
        self.on_rows(images.shape[0])
        if logits.requires_grad:
            rows, hooked = images.shape[0], cast(Any, logits)
            hooked.register_hook(lambda gradient: self.on_rows(rows))
        # Under autocast the logits are bfloat16.
        return self.head(logits.to(torch.promote_types(logits.dtype, images.dtype)))

    def head(self, logits: Tensor) -> Tensor:
        """Compute the explained output from the logits.

        Args:
            logits: ``[N, K]``.

        Returns:
            ``[N, K]``: probabilities, logits or margins.
        """
        if self.output == "probability":
            return exact_softmax(logits)
        return class_margins(logits) if self.output == "margin" else logits


def network_of(model: nn.Module) -> nn.Module:
    """Return the classifier without the head that computes the explained output; layer names refer to it.

    Args:
        model: An :class:`ExplainedOutput`, or any other module, which is returned unchanged.

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
        # The gradient depends only on differences of g. If they are taken relative to the most likely class, whose p
        # may round to 1, every remaining term is a product of small numbers and nothing cancels. O(N K).
        relative = upstream - upstream.gather(1, largest)
        return p * (relative - (p * relative).sum(1, keepdim=True))


def exact_softmax(logits: Tensor) -> Tensor:
    """Compute the softmax over dimension 1 with a gradient that does not vanish by rounding when it saturates.

    Args:
        logits: ``[N, K]``.

    Returns:
        ``[N, K]``, with the values of ``torch.softmax``. It can be differentiated once.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[100.0, 0.0]], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.grad(exact_softmax(logits)[0, 0], logits)[0].tolist()
        [[3.720075976020836e-44, -3.720075976020836e-44]]
        >>> torch.autograd.grad(logits.softmax(1)[0, 0], logits)[0].tolist()
        [[0.0, -3.720075976020836e-44]]
    """
    return _ExactSoftmax.apply(logits)  # type: ignore[no-any-return]


def class_margins(logits: Tensor) -> Tensor:
    """Compute each logit minus the log-sum-exp of the others, the log-odds of its softmax probability.

    Args:
        logits: ``[N, K]``, K at least two.

    Returns:
        ``[N, K]``; for two classes, the difference of the logits with either sign.
    """
    # log-odds = z_k - logsumexp(z) - log(1 - p_k). Only the most likely class can have p_k near 1, where the last term
    # would cancel: for that class the log-sum-exp of the others is computed directly. O(N K).
    largest = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.argmax(1, keepdim=True), value=True)
    others = logits.masked_fill(largest, -torch.inf).logsumexp(1, keepdim=True)
    p = exact_softmax(logits).masked_fill(largest, 0.0)
    return logits - torch.where(largest, others, logits.logsumexp(1, keepdim=True) + torch.log1p(-p))
