"""Backward propagation through the operations of a network, shared by PatternNet, deep Taylor and LRP.

The forward pass is intercepted. Operations that compute new values from the image (linear layers, activations,
poolings, sums) are passed to a treatment, which returns their output with a modified backward pass. Operations that
only rearrange values (flatten, max-pooling, concatenation) keep their gradient, which routes each value to its origin.
Attention weights are constants, so an attention is a weighted sum of its values. Autograd then propagates relevance or
signal from the logit to the image. Any other operation raises an error that names its layer.

A network may end by merging logits z_j into groups, z_g = log sum_j exp(z_j), as :class:`xaibench.models.Folded` does.
The propagation then starts at the members, each with dz_g/dz_j (its share within the group) times its start value. For
the epsilon rule with epsilon 0 this is Input×Gradient of z_g, as for a single logit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.propagation.forward_trace import OperationInterceptor, intercept_operations
from xaibench.explainers.propagation.layer_operations import (
    LINEAR,
    OWN_STATISTICS,
    REARRANGING,
    Operation,
    added_constant,
    as_bias,
    dense_product,
    is_attention_softmax,
    tensor_version,
    tensors_in,
)
from xaibench.explainers.shared.tokens import PRODUCTS
from xaibench.network.explained_output import UnsupportedModelError, target_logits
from xaibench.network.outputs import map_tensors

#: Returns the output of an operation with a chosen backward pass (see :func:`with_backward`).
Treatment: TypeAlias = Callable[[Operation, tuple[Tensor, ...]], Tensor]

#: Returns the start value of the propagation at the outputs of the network, given these and the slope of the explained
#: value with respect to each.
Start: TypeAlias = Callable[[Tensor, Tensor], Tensor]


#: Called after the forward pass: returns the output of a layer, and a function that changes the relevance there.
Condition: TypeAlias = Callable[[], tuple[Tensor, Callable[[Tensor], Tensor]]]


def propagate(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    treat: Treatment,
    start: Start,
    condition: Condition | None = None,
) -> Tensor:
    """Run the model with a treatment, and propagate ``start`` of the target's logit back to the image.

    Args:
        model: Returns logits; the head of an :class:`~xaibench.explainers.ExplainedOutput` is not used, except for a
            function of the outputs.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        treat: Called for each operation.
        start: The start value of the backward pass, elementwise, from the outputs of the network and the slope of the
            explained value with respect to them (1 for the target's logit, 0 for the others).
        condition: If given, only what flows through the output of that layer reaches the image, after the function has
            changed it.

    Returns:
        ``[N, C, H, W]``.

    Raises:
        UnsupportedModelError: If an operation is not supported; the message names its layer.
    """
    with intercept_operations(model, lambda network: _LayerWalk(network, treat, start)) as layer_walk:
        images = images.detach().clone().requires_grad_()
        found = layer_walk.outputs(images)
        # Groups have start values of their own.
        begin = _slope if layer_walk.head else start
        values = target_logits(model, map_tensors(lambda x: _Start.apply(begin, x), found), targets)
        if condition is None:
            return torch.autograd.grad(values.sum(), images)[0]
        output, change = condition()
        # None if the value does not depend on that layer.
        (relevance,) = torch.autograd.grad(values.sum(), output, retain_graph=True, allow_unused=True)
        return torch.autograd.grad(
            output, images, change(torch.zeros_like(output) if relevance is None else relevance)
        )[0]


def visit_operations(model: nn.Module, images: Tensor, treat: Treatment) -> None:
    """Call a treatment for every operation on images that require a gradient.

    Raises:
        UnsupportedModelError: If an operation is not supported, or there is no linear layer between image and logit.
    """
    with intercept_operations(model, lambda network: _LayerWalk(network, treat, _slope)) as layer_walk:
        layer_walk.outputs(images)


def with_backward(
    operation: Operation, inputs: tuple[Tensor, ...], backward: Callable[..., tuple[Tensor, ...]]
) -> Tensor:
    """Return the operation's output, with ``backward(relevance, *inputs)`` as its backward pass."""
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


class _Start(torch.autograd.Function):
    """Replace the gradient at an output of the network by the start value of the propagation."""

    @staticmethod
    def forward(ctx: Any, start: Start, outputs: Tensor) -> Tensor:
        ctx.save_for_backward(outputs)
        ctx.start = start
        return outputs.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[None, Tensor]:
        return None, ctx.start(*ctx.saved_tensors, slope)


def _slope(outputs: Tensor, slope: Tensor) -> Tensor:
    return slope


def unsupported_operation(where: str, called: str, advice: str = "") -> UnsupportedModelError:
    """Return the error for an operation that relevance cannot be propagated through."""
    advice = advice or (
        "Supported are linear and convolutional layers, normalizations, elementwise activations, max- and average "
        "pooling, upsampling, sums of branches, attention and flattening; remove a final softmax. Any "
        "network can be explained by saliency or integrated_gradients, or by shapley_sampling or lime, which only "
        "perturb the image."
    )
    return UnsupportedModelError(f"{where}: relevance cannot be propagated through {called}. {advice}")


class _LayerWalk(OperationInterceptor):
    def __init__(self, network: nn.Module, treat: Treatment, start: Start) -> None:
        super().__init__(network)
        self.treat, self.start = treat, start
        self.calls: Counter[str] = Counter()
        #: The layer that merged logits; only sums may follow.
        self.head = ""
        # By the id of a tensor: the linear operation that computed it, its input, and the tensor itself, which is kept
        # alive so that its id stays unique; with the versions of both tensors, since they may be overwritten. Needed
        # for a batch normalization or a bias that follows.
        self.origin: dict[int, tuple[Operation, Tensor, Tensor, tuple[int, int]]] = {}

    def outputs(self, images: Tensor) -> Any:
        """Run the network, and return its outputs with the backward pass of the treatment."""
        found = self.run(self.network, images)
        if not self.calls:
            raise UnsupportedModelError(
                f"{type(self.network).__name__}: no linear or convolutional layer processes the images, so there is "
                "nothing to propagate. saliency and integrated_gradients explain any differentiable network."
            )
        return found

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        if called in REARRANGING:
            return func(*args, **kwargs)
        operation = self.operation(func, called, args, kwargs, kind="group" if called == "logsumexp" else None)
        if operation is not None and operation.kind == "group":
            self.head = self.where()
            return with_backward(operation, carriers, partial(self._group_members, operation))
        if self.head:
            if operation is None or operation.kind == "activation":
                raise unsupported_operation(self.head, f"a log-sum-exp that is followed by another layer ({called})")
            return func(*args, **kwargs)
        if called in LINEAR:
            return self._handle_linear(func, called, *args, **kwargs)
        if is_attention_softmax(called, args, kwargs):
            # Attention weights are constants: nothing is propagated to queries and keys.
            return func(*args, **kwargs).detach()
        if called in PRODUCTS or called == "normalize":
            return self._handle_product(func, called, args, kwargs, carriers)
        if called in OWN_STATISTICS:
            operation = self.operation(func, called, args, kwargs, kind="affine")
        if called == "batch_norm":
            return self._handle_batch_norm(*args, **kwargs)
        if operation is not None:
            biased = self._add_bias(*added) if (added := added_constant(called, args, kwargs)) else None
            return self.treat(operation, carriers) if biased is None else biased
        result = func(*args, **kwargs)
        if any(x.requires_grad for x in tensors_in(result)):
            raise unsupported_operation(self.where(), called)
        return result  # a size, a comparison, a detached value

    def _handle_product(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Tensor:
        """Handle a matrix product: a weighted sum of values, or attention scores, which have no backward pass."""
        where = self.where()
        operation = self.operation(func, called, args, kwargs, kind="sum")
        assert operation is not None
        weights = [x for x in tensors_in((args, kwargs)) if not x.requires_grad]
        if len(carriers) == 1 and called in PRODUCTS:
            if any(bool((x < 0).any()) for x in weights):
                raise unsupported_operation(where, called)
            return self.treat(operation, carriers)

        def refuse(relevance: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
            raise unsupported_operation(
                where, f"{called} of tensors that depend on the image, except for the scores of an attention"
            )

        return with_backward(operation, carriers, refuse)

    def _group_members(self, group: Operation, signal: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
        """Return the start values of the members of a group: their own, times their share of the group's gradient.

        ``signal`` is 1 for the target, since the logit of the group itself has no start value.
        """
        return tuple(self.start(logits.detach(), share) for share in group.pullback(None, signal, logits))

    def _handle_linear(
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
            raise unsupported_operation(self.where(), f"{called} with a weight that depends on the image")
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
            is_product=func is dense_product and bias is None,
        )
        return self.treat(operation, (input,)) if called == "batch_norm" else self._treat_linear(operation, input)

    def _treat_linear(self, operation: Operation, x: Tensor) -> Tensor:
        output = self.treat(operation, (x,))
        self.origin[id(output)] = operation, x, output, (tensor_version(x), tensor_version(output))
        return output

    def _find_origin(self, x: Tensor) -> tuple[Operation, Tensor] | None:
        """Return the linear operation that computed a tensor, and its input; None if either was overwritten."""
        operation, source, _, versions = self.origin.get(id(x), (None, x, x, ()))
        is_unchanged = versions == (tensor_version(source), tensor_version(x))
        return (operation, source) if operation is not None and is_unchanged else None

    def _add_bias(self, x: Tensor, constant: Tensor) -> Tensor | None:
        """Treat a product with a matrix and the constant that is added to it as one layer; None if they are not one."""
        operation, source = self._find_origin(x) or (None, x)
        if operation is None or operation.weight is None or not operation.is_product:
            return None
        bias = as_bias(constant, operation.weight)
        return None if bias is None else self._treat_linear(replace(operation, bias=bias, is_product=False), source)

    def _handle_batch_norm(
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
        """Fold the normalization into the previous linear operation; otherwise treat it as a linear operation."""
        if training or running_mean is None or running_var is None:
            raise unsupported_operation(
                self.where(),
                "batch normalization with the statistics of the batch",
                "Use running statistics (track_running_stats=True), so that each image is explained on its own.",
            )
        scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        known = self._find_origin(input)
        if known is None and input.ndim in (4, 5):
            scale, shift = (x.reshape(-1, *[1] * (input.ndim - 2)) for x in (scale, shift))
            return self._handle_linear(_scale, "batch_norm", input, scale, shift)
        if known is None or (known[0].called == "linear" and input.ndim != 2):
            raise unsupported_operation(
                self.where(), "batch normalization of anything other than images or the output of a linear layer"
            )
        operation, x = known
        assert operation.weight is not None
        ones = [1] * (operation.weight.ndim - 2)
        if operation.bias is not None:
            shift = shift + operation.bias.flatten() * scale
        folded = replace(
            operation, weight=operation.weight * scale.reshape(-1, 1, *ones), bias=shift.reshape(-1, *ones)
        )
        return self.treat(folded, (x,))


def _scale(x: Tensor, weight: Tensor, bias: None) -> Tensor:
    """Apply a batch normalization without its shift: each output has one input."""
    return x * weight
