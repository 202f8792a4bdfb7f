"""Captum's explainers that hook into the layers: DeepLift, Deep SHAP, LRP, Guided Backpropagation and its relatives.

Captum is imported when one of them is called. The numbers are Captum's, with its defaults; what is added is that a
layer that the method cannot treat is an error that names it, where Captum partly goes on with a plain gradient.

What no check can see: an activation called as a function (``torch.relu``) is no layer, so Guided Backpropagation,
Deconvolution and DeepLift take its plain gradient. Use ``nn.ReLU`` modules, each of them once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules import activation

from xaibench.explainers.base import Attribution, UnsupportedModelError
from xaibench.explainers.gradient import prepare_baselines
from xaibench.explainers.guard import unharmed
from xaibench.explainers.output import ExplainedOutput
from xaibench.types import ExplainerInfo, described

# Layers that only move numbers, or do nothing in evaluation mode: relevance goes through them by the epsilon rule.
_SHAPE_LAYERS = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass(frozen=True)
class _Layer:
    name: str
    module: nn.Module
    out_dims: int

    def __str__(self) -> str:
        return f"layer {self.name!r} ({type(self.module).__name__})" if self.name else type(self.module).__name__


@described(
    ExplainerInfo(
        "Guided Backprop",
        citation="Springenberg et al.: Striving for Simplicity: The All Convolutional Net. ICLR workshop 2015.",
    )
)
@dataclass(frozen=True, kw_only=True)
class GuidedBackprop(Attribution):
    """The gradient, with only its positive part passed back through each ReLU that was active.

    A network without ReLU gets its gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation other than ``nn.ReLU``.
        """
        from captum.attr import GuidedBackprop as Method

        _require_relu("guided_backprop", _run_layers(model, images))
        method = Method(model)
        return self.by_chunk(lambda x, y: _attribute(method.attribute, x, target=y), images, targets)


@described(
    ExplainerInfo(
        "Deconvolution", citation="Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014."
    )
)
@dataclass(frozen=True, kw_only=True)
class Deconvolution(Attribution):
    """The gradient, with each ReLU replaced, on the way back, by a ReLU of what comes back.

    A network without ReLU gets its gradient.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation other than ``nn.ReLU``.
        """
        from captum.attr import Deconvolution as Method

        _require_relu("deconvolution", _run_layers(model, images))
        method = Method(model)
        return self.by_chunk(lambda x, y: _attribute(method.attribute, x, target=y), images, targets)


@described(
    ExplainerInfo(
        "Guided Grad-CAM",
        needs_convolution=True,
        citation="Selvaraju et al.: Grad-CAM: Visual Explanations from Deep Networks. ICCV 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class GuidedGradCAM(Attribution):
    """Guided Backpropagation times Grad-CAM of a convolution, which is resized to the image (nearest neighbour).

    Attributes:
        layer: Name of the convolution, as in ``model.named_modules()``; ``None``: the last ``nn.Conv2d`` that runs.
    """

    layer: str | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has no convolution or has an activation other than ``nn.ReLU``.
            ValueError: If it has no ``layer`` of that name, or one whose output is no image.
        """
        from captum.attr import GuidedGradCam as Method

        layers = _run_layers(model, images, every=self.layer is not None)
        _require_relu("guided_gradcam", layers)
        method = Method(model, self._choose(layers))
        return self.by_chunk(lambda x, y: _attribute(method.attribute, x, target=y), images, targets)

    def _choose(self, layers: list[_Layer]) -> nn.Module:
        if self.layer is None:
            convolutions = [layer.module for layer in layers if isinstance(layer.module, nn.Conv2d)]
            if not convolutions:
                raise UnsupportedModelError(
                    "guided_gradcam: the network runs no nn.Conv2d. Use guided_backprop for networks without "
                    "convolution, or name a layer with image-shaped output: layer='...'."
                )
            return convolutions[-1]
        for layer in layers:
            if layer.name == self.layer and layer.out_dims == 4:
                return layer.module
        known = ", ".join(repr(layer.name) for layer in layers if layer.out_dims == 4) or "none"
        raise ValueError(f"guided_gradcam(layer={self.layer!r}): expected a layer with output [N, C, H, W]: {known}.")


