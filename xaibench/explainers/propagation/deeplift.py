"""DeepLIFT with the rescale rule, and its mean over baselines, Deep SHAP.

Image and baseline are evaluated together. Each nonlinear operation propagates the quotient of the differences between
the two instead of its derivative. The numbers agree with Captum wherever Captum has a rule (tested), except for
max-pooling (see :class:`DeepLift`). Captum hooks into modules and uses a plain gradient where it knows no rule. Here

- every activation is treated, also one called as a function, or in a module that is called in several places
  (torchvision's ResNets);
- any elementwise activation is rescaled (ReLU6, SiLU, GELU), and the product of two branches (squeeze and excitation)
  is split in half, which is its Shapley value;
- attention and layer, group and instance normalization are decomposed into sums, products and functions of one number,
  each of which has a rule, so the difference is fully distributed in transformers too: functions follow the rescale
  rule, products are split in half, and the multipliers of the parts are combined in closed form;
- an operation without a rule raises an error that names its layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.base import Attribution, prepare_baselines
from xaibench.explainers.propagation.forward_trace import TOLERANCE, OperationInterceptor, intercept_operations
from xaibench.explainers.propagation.layer_operations import (
    LINEAR,
    OWN_STATISTICS,
    REARRANGING,
    Operation,
    OperationKind,
    is_attention_softmax,
    operation_kind,
    tensors_in,
)
from xaibench.explainers.propagation.layer_walk import with_backward
from xaibench.explainers.shared.passes import GRADIENT
from xaibench.explainers.shared.tokens import PRODUCTS
from xaibench.network.explained_output import ExplainedOutput, UnsupportedModelError, network_of
from xaibench.registry.info import ExplainerInfo

#: Rule of max-pooling (see :class:`DeepLift`).
MaxPool: TypeAlias = Literal["difference", "gradient"]

# For smaller differences, the derivative is used; as in Captum.
_NO_DIFFERENCE = 1e-10

# Linear if only one of the arguments depends on the image.
_LINEAR_TOO = (
    *("interpolate", "conv_transpose2d", "conv_transpose3d"),
    *("matmul", "mm", "bmm", "__matmul__", "__rmatmul__", "einsum"),
)
_PRODUCTS = ("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", *PRODUCTS)

# Propagates a signal from the output to the inputs.
_BackwardRule: TypeAlias = Callable[..., tuple[Tensor, ...]]


@ExplainerInfo(
    "DeepLift",
    family="Differences from a baseline",
    citation="Shrikumar, Greenside, Kundaje: Learning Important Features Through Propagating Activation "
    "Differences. ICML 2017.",
    revision=2,
    passes=4,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class DeepLift(Attribution):
    """DeepLIFT with the rescale rule: differences from the baseline, propagated back through the layers.

    The head (softmax, margin, and the log-sum-exp of merged classes) propagates its plain gradient at the image. The
    XAI-TRIS runs do so, and Captum if the softmax is a function. Captum rescales a softmax module in its own way, which
    gives other maps. Those of the logit are the same.

    Attributes:
        baseline: Value of every pixel of the reference image.
        max_pool: Rule of max-pooling. ``"difference"``: to the inputs that cause the difference, as in
            ``DeepExplainer`` of ``shap``; overlapping windows add up, and the map of a logit sums to its difference
            from that of the reference image. ``"gradient"``: to the largest input. Captum does so for a pooling right
            after a ReLU, whose hook hides the rule, and therefore in the XAI-TRIS runs.
    """

    baseline: float = 0.0
    max_pool: MaxPool = "difference"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an operation without a rule.
        """

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            return _contributions("deeplift", model, x, torch.full_like(x, self.baseline), y, self.max_pool)

        return self.by_chunk(attribute, images, targets, rows_per_image=2)


