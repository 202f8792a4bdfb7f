"""The walk over a network's layers that PatternNet, deep Taylor and LRP share.

The network runs forward under a ``TorchFunctionMode``, which sees every operation, called by a module or as a function.
Those that compute something new from the image (linear layers, activations, poolings, sums) are handed to a treatment,
which returns their output with a backward pass of its own; those that only move numbers (flatten, max-pooling,
concatenation) keep their gradient, which passes each number back to where it came from. Autograd then carries relevance
or signal from the logit to the image. An operation that is neither is an error that names its layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xaibench.explainers.base import UnsupportedModelError
from xaibench.explainers.guard import unharmed
from xaibench.explainers.operations import LINEAR, MOVES, Operation, kind_of, out_of_place, tensors_in
from xaibench.explainers.output import ExplainedOutput

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
        start: What the backward pass starts with, from the logits ``[N, 1]``.

    Returns:
        ``[N, C, H, W]``.

    Raises:
        UnsupportedModelError: If an operation cannot be treated; the message names its layer.
    """
    with torch.enable_grad():
        images = images.detach().clone().requires_grad_()
        logits = walk(model, images, treat)
        chosen = targets[:, None]
        head = torch.zeros_like(logits).scatter_(1, chosen, start(logits.detach().gather(1, chosen)))
        return torch.autograd.grad(logits, images, head)[0]


def walk(model: nn.Module, images: Tensor, treat: Treatment) -> Tensor:
    """Logits ``[N, K]`` of images that require a gradient, with the backward pass of the treatment.

    Raises:
        UnsupportedModelError: If an operation cannot be treated, or there is no linear layer between image and logit.
    """
    network = model.network if isinstance(model, ExplainedOutput) else model
    # The guard takes the hooks away again, and freezes the parameters: what requires a gradient depends on the image.
    with unharmed(network):
        mode = _Walk(network, treat)
        with mode:
            logits: Tensor = network(images)
    if not mode.calls:
        raise UnsupportedModelError(
            f"{type(network).__name__}: no linear or convolutional layer works on the images. A compiled, scripted or "
            "traced network hides its layers: give the one it was made from."
        )
    return logits


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
        "Known are linear and convolutional layers, batch normalisation right after them, elementwise activations, "
        "max- and average pooling, sums of branches and flattening; a softmax at the end must be left out. Any network "
        "can be explained by saliency or integrated_gradients, or by shapley_sampling or lime, which only perturb."
    )
    return UnsupportedModelError(f"{where}: relevance cannot be carried back through {called}. {advice}")


class _Walk(TorchFunctionMode):
    def __init__(self, network: nn.Module, treat: Treatment) -> None:
        super().__init__()
        self.treat = treat
        self.calls: Counter[str] = Counter()
        self.running: list[tuple[str, nn.Module]] = []
        # The linear operation that made a tensor, its input, and the tensor itself, so that its id stays its own: for a
        # batch normalisation that follows.
        self.origin: dict[int, tuple[Operation, Tensor, Tensor]] = {}
        for name, module in network.named_modules():
            module.register_forward_pre_hook(self._enter(name))
            module.register_forward_hook(self._leave)

    def _enter(self, name: str) -> Callable[[nn.Module, Any], None]:
        return lambda module, _: self.running.append((name, module))

    def _leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        called = getattr(func, "__name__", str(func))
        carriers = tuple(x for x in tensors_in((args, kwargs)) if x.requires_grad)
        if not carriers or called in MOVES:
            return func(*args, **kwargs)
        if called in LINEAR:
            return self._linear(func, called, *args, **kwargs)
        if called == "batch_norm":
            return self._batch_norm(*args, **kwargs)
        kind = kind_of(called, args, kwargs)
        if kind is not None:
            function = out_of_place(func, args, kwargs)
            return self.treat(Operation(kind, self._name(called), function, called, self._where()), carriers)
        result = func(*args, **kwargs)
        if any(x.requires_grad for x in tensors_in(result)):
            raise unsupported(self._where(), called)
        return result  # a size, a comparison, a detached value

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
            raise unsupported(self._where(), f"{called} with a weight that depends on the image")
        if bias is not None:
            bias = bias.reshape(-1, *[1] * (weight.ndim - 2))
        name = self._name(called)
        first = not self.calls
        self.calls[name] += 1
        if self.calls[name] > 1:
            name = f"{name}#{self.calls[name]}"
        operation = Operation(
            "linear",
            name,
            lambda x, w: func(x, w, None, *rest, **named),
            called,
            self._where(),
            weight,
            bias,
            is_input=first,
        )
        output = self.treat(operation, (input,))
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
        """Treat the linear operation before again, with the normalisation folded in."""
        known = self.origin.get(id(input))
        if known is None or (known[0].called == "linear" and input.ndim != 2):
            raise unsupported(
                self._where(), "batch normalisation that does not come right after a linear or convolutional layer"
            )
        operation, x, _ = known
        assert operation.weight is not None
        if training or running_mean is None or running_var is None:
            raise unsupported(
                self._where(),
                "batch normalisation by the statistics of the batch",
                "Give it running statistics (track_running_stats=True), so that each image is explained by itself.",
            )
        scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        ones = [1] * (operation.weight.ndim - 2)
        if operation.bias is not None:
            shift = shift + operation.bias.flatten() * scale
        folded = replace(
            operation, weight=operation.weight * scale.reshape(-1, 1, *ones), bias=shift.reshape(-1, *ones)
        )
        return self.treat(folded, (x,))

    def _name(self, called: str) -> str:
        name, module = self.running[-1]
        own = isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
        return name if own and name else f"{name}.{called}".lstrip(".")

    def _where(self) -> str:
        name, module = self.running[-1]
        return f"layer {name!r} ({type(module).__name__})" if name else type(module).__name__
