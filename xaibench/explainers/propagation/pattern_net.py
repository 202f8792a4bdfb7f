"""PatternNet and PatternAttribution (Kindermans et al., ICLR 2018).

A linear neuron y = wᵀx extracts its signal with w, but w is not the signal, since it must also cancel distractors. The
pattern a describes the signal in x: S_a(x) = a y is such that x - S_a(x) does not correlate with y. Patterns are
estimated for each neuron of each linear and convolutional layer, in one pass over the data. The backward pass of
PatternNet is that of the gradient with a instead of w; PatternAttribution uses w∘a.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import Attribution, Channels
from xaibench.explainers.propagation.layer_operations import OWN_STATISTICS, Operation
from xaibench.explainers.propagation.layer_walk import propagate, unsupported_operation, visit_operations, with_backward
from xaibench.explainers.shared.fitting import NotFittedForModelError, iterate_parts, network_for_fitting, not_fitted
from xaibench.explainers.shared.layers import check_rows
from xaibench.explainers.shared.tokens import PRODUCTS
from xaibench.network.answers import skip_last_layer
from xaibench.registry.info import ExplainerInfo

#: Estimator of the signal: ``"two_component"`` for neurons before a ReLU (S_a+-), ``"linear"`` for any (S_a).
Signal: TypeAlias = Literal["two_component", "linear"]

# A variance below this share of the second moment is the rounding error of a constant.
_CONSTANT = 1e-12

# Minimum number of rows per pass when fitting.
_FEWEST_ROWS = 32


@dataclass(frozen=True, kw_only=True)
class _Patterns(Attribution):
    """Base class of PatternNet and PatternAttribution.

    Attributes:
        signal: Estimator of the patterns, from the inputs x of a neuron and y = wᵀx without its bias:

            a = (E+[x y] - E+[x] E[y]) / (wᵀE+[x y] - wᵀE+[x] E[y])

            ``"two_component"``: E+ is the mean where the neuron is active (wᵀx + bias > 0; in the last layer: a
            positive logit), the a+ of S_a+-, as in the released XAI-TRIS runs (iNNvestigate 1.0). ``"linear"``: E+ is
            the mean over everything, which gives a = cov(x, y) / var(y). Always wᵀa = 1. In a convolution, each
            position of each image is a sample. A neuron that is never active, or whose y is constant, has the pattern
            0.
        patterns: ``{layer: [out, in, ...]}`` float64, in the shape of the weights, with a batch normalization folded
            in; ``None`` before :meth:`fit`.
    """

    signal: Signal = "two_component"
    patterns: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    #: The only output that can be explained.
    explains: ClassVar[Output] = "logit"
    explains_only: ClassVar[bool] = True

    @property
    def fitted(self) -> bool:
        """Whether the patterns of a network are known."""
        return self.patterns is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Estimate the patterns of a network, in one pass and in the memory of one batch.

        Args:
            model: Returns logits. It is used in evaluation mode, on its own device and in ``model.explain_dtype`` if it
                has that; its state is restored afterwards. Sums over batches are kept in float64.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them (``(images, masks, targets)``,
                ``(images, targets)``), usually the training data. Large batches are split, see ``batch_size``.

        Returns:
            This explainer with the patterns of the model.

        Raises:
            TypeError: If a batch does not begin with a floating-point tensor.
            ValueError: If the loader is empty, or yields single images.
            UnsupportedModelError: If the network has a layer that the method does not support.
        """
        sums: dict[str, PatternSums] = {}
        with network_for_fitting(type(self).__name__, model) as network:
            for images in iterate_parts(type(self).__name__, loader, network, self._fitting_rows):
                if not sums:
                    skip_last_layer(network, images, "softmax", "log_softmax", "sigmoid")
                for name, found in record_linear_operations(network, images).items():
                    sums.setdefault(name, PatternSums(found.operation, self.signal)).add(found)
            patterns = {name: total.pattern() for name, total in sums.items()}
        return replace(self, patterns=patterns)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            NotFittedForModelError: If it was called with another network.
            UnsupportedModelError: If the network has a layer that the method does not support.
        """
        name = type(self).__name__
        if self.patterns is None:
            raise not_fitted(name, "the network")
        weights: dict[str, Tensor] = {}

        def back(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
            # In the backward pass, a following batch normalization has been folded in, so the operation is final.
            if operation.name not in weights:
                weights[operation.name] = self._backward_weight(operation, self._check_pattern(operation))
            return operation.pullback(weights[operation.name], signal, x)

        def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
            if operation.kind != "linear":
                return plain_output(operation, inputs)
            return with_backward(operation, inputs, partial(back, operation))

        return self.by_chunk(lambda x, y: propagate(model, x, y, treat, _start), images, targets)

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        """Return the weight of the backward pass."""
        raise NotImplementedError

    def _fitting_rows(self, images: Tensor) -> int:
        return self.batch_size or max(_FEWEST_ROWS, self.rows(images))

    def _check_pattern(self, operation: Operation) -> Tensor:
        """Return the pattern of a layer, or raise an error if it belongs to other weights."""
        assert self.patterns is not None
        assert operation.weight is not None
        name, weight = type(self).__name__, operation.weight
        refit = f"Patterns belong to one trained network: fit {name} to this one."
        pattern = self.patterns.get(operation.name)
        if pattern is None or pattern.shape != weight.shape:
            got = "no pattern" if pattern is None else f"a pattern {list(pattern.shape)}"
            raise NotFittedForModelError(
                f"{operation.where}: {name} has {got} for {operation.name!r} with weights {list(weight.shape)}; it was "
                f"fitted to a network with {_describe_shapes(self.patterns)}. {refit}"
            )
        # wᵀa = 1 (0 for neurons without a pattern) holds for the fitted weights, up to their rounding.
        pattern = pattern.to(weight.device)
        product = pattern * weight
        response, scale = product.flatten(1).sum(1), product.abs().flatten(1).sum(1)
        if bool(((response - 1).abs().minimum(response.abs()) > 1e-3 + 1e-4 * scale).any()):
            raise NotFittedForModelError(
                f"{operation.where}: its weights have changed since {name} was fitted (wᵀa is "
                f"{float(response[(response - 1).abs().argmax()]):.3g}, expected 1). {refit}"
            )
        return pattern.to(weight.dtype)


@ExplainerInfo(
    "PatternNet",
    family="Patterns",
    citation="Kindermans et al.: Learning how to explain neural networks: PatternNet and PatternAttribution. ICLR "
    "2018.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class PatternNet(_Patterns):
    """The signal that the target's logit extracts, projected back to the image: a gradient with patterns as weights.

    The backward pass starts from the sign of the logit, as in the released XAI-TRIS runs. For a linear network, the map
    times the magnitude of the logit is the estimated signal S_a(x) = a y. Biases are ignored. Max-pooling and ReLU use
    their gradient, as in the paper; beyond it, so do average pooling and the sum of branches.

    Departure: iNNvestigate divides the signal by its largest magnitude at each bottleneck of a convolutional network,
    so its maps are these divided by their largest magnitude. Here nothing is scaled.

    The default of ``channels`` is ``"max_abs"``, since the map is a signal and not a sum of contributions.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 1, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0, -1.0]]))  # cancels a distractor that both pixels have
        >>> signal, distractor = torch.tensor([1.0, -1.0, 2.0, -2.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
        >>> images = torch.stack([signal + distractor, distractor], 1).reshape(4, 1, 1, 2)
        >>> fitted = PatternNet(signal="linear").fit(model, [images])
        >>> fitted(model, images[:1], torch.tensor([0]))  # only the first pixel contains the signal
        tensor([[[1., 0.]]])
    """

    channels: Channels = "max_abs"

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        return pattern


@ExplainerInfo(
    "PatternAttribution",
    family="Patterns",
    citation="Kindermans et al.: Learning how to explain neural networks: PatternNet and PatternAttribution. ICLR "
    "2018.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class PatternAttribution(_Patterns):
    """The contribution of the signal in each pixel to the target's logit: a gradient with w∘a as weights.

    Start value, other layers and departure are the same as in :class:`PatternNet`.
    """

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        assert operation.weight is not None
        return pattern * operation.weight


def _start(outputs: Tensor, slope: Tensor) -> Tensor:
    return (slope * outputs).sign() * slope


def _describe_shapes(patterns: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {list(pattern.shape)}" for name, pattern in patterns.items())


@dataclass(frozen=True, eq=False)
class Recorded:
    """A linear operation, its output y without bias, and the copy of its weight that y was computed with."""

    operation: Operation
    y: Tensor
    weight: Tensor


class PatternSums:
    """Running sums of one layer that determine its patterns."""

    def __init__(self, operation: Operation, signal: Signal) -> None:
        assert operation.weight is not None
        self.operation, self.signal = operation, signal
        self.weight = operation.weight.detach().double()
        self.active_x = torch.zeros_like(self.weight)
        self.active_xy = torch.zeros_like(self.weight)
        self.y = self.weight.new_zeros(len(self.weight))
        self.count = 0

    def add(self, found: Recorded) -> None:
        """Add a batch."""
        y, bias = found.y.detach(), self.operation.bias
        active = torch.ones_like(y)
        if self.signal == "two_component":
            active = ((y if bias is None else y + bias) > 0).to(y)
        # The gradient with respect to the weight sums x times a cotangent over samples and positions, without
        # unfolding.
        self.active_x += torch.autograd.grad(found.y, found.weight, active, retain_graph=True)[0]
        self.active_xy += torch.autograd.grad(found.y, found.weight, active * y)[0]
        neuron = y.ndim - 1 if self.operation.called == "linear" else 1
        self.y += y.movedim(neuron, 0).flatten(1).sum(1, dtype=torch.float64)
        self.count += y.numel() // len(self.weight)

    def pattern(self) -> Tensor:
        """Return the pattern in the shape of the weight; the number of active samples cancels in the quotient."""
        mean_y = (self.y / self.count).reshape(-1, *[1] * (self.weight.ndim - 1))
        covariance = self.active_xy - self.active_x * mean_y
        variance = _response(self.weight, covariance)
        constant = variance.abs() <= _CONSTANT * _response(self.weight, self.active_xy).abs()
        return torch.where(constant, 0.0, covariance / torch.where(constant, 1.0, variance))


def _response(weight: Tensor, pattern: Tensor) -> Tensor:
    """Return wᵀa of each neuron, broadcasting with the weight."""
    return (weight * pattern).flatten(1).sum(1).reshape(-1, *[1] * (weight.ndim - 1))


def record_linear_operations(network: nn.Module, images: Tensor) -> dict[str, Recorded]:
    """Record each linear operation of one forward pass, by name."""
    seen: dict[str, Recorded] = {}

    def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
        if operation.kind != "linear":
            return plain_output(operation, inputs)
        assert operation.weight is not None
        check_rows(operation.where, inputs[0], images)
        weight = operation.weight.detach().clone().requires_grad_()
        y = operation.function(inputs[0].detach(), weight)
        # A batch normalization calls this again for the same operation, with its weights folded in.
        seen[operation.name] = Recorded(operation, y, weight)
        output = y.detach() if operation.bias is None else y.detach() + operation.bias
        return output.requires_grad_().clone()  # the network may overwrite it

    # A clone, since the network may change its input in place.
    visit_operations(network, images.detach().clone().requires_grad_().clone(), treat)
    return seen


def plain_output(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the plain output of an operation, for which the method uses the gradient."""
    attends = operation.called in OWN_STATISTICS or operation.called in PRODUCTS
    if attends or (operation.kind == "activation" and not operation.rectifies):
        raise unsupported_operation(
            operation.where,
            operation.called,
            "Patterns are defined for networks of ReLU and ReLU6; use lrp_epsilon, or saliency or "
            "integrated_gradients.",
        )
    return operation(*inputs)
