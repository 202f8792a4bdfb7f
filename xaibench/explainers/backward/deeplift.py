"""DeepLIFT with the rescale rule, and its mean over baselines, Deep SHAP.

Image and baseline run together, and each nonlinear operation passes back the quotient of the differences between the
two instead of a derivative. The numbers are Captum's wherever Captum has a rule (tested), apart from max-pooling (see
:class:`DeepLift`). Captum hooks into modules and goes on with a plain gradient where it does not know one; here

- every activation is seen, also as a function, and in a module that runs in several places (torchvision's ResNets);
- any elementwise activation is rescaled (ReLU6, SiLU, GELU), and the product of two branches (squeeze and excitation)
  is shared half and half, which is its Shapley value;
- attention and layer normalisation are taken apart into sums, products and functions of one number, each of which has a
  rule, so that the whole is shared out in transformers too;
- what has no rule is an error that names its layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.attention_calls import PRODUCTS
from xaibench.explainers.backward.attention_differences import normalised, softmaxed
from xaibench.explainers.backward.forward_watch import Watch, watching
from xaibench.explainers.backward.layer_operations import (
    LINEAR,
    MOVES,
    Kind,
    Operation,
    kind_of,
    tensors_in,
    weighs_tokens,
)
from xaibench.explainers.backward.layer_walk import with_backward
from xaibench.explainers.gradients.plain_gradients import prepare_baselines
from xaibench.explainers.shared.counted_passes import GRADIENT
from xaibench.explainers.shared.interface import Attribution, UnsupportedModelError

#: How max-pooling passes back (see :class:`DeepLift`).
MaxPool: TypeAlias = Literal["difference", "gradient"]

# Differences below this have no quotient; as in Captum.
_NO_DIFFERENCE = 1e-10

# Linear in what depends on the image, if that is one of their arguments only.
_LINEAR_TOO = ("interpolate", "conv_transpose2d", "matmul", "mm", "bmm", "__matmul__", "__rmatmul__", "einsum")
_PRODUCTS = ("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", *PRODUCTS)

# Moves a signal from the output to the inputs.
_Rule: TypeAlias = Callable[..., tuple[Tensor, ...]]


@described(
    ExplainerInfo(
        "DeepLift",
        family="Differences from a baseline",
        citation="Shrikumar, Greenside, Kundaje: Learning Important Features Through Propagating Activation "
        "Differences. ICML 2017.",
        revision=2,
        passes=4,
    )
)
@dataclass(frozen=True, kw_only=True)
class DeepLift(Attribution):
    """DeepLIFT with the rescale rule: differences from the baseline, passed back through the layers.

    The head passes back its plain gradient at the image: softmax and margin, and the log-sum-exp of a network that
    takes classes together. So it is in the XAI-TRIS runs and in Captum where the softmax is a function; a softmax that
    is a module Captum rescales in a way of its own, and its maps are others. Those of the logit are the same.

    Attributes:
        baseline: Value of every pixel of the reference image.
        max_pool: How max-pooling passes back. ``"difference"``: to the inputs that make the difference, as in the
            ``DeepExplainer`` of ``shap``; overlapping windows add up, and the map of a logit sums to its difference
            from the reference image's. ``"gradient"``: to the largest input, as happens in Captum to a pooling right
            after a ReLU, whose hook then never sees the rule, and so in the XAI-TRIS runs.
    """

    baseline: float = 0.0
    max_pool: MaxPool = "difference"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("max_pool", self.max_pool, get_args(MaxPool), owner="DeepLift")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an operation without a rule.
        """

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            return _contributions("deeplift", model, x, torch.full_like(x, self.baseline), y, self.max_pool)

        return self.by_chunk(attribute, images, targets, rows_per_image=2)


