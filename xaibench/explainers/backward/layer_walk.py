"""The walk over a network's layers that PatternNet, deep Taylor and LRP share.

The network runs forward under a watch, which sees every operation, called by a module or as a function.
Those that compute something new from the image (linear layers, activations, poolings, sums) are handed to a treatment,
which returns their output with a backward pass of its own; those that only move numbers (flatten, max-pooling,
concatenation) keep their gradient, which passes each number back to where it came from. The weights of an attention are
taken as they are, so that it is a weighted sum of its values. Autograd then carries relevance
or signal from the logit to the image. An operation that is neither is an error that names its layer.

A network may end by taking logits z_j together to groups, z_g = log sum_j exp(z_j), as :class:`xaibench.models.Folded`
does: relevance or signal then starts at the members, each by dz_g/dz_j (its share within the group) of what it would
start with alone. For the epsilon rule with epsilon 0 that is Input×Gradient of z_g, as it is for a single logit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.attention.attention_calls import PRODUCTS
from xaibench.explainers.backward.forward_watch import Watch, watching
from xaibench.explainers.backward.layer_operations import LINEAR, MOVES, Operation, tensors_in, weighs_tokens
from xaibench.explainers.shared.interface import UnsupportedModelError

#: Returns the operation's output with the backward pass that it wants (see :func:`with_backward`).
Treatment: TypeAlias = Callable[[Operation, tuple[Tensor, ...]], Tensor]


def propagate(
    model: nn.Module, images: Tensor, targets: Tensor, treat: Treatment, start: Callable[[Tensor], Tensor]
) -> Tensor:
    """Run the model under a treatment and carry ``start`` of the target's logit back to the image.

    Args:
        model: Returns logits; an :class:`~xaibench.explainers.ExplainedOutput` is taken off, whatever its output.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        treat: Called for each operation.
        start: What the backward pass starts with at a logit, elementwise.

    Returns:
        ``[N, C, H, W]``.

    Raises:
        UnsupportedModelError: If an operation cannot be treated; the message names its layer.
    """
    with watching(model, lambda network: _Walk(network, treat, start)) as walking:
        images = images.detach().clone().requires_grad_()
        logits = walking.logits(images)
        chosen = targets[:, None]
        first = start(logits.detach().gather(1, chosen))
        head = torch.zeros_like(logits).scatter_(1, chosen, torch.ones_like(first) if walking.head else first)
        return torch.autograd.grad(logits, images, head)[0]


def walk(model: nn.Module, images: Tensor, treat: Treatment) -> None:
    """Show every operation on images that require a gradient to a treatment.

    Raises:
        UnsupportedModelError: If an operation cannot be treated, or there is no linear layer between image and logit.
    """
    with watching(model, lambda network: _Walk(network, treat, torch.ones_like)) as walking:
        walking.logits(images)


def with_backward(
    operation: Operation, inputs: tuple[Tensor, ...], backward: Callable[..., tuple[Tensor, ...]]
) -> Tensor:
    """The operation's output, whose backward pass is ``backward(relevance, *inputs)``, one tensor for each input."""
    return _WithBackward.apply(operation, backward, *inputs)  # type: ignore[no-any-return]


