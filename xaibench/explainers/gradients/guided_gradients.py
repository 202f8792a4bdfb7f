"""Gradients that ReLUs let through by rules of their own: Guided Backpropagation, Deconvolution, Guided Grad-CAM.

They agree with Captum's of the same name (tested), but see every ReLU: also one that is called as a function, and
ReLU6, which is cut off at 6, and its smooth relatives (GELU, SiLU, Mish, Hardswish). Another activation is an error
that names its layer; anything else passes its gradient, attention too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.attention_calls import attending
from xaibench.explainers.backward.forward_watch import Watch, watching
from xaibench.explainers.backward.layer_operations import NORMALISING, Operation, weighs_tokens
from xaibench.explainers.backward.layer_walk import with_backward
from xaibench.explainers.shared.captured_maps import Layer, activations_and_gradients
from xaibench.explainers.shared.interface import Attribution, UnsupportedModelError
from xaibench.explainers.shared.layer_activations import find_layer
from xaibench.explainers.shared.layer_runs import check_sees_whole, layer_name, run_layers

#: What a ReLU passes back, from what comes back and its input.
_Rule: TypeAlias = Callable[[Operation, Tensor, Tensor], tuple[Tensor, ...]]


@described(
    ExplainerInfo(
        "Guided Backprop",
        family="Gradients with rules for ReLUs",
        citation="Springenberg et al.: Striving for Simplicity: The All Convolutional Net. ICLR workshop 2015.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class GuidedBackprop(Attribution):
    """The gradient, with only its positive part passed back through each ReLU that was active.

    Beyond the paper, a ReLU6 is active between 0 and 6, where its derivative is one, and GELU, SiLU, Mish and Hardswish
    where their input is positive, with the derivative they have there. A network without any gets its gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation that is no relative of ReLU.
        """
        attribute = partial(_rectified_gradient, "guided_backprop", _guided, model)
        return self.by_chunk(attribute, images, targets)


@described(
    ExplainerInfo(
        "Deconvolution",
        family="Gradients with rules for ReLUs",
        citation="Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class Deconvolution(Attribution):
    """The gradient, with each ReLU replaced, on the way back, by a ReLU of what comes back.

    Beyond the paper, ReLU6, GELU, SiLU, Mish and Hardswish are treated as a ReLU: what comes back has no scale for
    which 6, or the bend of the others, would mean anything. A network without any gets its gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation other than ReLU and ReLU6.
        """
        attribute = partial(_rectified_gradient, "deconvolution", _deconvolved, model)
        return self.by_chunk(attribute, images, targets)


@described(
    ExplainerInfo(
        "Guided Grad-CAM",
        family="Gradients with rules for ReLUs",
        needs_convolution=True,
        citation="Selvaraju et al.: Grad-CAM: Visual Explanations from Deep Networks. ICCV 2017.",
        passes=4,
    )
)
@dataclass(frozen=True, kw_only=True)
class GuidedGradCAM(Attribution):
    """Guided Backpropagation times Grad-CAM of a convolution, which is resized to the image as Captum does.

    That is ``mode="nearest"`` of :func:`torch.nn.functional.interpolate`.

    Attributes:
        layer: The convolution: its name in ``model.named_modules()``, or the module itself; ``None``: the last
            ``nn.Conv2d`` that runs, and in a transformer the tokens that :class:`~xaibench.explainers.GradCAM` takes.
    """

    layer: str | nn.Module | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has no convolution or an activation other than ReLU and ReLU6.
            ValueError: If it has no ``layer`` of that name, or one whose output is no image.
        """
        layer = self._choose(model, images)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            guided = _rectified_gradient("guided_gradcam", _guided, model, x, y)
            features, gradients = activations_and_gradients("guided_gradcam", model, layer, x, y)
            cam = (gradients.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu()
            return guided * nn.functional.interpolate(cam, x.shape[2:], mode="nearest")

        return self.by_chunk(attribute, images, targets)

    def _choose(self, model: nn.Module, images: Tensor) -> Layer:
        check_sees_whole("guided_gradcam", model)
        with attending(model) as seen:
            runs = [run for run in run_layers(model, images) if isinstance(run.output, Tensor) and run.output.ndim == 4]
        if seen:
            return find_layer("guided_gradcam", model, images, self.layer)
        if self.layer is None:
            convolutions = [run for run in runs if isinstance(run.module, nn.Conv2d)]
            if not convolutions:
                raise UnsupportedModelError(
                    "guided_gradcam: the network runs no nn.Conv2d. Use guided_backprop for networks without "
                    "convolution, or name a layer with image-shaped output: layer='...'."
                )
            return Layer(convolutions[-1].name, convolutions[-1].module)
        wanted = self.layer if isinstance(self.layer, str) else layer_name("guided_gradcam", model, self.layer)
        for run in runs:
            if run.name == wanted:
                return Layer(run.name, run.module)
        known = ", ".join(repr(name) for name in dict.fromkeys(run.name for run in runs) if name) or "none"
        raise ValueError(f"guided_gradcam(layer={self.layer!r}): expected a layer with output [N, C, H, W]: {known}.")


def _guided(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    # Below zero a ReLU has no derivative to pass; its smooth relatives have one, of both signs.
    return tuple(back.relu() * (x > 0) for back in operation.pullback(None, signal, x))


def _deconvolved(operation: Operation, signal: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    return (signal.relu(),)


def _rectified_gradient(owner: str, rule: _Rule, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """The gradient ``[N, C, H, W]`` of the target's output, with that rule in every ReLU."""
    with watching(model, lambda network: _Rectifiers(network, owner, rule)) as watch:
        images = images.detach().clone().requires_grad_()
        outputs = watch.run(model, images)
        return torch.autograd.grad(outputs.gather(1, targets[:, None]).sum(), images)[0]


class _Rectifiers(Watch):
    """Gives every ReLU a backward pass of its own, and refuses other activations."""

    def __init__(self, network: nn.Module, owner: str, rule: _Rule) -> None:
        super().__init__(network)
        self.owner, self.rule = owner, rule

    def see(
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
        if activation or (called in NORMALISING and not weighs_tokens(called, args, kwargs)):
            raise UnsupportedModelError(
                f"{self.owner}: {self.where()} is no ReLU (it calls {called}); the method is defined for ReLU, "
                "ReLU6, GELU, SiLU, Mish and Hardswish. saliency, smoothgrad and integrated_gradients explain networks "
                "with any activation."
            )
        return func(*args, **kwargs)