@ExplainerInfo(
    "Deep SHAP",
    family="Differences from a baseline",
    revision=2,
    citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class DeepSHAP(Attribution):
    """The mean of DeepLIFT over baselines (Captum's ``DeepLiftShap``).

    With the default baseline, zeros as in the XAI-TRIS runs, the maps are the same as DeepLIFT's.

    Attributes:
        baselines: ``[B, C, H, W]``; ``None``: zeros.
        max_pool: See :class:`DeepLift`.
    """

    baselines: Tensor | None = field(default=None, repr=False, compare=False)
    max_pool: MaxPool = "difference"

    def passes(self, images: Tensor) -> int:
        """Return the number of passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            For each baseline, a gradient of the image and one of the baseline.
        """
        return len(images) * 2 * GRADIENT * len(prepare_baselines(self.baselines, images))

    def cheaper(self) -> str:
        """Return advice on reducing the number of passes, for error messages.

        Returns:
            The change in words.
        """
        return "fewer baselines"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an operation without a rule.
        """
        baselines = prepare_baselines(self.baselines, images)
        size = len(baselines)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            references = baselines.repeat(len(x), *[1] * (x.ndim - 1))
            pairs = x.repeat_interleave(size, 0), references, y.repeat_interleave(size)
            return _contributions("deep_shap", model, *pairs, self.max_pool).reshape(len(x), size, *x.shape[1:]).mean(1)

        return self.by_chunk(attribute, images, targets, rows_per_image=2 * size)


def _contributions(
    owner: str, model: nn.Module, images: Tensor, baselines: Tensor, targets: Tensor, max_pool: MaxPool
) -> Tensor:
    """Compute multiplier times difference, ``[N, C, H, W]``, for images and as many baselines."""
    with intercept_operations(
        model, lambda network: _DifferenceInterceptor(network, owner, len(images), max_pool)
    ) as interceptor:
        leaf = images.detach().clone().requires_grad_()
        outputs = interceptor.run(model, torch.cat([leaf, baselines]))
        explained = outputs.gather(1, targets.repeat(2)[:, None]).sum()
        logits = [x for x in tensors_in(interceptor.returned) if x.requires_grad and len(x) == len(outputs)]
        multipliers, *slopes = torch.autograd.grad(
            explained, [leaf, *logits], retain_graph=True, allow_unused=True, materialize_grads=True
        )
        if max_pool == "difference" and not interceptor.head:
            # The sum is known if image and baseline have the same slopes: those of the image.
            same = [torch.cat([_split_halves(slope)[0]] * 2) for slope in slopes]
            checked = multipliers
            if not all(map(torch.equal, slopes, same)):
                with _uncounted(model):
                    (checked,) = torch.autograd.grad(logits, leaf, same)
            _check_sum(owner, network_of(model), checked * (images - baselines), logits, same)
    return multipliers * (images - baselines)


@contextmanager
def _uncounted(model: nn.Module) -> Iterator[None]:
    """Count no passes inside the block: those of a check are not passes of the method."""
    if not isinstance(model, ExplainedOutput):
        yield
        return
    counter, model.on_rows = model.on_rows, lambda rows: None
    try:
        yield
    finally:
        model.on_rows = counter


def _check_sum(owner: str, network: nn.Module, shares: Tensor, logits: list[Tensor], slopes: list[Tensor]) -> None:
    """Check that contributions sum to the difference of the outputs, which follows from the rule of each operation."""
    terms = torch.cat([(z.detach() * slope).reshape(len(z), -1) for z, slope in zip(logits, slopes, strict=True)], 1)
    (value, reference), shares = _split_halves(terms.sum(1)), shares.flatten(1)
    eps, magnitude = torch.finfo(terms.dtype).eps, shares.abs().sum(1)
    largest = torch.stack(_split_halves(terms.abs().sum(1))).amax(0)
    imprecise = eps * magnitude > largest
    wrong = (shares.sum(1) - (value - reference)).abs() > TOLERANCE[terms.dtype] * magnitude + 1000 * eps * largest
    if not (imprecise | wrong).any():  # one look at the device
        return
    if imprecise.any():
        raise UnsupportedModelError(
            f"{owner}: the contributions to the output of {type(network).__name__} add up to {magnitude.max():.0e} "
            "without their signs, so that rounding errors exceed the output. They grow from layer to layer where group "
            "or layer normalization divides a constant baseline by zero. Choose a baseline that is not constant "
            "(deep_shap, baselines=images), or use integrated_gradients."
        )
    i = int(wrong.nonzero()[0])
    raise UnsupportedModelError(
        f"{owner}: the contributions to the output of {type(network).__name__} sum to {shares[i].sum():.4g} in "
        f"sample {i}, expected {value[i] - reference[i]:.4g}, its difference from the baseline. Values are "
        "chosen or scaled by constants that the network computes from the image, such as x * (x > 0), argmax or "
        "detach. Use functions such as torch.relu, or integrated_gradients."
    )


class _DifferenceInterceptor(OperationInterceptor):
    """Replace the backward pass of every nonlinear operation by its rule for differences.

    The first half of each tensor belongs to the images, the second to their baselines.
    """

    def __init__(self, network: nn.Module, owner: str, samples: int, max_pool: MaxPool) -> None:
        super().__init__(network)
        self.owner, self.rows, self.max_pool = owner, 2 * samples, max_pool
        self.head = ""

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        kind = operation_kind(called, args, kwargs)
        rule = self._find_rule(called, kind, args, kwargs, len(carriers))
        if self.head and (rule is not None or called in LINEAR):
            raise self._unsupported(f"{called} after the logsumexp of {self.head}")
        if rule is not None:
            if not all(map(self._is_batch, carriers)):
                raise self._unsupported(f"{called} of a tensor whose first dimension is not the batch")
            operation = self.operation(func, called, args, kwargs, kind=kind or "sum")
            assert operation is not None
            return with_backward(operation, carriers, partial(rule, operation))
        if called == "logsumexp":
            self.head = self.where()
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        gradient = kind is not None or called in REARRANGING or _is_linear(called, args, kwargs, len(carriers))
        if not gradient and any(x.requires_grad for x in tensors_in(result)):
            raise self._unsupported(called)
        return result

    def _is_batch(self, x: Tensor) -> bool:
        """Return whether the first half of a tensor belongs to the images; windows have several rows per image."""
        return x.shape[:1] == (self.rows,) or (x.ndim > 3 and len(x) % self.rows == 0)

    def _find_rule(
        self, called: str, kind: OperationKind | None, args: tuple[Any, ...], kwargs: dict[str, Any], carriers: int
    ) -> _BackwardRule | None:
        """Return the rule of a nonlinear operation; ``None`` for operations that keep their gradient."""
        if kind == "activation":
            return _rescale_rule
        pools = called == "amax" or (
            "max_pool" in called and "indices" not in called and not kwargs.get("return_indices")
        )
        if pools and self.max_pool == "difference":
            return _max_pool_rule
        if called in OWN_STATISTICS:
            return normalization_rule(called, *args, **kwargs)
        if is_attention_softmax(called, args, kwargs):
            return softmax_rule
        return _product_rule if called in _PRODUCTS and carriers == 2 else None

    def _unsupported(self, called: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.owner}: {self.where()} has no rule for {called}. Supported: linear and convolutional "
            "layers, normalizations, elementwise activations, max- and average pooling, attention, sums and products "
            "of branches. integrated_gradients and gradient_shap explain any differentiable network."
        )


def _is_linear(called: str, args: tuple[Any, ...], kwargs: dict[str, Any], carriers: int) -> bool:
    """Return whether an operation is linear in the tensors that depend on the image."""
    if called == "batch_norm":
        return not kwargs.get("training", args[5] if len(args) > 5 else False)
    return (called in LINEAR or called in _LINEAR_TOO) and carriers == 1


def _split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.chunk(2)
    return first, second


def _quotient(numerator: Tensor, difference: Tensor, otherwise: Tensor) -> Tensor:
    """Divide numerator by difference in both halves, and use ``otherwise`` where there is no difference."""
    small = difference.abs() < _NO_DIFFERENCE
    quotient = numerator / torch.where(small, 1.0, difference)
    return torch.where(torch.cat([small, small]), otherwise, torch.cat([quotient, quotient]))


def _rescale_rule(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Apply the rescale rule: the difference of the outputs divided by that of the inputs."""
    (image, baseline), (out, out_baseline) = _split_halves(x), _split_halves(operation(x))
    (derivative,) = operation.pullback(None, torch.ones_like(signal), x)
    return (signal * _quotient(out - out_baseline, image - baseline, derivative),)


def _max_pool_rule(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Assign the difference of the maxima to the inputs that attain them.

    The input that attains the larger maximum gets the increase, the other one the decrease. The pullback routes the
    values to these inputs, and adds them up where windows overlap.
    """
    (image, baseline), (out, out_baseline) = _split_halves(x), _split_halves(operation(x))
    largest = torch.maximum(out, out_baseline)
    (back,) = operation.pullback(None, signal * torch.cat([largest - out_baseline, out - largest]), x)
    (derivative,) = operation.pullback(None, signal, x)
    return (_quotient(torch.stack(_split_halves(back)).sum(0), image - baseline, derivative),)


def _product_rule(operation: Operation, signal: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Multiply each factor by the mean of the other: a b - a'b' = (a - a') (b + b')/2 + (b - b') (a + a')/2."""
    means = [torch.cat([(first + second) / 2] * 2) for first, second in (_split_halves(a), _split_halves(b))]
    return operation.pullback(None, signal, *means)


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