class _WithBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operation: Operation, backward: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.rule = backward
        return operation(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.rule(relevance, *ctx.saved_tensors)


def unsupported(where: str, called: str, advice: str = "") -> UnsupportedModelError:
    """The error for an operation that nothing can be carried back through."""
    advice = advice or (
        "Known are linear and convolutional layers, batch and layer normalisation, elementwise activations, max- "
        "and average pooling, sums of branches, attention and flattening; a softmax at the end must be left out. Any "
        "network can be explained by saliency or integrated_gradients, or by shapley_sampling or lime, which only "
        "perturb."
    )
    return UnsupportedModelError(f"{where}: relevance cannot be carried back through {called}. {advice}")


class _Walk(Watch):
    def __init__(self, network: nn.Module, treat: Treatment, start: Callable[[Tensor], Tensor]) -> None:
        super().__init__(network)
        self.treat, self.start = treat, start
        self.calls: Counter[str] = Counter()
        #: Where logits were taken together, after which nothing but sums may come.
        self.head = ""
        # The linear operation that made a tensor, its input, and the tensor itself, so that its id stays its own: for a
        # batch normalisation that follows.
        self.origin: dict[int, tuple[Operation, Tensor, Tensor]] = {}

    def logits(self, images: Tensor) -> Tensor:
        """Logits ``[N, K]``, with the backward pass of the treatment."""
        logits = self.run(self.network, images)
        if not self.calls:
            raise UnsupportedModelError(
                f"{type(self.network).__name__}: no linear or convolutional layer works on the images, so there is "
                "nothing to carry back. saliency and integrated_gradients explain any differentiable network."
            )
        return logits

    def see(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        if called in MOVES:
            return func(*args, **kwargs)
        operation = self.operation(func, called, args, kwargs, kind="group" if called == "logsumexp" else None)
        if operation is not None and operation.kind == "group":
            self.head = self.where()
            return with_backward(operation, carriers, partial(self._members, operation))
        if self.head:
            if operation is None or operation.kind == "activation":
                raise unsupported(self.head, f"a log-sum-exp that another layer follows ({called})")
            return func(*args, **kwargs)
        if called in LINEAR:
            return self._linear(func, called, *args, **kwargs)
        if weighs_tokens(called, args, kwargs):
            # The weights of attention are taken as they are: nothing goes back to queries and keys.
            return func(*args, **kwargs).detach()
        if called in PRODUCTS or called == "normalize":
            return self._product(func, called, args, kwargs, carriers)
        if called == "layer_norm":
            operation = self.operation(func, called, args, kwargs, kind="affine")
        if called == "batch_norm":
            return self._batch_norm(*args, **kwargs)
        if operation is not None:
            return self.treat(operation, carriers)
        result = func(*args, **kwargs)
        if any(x.requires_grad for x in tensors_in(result)):
            raise unsupported(self.where(), called)
        return result  # a size, a comparison, a detached value

    def _product(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Tensor:
        """A weighted sum of values, or else scores, from which nothing may come back."""
        where = self.where()
        operation = self.operation(func, called, args, kwargs, kind="sum")
        assert operation is not None
        weights = [x for x in tensors_in((args, kwargs)) if not x.requires_grad]
        if len(carriers) == 1 and called in PRODUCTS:
            if any(bool((x < 0).any()) for x in weights):
                raise unsupported(where, called)
            return self.treat(operation, carriers)

        def refuse(relevance: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
            raise unsupported(where, f"{called} of what depends on the image, other than the scores of an attention")

        return with_backward(operation, carriers, refuse)

    def _members(self, group: Operation, signal: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
        """What the members of a group start with: as their logit alone would, by their share of the group's gradient.

        ``signal`` is 1 for the target, because nothing is started at the logit of the group itself.
        """
        return tuple(share * self.start(logits.detach()) for share in group.pullback(None, signal, logits))

    def _linear(
        self,
        func: Callable[..., Tensor],
        called: str,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *rest: Any,
        **named: Any,
    ) -> Tensor:
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            raise unsupported(self.where(), f"{called} with a weight that depends on the image")
        if bias is not None and bias.ndim == 1:
            bias = bias.reshape(-1, *[1] * (weight.ndim - 2))
        name = self.name(called)
        first = not self.calls
        self.calls[name] += 1
        if self.calls[name] > 1:
            name = f"{name}#{self.calls[name]}"
        operation = Operation(
            "linear",
            name,
            lambda x, w: func(x, w, None, *rest, **named),
            called,
            self.where(),
            weight,
            bias,
            is_input=first,
        )
        output = self.treat(operation, (input,))
        if called in LINEAR:
            self.origin[id(output)] = operation, input, output
        return output

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Treat the linear operation before again, with the normalisation folded in; alone it is linear by itself."""
        if training or running_mean is None or running_var is None:
            raise unsupported(
                self.where(),
                "batch normalisation by the statistics of the batch",
                "Give it running statistics (track_running_stats=True), so that each image is explained by itself.",
            )
        scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        known = self.origin.get(id(input))
        if known is None and input.ndim == 4:
            return self._linear(_scaled, "batch_norm", input, scale[:, None, None], shift[:, None, None])
        if known is None or (known[0].called == "linear" and input.ndim != 2):
            raise unsupported(self.where(), "batch normalisation of something else than images or a linear layer")
        operation, x, _ = known
        assert operation.weight is not None
        ones = [1] * (operation.weight.ndim - 2)
        if operation.bias is not None:
            shift = shift + operation.bias.flatten() * scale
        folded = replace(
            operation, weight=operation.weight * scale.reshape(-1, 1, *ones), bias=shift.reshape(-1, *ones)
        )
        return self.treat(folded, (x,))


def _scaled(x: Tensor, weight: Tensor, bias: None) -> Tensor:
    """A batch normalisation without its shift: each output has one input."""
    return x * weight
