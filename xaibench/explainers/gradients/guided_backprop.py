"""Gradients with modified rules for ReLU: Guided Backpropagation, Deconvolution, Guided Grad-CAM.

They agree with the methods of the same name in Captum (tested), but also treat ReLUs that are called as functions,
ReLU6 and smooth variants (GELU, SiLU, Mish, Hardswish). Linear layers, normalizations, poolings, sums and products of
branches and attention pass on their gradient. Any other operation could be an activation without its rule, so it raises
an error that names its layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.explainers.base import CONVOLUTIONS, Attribution, spatial_axes
from xaibench.explainers.propagation.forward_trace import OperationInterceptor, intercept_operations
from xaibench.explainers.propagation.layer_operations import (
    GRADIENT_PASSING,
    Operation,
    is_attention_softmax,
    tensors_in,
)
from xaibench.explainers.propagation.layer_walk import with_backward
from xaibench.explainers.shared.layers import (
    Layer,
    activations_and_gradients,
    check_sees_whole_image,
    find_layer,
    layer_name,
)
from xaibench.explainers.shared.tokens import record_attention
from xaibench.network.explained_output import UnsupportedModelError, run_layers
from xaibench.registry.info import ExplainerInfo

#: The backward rule of a ReLU, from the backward signal and its input.
_BackwardRule: TypeAlias = Callable[[Operation, Tensor, Tensor], tuple[Tensor, ...]]


@ExplainerInfo(
    "Guided Backprop",
    family="Gradients with rules for ReLUs",
    citation="Springenberg et al.: Striving for Simplicity: The All Convolutional Net. ICLR workshop 2015.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class GuidedBackprop(Attribution):
    """The gradient, of which each active ReLU passes on the positive part only.

    Beyond the paper, a ReLU6 is active between 0 and 6, where its derivative is one. GELU, SiLU, Mish and Hardswish are
    active where their input is positive, with their own derivative. A network without these activations gets its plain
    gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation that is not a variant of ReLU.
        """
        attribute = partial(_rectified_gradient, "guided_backprop", _guided_rule, model)
        return self.by_chunk(attribute, images, targets)


@ExplainerInfo(
    "Deconvolution",
    family="Gradients with rules for ReLUs",
    citation="Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class Deconvolution(Attribution):
    """The gradient, in which each ReLU applies a ReLU to the backward signal instead of its derivative.

    Beyond the paper, ReLU6, GELU, SiLU, Mish and Hardswish are treated like ReLU, since their bound or curvature has no
    meaning for the backward signal. A network without these activations gets its plain gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation that is not a variant of ReLU.
        """
        attribute = partial(_rectified_gradient, "deconvolution", _deconvolution_rule, model)
        return self.by_chunk(attribute, images, targets)


@ExplainerInfo(
    "Guided Grad-CAM",
    family="Gradients with rules for ReLUs",
    needs_convolution=True,
    citation="Selvaraju et al.: Grad-CAM: Visual Explanations from Deep Networks. ICCV 2017.",
    passes=4,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class GuidedGradCAM(Attribution):
    """Guided Backpropagation times Grad-CAM of a convolution, resized to the image as in Captum.

    That is ``mode="nearest"`` of :func:`torch.nn.functional.interpolate`.

    Attributes:
        layer: The convolution: its name in ``model.named_modules()``, or the module itself. ``None``: the last
            convolution that is called; for a transformer, the tokens that :class:`~xaibench.explainers.GradCAM` uses.
    """

    layer: str | nn.Module | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has no convolution, or an activation that is not a variant of ReLU.
            ValueError: If there is no ``layer`` of that name, or its output is not a feature map.
        """
        layer = self._find_layer(model, images)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            guided = _rectified_gradient("guided_gradcam", _guided_rule, model, x, y)
            features, gradients = activations_and_gradients("guided_gradcam", model, layer, x, y)
            cam = (gradients.mean(spatial_axes(features), keepdim=True) * features).sum(1, keepdim=True).relu()
            return guided * nn.functional.interpolate(cam, x.shape[2:], mode="nearest")

        return self.by_chunk(attribute, images, targets)

    def _find_layer(self, model: nn.Module, images: Tensor) -> Layer:
        check_sees_whole_image("guided_gradcam", model)
        with record_attention(model) as seen:
            runs = run_layers(model, images)
        runs = [run for run in runs if isinstance(run.output, Tensor) and run.output.ndim == images.ndim]
        if seen:
            return find_layer("guided_gradcam", model, images, self.layer)
        if self.layer is None:
            convolutions = [run for run in runs if isinstance(run.module, CONVOLUTIONS)]
            if not convolutions:
                raise UnsupportedModelError(
                    "guided_gradcam: the network calls no nn.Conv2d or nn.Conv3d. Use guided_backprop for networks "
                    "without convolution, or name a layer with image-shaped output: layer='...'."
                )
            return Layer(convolutions[-1].name, convolutions[-1].module)
        wanted = self.layer if isinstance(self.layer, str) else layer_name("guided_gradcam", model, self.layer)
        for run in runs:
            if run.name == wanted:
                return Layer(run.name, run.module)
        known = ", ".join(repr(name) for name in dict.fromkeys(run.name for run in runs) if name) or "none"
        raise ValueError(f"guided_gradcam(layer={self.layer!r}): expected a layer with output [N, C, H, W]: {known}.")