@described(
    ExplainerInfo(
        "DeepLift",
        citation="Shrikumar, Greenside, Kundaje: Learning Important Features Through Propagating Activation "
        "Differences. ICML 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class DeepLift(Attribution):
    """DeepLIFT with the rescale rule: differences from the baseline, passed back through the layers.

    The head (softmax, margin) is functional and passes back its plain gradient, as in the XAI-TRIS runs.

    Attributes:
        baseline: Value of every pixel of the reference image.
    """

    baseline: float = 0.0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation without a rule, or runs one twice.
        """
        from captum.attr import DeepLift as Method

        _require_rescale("deeplift", _run_layers(model, images))
        method = Method(model)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            return _attribute(method.attribute, x, baselines=self.baseline, target=y)

        return self.by_chunk(attribute, images, targets, rows_per_image=2)


@described(
    ExplainerInfo(
        "Deep SHAP",
        citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class DeepSHAP(Attribution):
    """The mean of DeepLIFT over baselines (Captum's ``DeepLiftShap``).

    With the default, zeros as in the XAI-TRIS runs, the maps are DeepLIFT's.

    Attributes:
        baselines: ``[B, C, H, W]``; ``None``: zeros.
    """

    baselines: Tensor | None = field(default=None, repr=False, compare=False)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has an activation without a rule, or runs one twice.
        """
        from captum.attr import DeepLiftShap as Method

        _require_rescale("deep_shap", _run_layers(model, images))
        method = Method(model)
        baselines = prepare_baselines(self.baselines, images)
        if len(baselines) == 1:
            baselines = baselines.repeat(2, 1, 1, 1)  # Captum insists on more than one; the mean is the same

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            return _attribute(method.attribute, x, baselines=baselines, target=y)

        return self.by_chunk(attribute, images, targets, rows_per_image=2 * len(baselines))


@described(
    ExplainerInfo(
        "LRP",
        citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
        "Propagation. PLoS ONE 10(7), 2015.",
    )
)
@dataclass(frozen=True, kw_only=True)
class LRP(Attribution):
    """Layer-wise relevance propagation with the epsilon rule (epsilon 1e-9) in every layer.

    As in Captum: the relevance starts from the explained output; through the functional softmax it goes back as a
    gradient. A ``rule`` that is set on a layer (``captum.attr._utils.lrp_rules``) is used instead.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has a layer without a rule, or runs one with a rule twice.
        """
        from captum.attr import LRP as Method  # noqa: N811
        from captum.attr._core.lrp import SUPPORTED_LAYERS_WITH_RULES, SUPPORTED_NON_LINEAR_LAYERS
        from captum.attr._utils.lrp_rules import EpsilonRule

        layers = _run_layers(model, images)
        treated = (*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS, *_SHAPE_LAYERS)
        for layer in layers:
            if type(layer.module) not in treated and not hasattr(layer.module, "rule"):
                names = ", ".join(sorted(kind.__name__ for kind in treated))
                raise UnsupportedModelError(
                    f"lrp: {layer} has no propagation rule. Layers that have one: {names}. "
                    "integrated_gradients explains any differentiable network."
                )
        _require_once("lrp", [layer for layer in layers if type(layer.module) not in SUPPORTED_NON_LINEAR_LAYERS])
        method = Method(model)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            # Captum deletes every rule when it is done, and leaves the activations: the guard takes care of both.
            with unharmed(model):
                for module in model.modules():
                    if type(module) in _SHAPE_LAYERS and not hasattr(module, "rule"):
                        module.rule = EpsilonRule()
                return _attribute(method.attribute, x, target=y)

        return self.by_chunk(attribute, images, targets)


def _run_layers(model: nn.Module, images: Tensor, *, every: bool = False) -> list[_Layer]:
    """The layers in the order in which they run for one image, as often as they run; ``every``: containers too."""
    network = model.network if isinstance(model, ExplainedOutput) else model
    ran: list[_Layer] = []

    def record(name: str) -> Callable[[nn.Module, object, object], None]:
        return lambda module, _, out: ran.append(_Layer(name, module, out.ndim if isinstance(out, Tensor) else 0))

    handles = [
        module.register_forward_hook(record(name))
        for name, module in network.named_modules()
        if every or not any(True for _ in module.children())
    ]
    try:
        with torch.no_grad():
            model(images[:1])
    finally:
        for handle in handles:
            handle.remove()
    return ran


def _require_relu(explainer: str, layers: list[_Layer]) -> None:
    for layer in layers:
        if _is_activation(layer.module) and not isinstance(layer.module, nn.ReLU):
            raise UnsupportedModelError(
                f"{explainer}: {layer} is no nn.ReLU, the only activation for which the method is defined. "
                "saliency and integrated_gradients explain networks with any activation."
            )


def _require_rescale(explainer: str, layers: list[_Layer]) -> None:
    from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR

    for layer in layers:
        if _is_activation(layer.module) and type(layer.module) not in SUPPORTED_NON_LINEAR:
            names = ", ".join(sorted(kind.__name__ for kind in SUPPORTED_NON_LINEAR))
            raise UnsupportedModelError(
                f"{explainer}: {layer} has no rescale rule. Layers that have one: {names}. "
                "integrated_gradients and gradient_shap explain networks with any activation."
            )
    _require_once(explainer, [layer for layer in layers if type(layer.module) in SUPPORTED_NON_LINEAR])


def _require_once(explainer: str, layers: list[_Layer]) -> None:
    counts = Counter(layer.module for layer in layers)
    for layer in layers:
        if counts[layer.module] > 1:
            raise UnsupportedModelError(
                f"{explainer}: {layer} runs {counts[layer.module]} times in one pass; the method needs a module of its "
                "own for each use. Build the network with one nn.ReLU() for each place."
            )


def _is_activation(module: nn.Module) -> bool:
    return type(module).__module__ == activation.__name__


def _attribute(method: Callable[..., Tensor], images: Tensor, **arguments: object) -> Tensor:
    """One call of Captum, without its notes about hooks, which are removed again."""
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.filterwarnings("ignore", message=r"Setting (forward, )?backward hooks", category=UserWarning)
        return method(images.detach().clone().requires_grad_(), **arguments).detach()