@described(
    ExplainerInfo(
        "Deep SHAP",
        family="Differences from a baseline",
        revision=2,
        citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class DeepSHAP(Attribution):
    """The mean of DeepLIFT over baselines (Captum's ``DeepLiftShap``).

    With the default, zeros as in the XAI-TRIS runs, the maps are DeepLIFT's.

    Attributes:
        baselines: ``[B, C, H, W]``; ``None``: zeros.
        max_pool: As in :class:`DeepLift`.
    """

    baselines: Tensor | None = field(default=None, repr=False, compare=False)
    max_pool: MaxPool = "difference"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("max_pool", self.max_pool, get_args(MaxPool), owner="DeepSHAP")

    def passes(self, images: Tensor) -> int:
        """Passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            For each baseline a gradient of the image and one of the baseline.
        """
        return len(images) * 2 * GRADIENT * len(prepare_baselines(self.baselines, images))

    def cheaper(self) -> str:
        """What to change.

        Returns:
            In words.
        """
        return "fewer baselines"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an operation without a rule.
        """
        baselines = prepare_baselines(self.baselines, images)
        size = len(baselines)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            pairs = x.repeat_interleave(size, 0), baselines.repeat(len(x), 1, 1, 1), y.repeat_interleave(size)
            return _contributions("deep_shap", model, *pairs, self.max_pool).reshape(len(x), size, *x.shape[1:]).mean(1)

        return self.by_chunk(attribute, images, targets, rows_per_image=2 * size)


def _contributions(
    owner: str, model: nn.Module, images: Tensor, baselines: Tensor, targets: Tensor, max_pool: MaxPool
) -> Tensor:
    """Multiplier times difference, ``[N, C, H, W]``, of images and as many baselines."""
    with watching(model, lambda network: _Differences(network, owner, len(images), max_pool)) as watch:
        leaf = images.detach().clone().requires_grad_()
        outputs = watch.run(model, torch.cat([leaf, baselines]))
        (multipliers,) = torch.autograd.grad(outputs.gather(1, targets.repeat(2)[:, None]).sum(), leaf)
    return multipliers * (images - baselines)


class _Differences(Watch):
    """Gives every nonlinear operation the backward pass that its differences ask for.

    The first half of each tensor is of the images, the second of their baselines.
    """

    def __init__(self, network: nn.Module, owner: str, samples: int, max_pool: MaxPool) -> None:
        super().__init__(network)
        self.owner, self.rows, self.max_pool = owner, 2 * samples, max_pool
        self.head = ""

    def see(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        kind = kind_of(called, args, kwargs)
        rule = self._rule(called, kind, args, kwargs, len(carriers))
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
        gradient = kind is not None or called in MOVES or _is_linear(called, args, kwargs, len(carriers))
        if not gradient and any(x.requires_grad for x in tensors_in(result)):
            raise self._unsupported(called)
        return result

    def _is_batch(self, x: Tensor) -> bool:
        """Whether the first half of a tensor is of the images; heads of windows are several for each image."""
        return x.shape[:1] == (self.rows,) or (x.ndim > 3 and len(x) % self.rows == 0)

    def _rule(
        self, called: str, kind: Kind | None, args: tuple[Any, ...], kwargs: dict[str, Any], carriers: int
    ) -> _Rule | None:
        """How the differences pass back through a nonlinear operation; ``None`` for those that keep their gradient."""
        if kind == "activation":
            return _rescaled
        pools = "max_pool" in called and "indices" not in called and not kwargs.get("return_indices")
        if pools and self.max_pool == "difference":
            return _pooled
        if called == "layer_norm":
            return normalised(*args, **kwargs)
        if weighs_tokens(called, args, kwargs):
            return softmaxed
        return _shared if called in _PRODUCTS and carriers == 2 else None

    def _unsupported(self, called: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.owner}: {self.where()} has no rule for {called}. Those that have one: linear and convolutional "
            "layers, batch and layer normalisation, elementwise activations, max- and average pooling, attention, sums "
            "and products of branches. integrated_gradients and gradient_shap explain any differentiable network."
        )


def _is_linear(called: str, args: tuple[Any, ...], kwargs: dict[str, Any], carriers: int) -> bool:
    """Whether an operation is linear in what depends on the image."""
    if called == "batch_norm":
        return not kwargs.get("training", args[5] if len(args) > 5 else False)
    return (called in LINEAR or called in _LINEAR_TOO) and carriers == 1


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.chunk(2)
    return first, second


def _quotient(numerator: Tensor, difference: Tensor, otherwise: Tensor) -> Tensor:
    """Numerator by difference, in both halves, and a derivative where there is none."""
    small = difference.abs() < _NO_DIFFERENCE
    quotient = numerator / torch.where(small, 1.0, difference)
    return torch.where(torch.cat([small, small]), otherwise, torch.cat([quotient, quotient]))


def _rescaled(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """The rescale rule: the difference of the outputs by that of the inputs."""
    (image, baseline), (out, out_baseline) = _halves(x), _halves(operation(x))
    (derivative,) = operation.pullback(None, torch.ones_like(signal), x)
    return (signal * _quotient(out - out_baseline, image - baseline, derivative),)


def _pooled(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """The difference of the largest values, at the inputs that have them: up to the larger at one, down at the other.

    The pullback puts the numbers back to where they came from, and adds where windows overlap.
    """
    (image, baseline), (out, out_baseline) = _halves(x), _halves(operation(x))
    largest = torch.maximum(out, out_baseline)
    (back,) = operation.pullback(None, signal * torch.cat([largest - out_baseline, out - largest]), x)
    (derivative,) = operation.pullback(None, signal, x)
    return (_quotient(torch.stack(_halves(back)).sum(0), image - baseline, derivative),)


def _shared(operation: Operation, signal: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Each by the mean of the other, because a b - a'b' = (a - a') (b + b')/2 + (b - b') (a + a')/2."""
    means = [torch.cat([(first + second) / 2] * 2) for first, second in (_halves(a), _halves(b))]
    return operation.pullback(None, signal, *means)
