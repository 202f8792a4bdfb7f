"""PatternNet and PatternAttribution (Kindermans et al., ICLR 2018).

A linear neuron y = wᵀx reads its signal with w, but w is not the signal: it also has to cancel the distractor. The
pattern a is what the signal looks like in x: the S_a(x) = a y that leaves nothing in x - S_a(x) that correlates with y.
Patterns are estimated for each neuron of each linear and convolutional layer, in one pass over data. PatternNet's
backward pass is the gradient's with a in place of w, PatternAttribution's with w∘a.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.backward.layer_operations import Operation
from xaibench.explainers.backward.layer_walk import propagate, with_backward
from xaibench.explainers.backward.pattern_sums import PatternSums, Signal, gradient, record
from xaibench.explainers.shared.fitted_data import NotFittedError, NotFittedForModelError, images_of
from xaibench.explainers.shared.interface import Attribution, Channels

# Rows of one pass that fits, at least.
_FEWEST_ROWS = 32


@dataclass(frozen=True, kw_only=True)
class _Patterns(Attribution):
    """What PatternNet and PatternAttribution share.

    Attributes:
        signal: How patterns are estimated, from the inputs x of a neuron and y = wᵀx without its bias:

            a = (E+[x y] - E+[x] E[y]) / (wᵀE+[x y] - wᵀE+[x] E[y])

            ``"two_component"``: E+ is the mean where the neuron is active (wᵀx + bias > 0; in the last layer: a
            positive logit), the a+ of S_a+-, as in the released XAI-TRIS runs (iNNvestigate 1.0). ``"linear"``: E+
            is the mean over everything, which makes a = cov(x, y) / var(y). Always wᵀa = 1. In a
            convolution each position of each image is a sample. A neuron that is never active, or whose y is
            constant, has the pattern 0.
        patterns: ``{layer: [out, in, ...]}`` float64, shaped as the weights, with a batch normalisation folded in;
            ``None`` before :meth:`fit`.
    """

    signal: Signal = "two_component"
    patterns: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    #: What of the model is explained; nothing else can be.
    explains: ClassVar[Output] = "logit"
    explains_only: ClassVar[bool] = True
    #: What decides the patterns beside network and data: explainers that agree in it can share those of one fit.
    fit_decided_by: ClassVar[tuple[str, ...]] = ("signal", "batch_size")

    @property
    def fit_state(self) -> Mapping[str, Tensor]:
        """What :meth:`fit` found out; nothing before."""
        return self.patterns or {}

    def with_fit(self, state: Mapping[str, Tensor]) -> Self:
        """This explainer with what :meth:`fit_state` of another said, as if it had been fitted itself."""
        return replace(self, patterns=dict(state))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("signal", self.signal, get_args(Signal), owner=type(self).__name__)

    @property
    def fitted(self) -> bool:
        """Whether it has the patterns of a network."""
        return self.patterns is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Estimate the patterns of a network, in one pass and in the memory of one batch.

        Args:
            model: Returns logits. It is used in evaluation mode, on its own device and in ``model.explain_dtype`` if it
                has that, and comes back as it was. What the batches add up to is kept in float64.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them (``(images, masks, targets)``,
                ``(images, targets)``); the training data, by rights. Large batches are cut, see ``batch_size``.

        Returns:
            This explainer with the patterns of the model.

        Raises:
            TypeError: If a batch does not begin with a floating tensor.
            ValueError: If the loader is empty, or yields single images.
            UnsupportedModelError: If the network has a layer that the method does not know.
        """
        sums: dict[str, PatternSums] = {}
        with torch.inference_mode(False):
            network = _in_own_precision(model)
            for batch in images_of(type(self).__name__, loader):
                for images in self._placed(batch, network):
                    for name, found in record(network, images).items():
                        sums.setdefault(name, PatternSums(found.operation, self.signal)).add(found)
            patterns = {name: total.pattern() for name, total in sums.items()}
        return replace(self, patterns=patterns)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            NotFittedForModelError: If it was called with another network.
            UnsupportedModelError: If the network has a layer that the method does not know.
        """
        name = type(self).__name__
        if self.patterns is None:
            raise NotFittedError(
                f"{name} has no patterns: fit it to the network first, fitted = {name}().fit(model, loader), and "
                "explain with what that returns, explain(fitted, model, images, targets)."
            )
        weights: dict[str, Tensor] = {}

        def back(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
            # Only here is it known that no batch normalisation came after: the operation is the one with the pattern.
            if operation.name not in weights:
                weights[operation.name] = self._backward_weight(operation, self._checked(operation))
            return operation.pullback(weights[operation.name], signal, x)

        def treat(operation: Operation, inputs: tuple[Tensor, ...]) -> Tensor:
            if operation.kind != "linear":
                return gradient(operation, inputs)
            return with_backward(operation, inputs, partial(back, operation))

        return self.by_chunk(lambda x, y: propagate(model, x, y, treat, torch.sign), images, targets)

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        """What stands in the backward pass for the weight."""
        raise NotImplementedError

    def _placed(self, images: Tensor, network: nn.Module) -> Iterator[Tensor]:
        """The images of a batch where the network is, as many at a time as one pass takes."""
        parameter = next(network.parameters(), images)
        # What was made in inference mode cannot be recorded; a clone can.
        images = images.to(parameter.device) if not images.is_inference() else images.to(parameter.device).clone()
        # Small pieces stay in the cache; but each is added to sums as large as the weights.
        for part in torch.split(images, self.batch_size or max(_FEWEST_ROWS, self.rows(images))):
            yield part.to(parameter.dtype)

    def _checked(self, operation: Operation) -> Tensor:
        """The pattern of a layer, if it can be its."""
        assert self.patterns is not None
        assert operation.weight is not None
        name, weight = type(self).__name__, operation.weight
        refit = f"Patterns belong to one trained network: fit {name} to this one."
        pattern = self.patterns.get(operation.name)
        if pattern is None or pattern.shape != weight.shape:
            got = "no pattern" if pattern is None else f"a pattern {list(pattern.shape)}"
            raise NotFittedForModelError(
                f"{operation.where}: {name} has {got} for {operation.name!r} with weights {list(weight.shape)}; it was "
                f"fitted to a network with {_shapes(self.patterns)}. {refit}"
            )
        # wᵀa = 1 (0 for neurons without a pattern) ties the pattern to the weights, up to the rounding of the weights.
        pattern = pattern.to(weight.device)
        product = pattern * weight
        response, scale = product.flatten(1).sum(1), product.abs().flatten(1).sum(1)
        if bool(((response - 1).abs().minimum(response.abs()) > 1e-3 + 1e-4 * scale).any()):
            raise NotFittedForModelError(
                f"{operation.where}: its weights have changed since {name} was fitted (wᵀa is "
                f"{float(response[(response - 1).abs().argmax()]):.3g}, expected 1). {refit}"
            )
        return pattern.to(weight.dtype)


@described(
    ExplainerInfo(
        "PatternNet",
        family="Patterns",
        citation="Kindermans et al.: Learning how to explain neural networks: PatternNet and PatternAttribution. ICLR "
        "2018.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class PatternNet(_Patterns):
    """The signal that the target's logit reads, projected back to the image: the gradient with patterns for weights.

    The backward pass starts from the sign of the logit, as in the released XAI-TRIS runs; times its magnitude, the map
    of a linear network is the estimated signal S_a(x) = a y. Biases play no part in it. Max-pooling and
    ReLU take their gradient, as in the paper; so do, beyond it, average pooling and the sum of branches.

    Departure: iNNvestigate divides what flows back by its largest magnitude at each bottleneck of a convolutional
    network, so that its maps are these divided by their largest magnitude. Here nothing is scaled.

    Channels by ``"max_abs"``: the map is a signal, not a sum of contributions.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 1, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0, -1.0]]))  # cancels a distractor that both pixels have
        >>> signal, distractor = torch.tensor([1.0, -1.0, 2.0, -2.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
        >>> images = torch.stack([signal + distractor, distractor], 1).reshape(4, 1, 1, 2)
        >>> fitted = PatternNet(signal="linear").fit(model, [images])
        >>> fitted(model, images[:1], torch.tensor([0]))  # the signal is in the first pixel alone
        tensor([[[1., 0.]]])
    """

    channels: Channels = "max_abs"

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        return pattern


@described(
    ExplainerInfo(
        "PatternAttribution",
        family="Patterns",
        citation="Kindermans et al.: Learning how to explain neural networks: PatternNet and PatternAttribution. ICLR "
        "2018.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class PatternAttribution(_Patterns):
    """How much the signal in each pixel contributes to the target's logit: the gradient with w∘a for weights.

    Starts, treats other layers and departs as :class:`PatternNet` does.
    """

    def _backward_weight(self, operation: Operation, pattern: Tensor) -> Tensor:
        assert operation.weight is not None
        return pattern * operation.weight


def _in_own_precision(model: nn.Module) -> nn.Module:
    """The model, or a copy of it in the precision that it wants to be explained in."""
    own = getattr(model, "explain_dtype", None)
    current = next((p.dtype for p in model.parameters() if p.is_floating_point()), own)
    return copy.deepcopy(model).to(own) if isinstance(own, torch.dtype) and own != current else model


def _shapes(patterns: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {list(pattern.shape)}" for name, pattern in patterns.items())