def _guided_rule(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    # Below zero, the derivative of ReLU is zero, but that of its smooth variants is not.
    return tuple(back.relu() * (x > 0) for back in operation.pullback(None, signal, x))


def _deconvolution_rule(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return (signal.relu(),)


def _rectified_gradient(owner: str, rule: _BackwardRule, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient ``[N, C, H, W]`` of the target output, with the given rule for every ReLU."""
    with intercept_operations(model, lambda network: _RectifierInterceptor(network, owner, rule)) as interceptor:
        images = images.detach().clone().requires_grad_()
        outputs = interceptor.run(model, images)
        return torch.autograd.grad(outputs.gather(1, targets[:, None]).sum(), images)[0]


class _RectifierInterceptor(OperationInterceptor):
    """Replace the backward pass of every ReLU, and raise an error for other activations."""

    def __init__(self, network: nn.Module, owner: str, rule: _BackwardRule) -> None:
        super().__init__(network)
        self.owner, self.rule = owner, rule

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        operation = self.operation(func, called, args, kwargs)
        activation = operation is not None and operation.kind == "activation"
        if activation and operation is not None and (operation.rectifies or operation.smooth):
            return with_backward(operation, carriers, partial(self.rule, operation))
        passes = (
            operation is not None
            or called in GRADIENT_PASSING
            or (called in ("max", "min") and len(carriers) == 1)  # the largest along an axis, as max-pooling
            or is_attention_softmax(called, args, kwargs)
        )
        result = func(*args, **kwargs)
        depends = any(x.requires_grad for x in tensors_in(result))
        if activation or (depends and not passes) or _is_gate(called, args, carriers):
            raise UnsupportedModelError(
                f"{self.owner}: {self.where()} is not a ReLU (it calls {called}); the method supports ReLU, "
                "ReLU6, GELU, SiLU, Mish and Hardswish. saliency, smoothgrad and integrated_gradients explain networks "
                "with any activation."
            )
        return result


def _is_gate(called: str, args: tuple[Any, ...], carriers: tuple[Tensor, ...]) -> bool:
    """Return whether a call is a ReLU made of a mask: x * (x > 0), or x[x < 0] = 0."""
    if called == "__setitem__":
        return any(x.dtype == torch.bool for x in tensors_in(args[1]))
    if called.strip("_") not in ("mul", "rmul", "imul", "multiply"):
        return False
    constants = [x for x in args if isinstance(x, Tensor) and not x.requires_grad and x.shape == carriers[0].shape]
    return any(bool(((x == 0) | (x == 1)).all()) for x in constants)
