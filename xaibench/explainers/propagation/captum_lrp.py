"""Captum's layer-wise relevance propagation, as used in the XAI-TRIS runs.

Captum is imported when it is called. The numbers are Captum's, with its defaults. In addition, a network that it does
not support raises an error that names the layer, where Captum fails or silently uses a plain gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.process_settings import ignored_warnings
from xaibench.explainers.base import Attribution
from xaibench.explainers.propagation.forward_trace import OperationInterceptor, intercept_operations
from xaibench.explainers.propagation.layer_operations import REARRANGING, is_rectifier, operation_kind, tensors_in
from xaibench.network.calls import describe_layer
from xaibench.network.contract import weights_written_back
from xaibench.network.explained_output import UnsupportedModelError, network_of
from xaibench.network.lending import restore_model_state
from xaibench.registry.info import ExplainerInfo

_hidden = ignored_warnings(r"Setting (forward, )?backward hooks")

# Layers of volumes, which have the rules of the same layers of images.
_VOLUME_LAYERS = (nn.Conv3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.BatchNorm3d)
# Layers that only rearrange values, or do nothing in evaluation mode: relevance passes by the epsilon rule.
_SHAPE_LAYERS = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)

_ADVICE = (
    "lrp_epsilon and lrp_gamma also support functions, sums of branches and any elementwise activation; "
    "integrated_gradients explains any differentiable network."
)


@ExplainerInfo(
    "LRP",
    family="Relevance",
    citation="Bach et al.: On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance "
    "Propagation. PLoS ONE 10(7), 2015.",
    passes=3,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class LRP(Attribution):
    """Layer-wise relevance propagation with the epsilon rule (epsilon 1e-9) in every layer.

    As in Captum, the relevance starts at the explained output and passes as a gradient through the functional softmax
    (and the log-sum-exp of merged classes). A ``rule`` that is set on a layer (``captum.attr._utils.lrp_rules``) is
    used instead. Beyond Captum, layers of volumes have the rules of layers of images, and relevance passes unchanged
    through activations and through a module that consists of sums and products with constants, such as the
    normalization of the image.

    Captum treats modules only, so branches that are added by a function (every ResNet) raise an error here; in Captum
    itself, each branch gets the full relevance. :class:`~xaibench.explainers.LRPEpsilon` supports them.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has a layer without a rule, calls a layer with a rule twice, or
                computes something outside its layers.
        """
        from captum.attr import LRP as Method  # noqa: N811

        extra = _added_rules(model, images)
        method = Method(model)

        def attribute(x: Tensor, y: Tensor) -> Tensor:
            # Captum deletes every rule when it is done, and keeps the activations: unharmed() reverts both.
            with weights_written_back(network_of(model)), restore_model_state(model), torch.enable_grad(), _hidden:
                for module, make_rule in extra.items():
                    rule = module.rule = make_rule()
                    if hasattr(rule, "keep_input"):
                        module.register_forward_pre_hook(rule.keep_input)
                attributions: Tensor = method.attribute(x.detach().clone().requires_grad_(), target=y)
                return attributions.detach()

        return self.by_chunk(attribute, images, targets)


def _added_rules(model: nn.Module, images: Tensor) -> dict[nn.Module, Callable[[], Any]]:
    """Return the rules of layers that Captum has no rule for; raise an error if a layer cannot have one."""
    from captum.attr._core.lrp import SUPPORTED_LAYERS_WITH_RULES, SUPPORTED_NON_LINEAR_LAYERS
    from captum.attr._utils.lrp_rules import EpsilonRule

    known = (*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS, *_VOLUME_LAYERS, *_SHAPE_LAYERS)
    with intercept_operations(model, _LayerRecorder) as calls:
        calls.run(model, images[:1].detach().clone().requires_grad_())
    rules: dict[nn.Module, Callable[[], Any]] = {}
    for module, record in calls.of_layers.items():
        if hasattr(module, "rule") or type(module) in (*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS):
            continue
        if type(module) in (*_VOLUME_LAYERS, *_SHAPE_LAYERS) or record.kinds == {"move"}:
            rules[module] = EpsilonRule
        elif record.kinds <= {"affine"}:
            rules[module] = _unchanged_rule(record.where)
        else:
            names = ", ".join(sorted(kind.__name__ for kind in known))
            raise UnsupportedModelError(
                f"lrp: {record.where} has no propagation rule. Layers that have one: {names}. {_ADVICE}"
            )
    if calls.outside:
        raise UnsupportedModelError(f"lrp: {calls.outside}, but Captum has rules for layers only. {_ADVICE}")
    for module, record in calls.of_layers.items():
        if record.times > 1 and type(module) not in SUPPORTED_NON_LINEAR_LAYERS:
            raise UnsupportedModelError(
                f"lrp: {record.where} runs {record.times} times in one pass; the method needs a separate module for "
                f"each call. {_ADVICE}"
            )
    return rules


def _unchanged_rule(where: str) -> Callable[[], Any]:
    from captum.attr._utils.lrp_rules import PropagationRule

    class Unchanged(PropagationRule):  # type: ignore[misc]
        """Pass on relevance unchanged."""

        def keep_input(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            # The layer may overwrite what it gets.
            self.input = inputs[0]
            return inputs[0].clone(), *inputs[1:]

        def forward_hook(self, module: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
            if outputs.shape != self.input.shape:
                raise UnsupportedModelError(
                    f"lrp: {where} makes {list(outputs.shape)} of {list(self.input.shape)} outside of layers with a "
                    f"rule. {_ADVICE}"
                )
            # The output with the gradient of the identity, since the incoming gradient is the relevance.
            return self.input + (outputs - self.input).detach()

        def _manipulate_weights(self, module: nn.Module, inputs: object, outputs: object) -> None:
            pass

    return Unchanged


@dataclass
class _LayerRecord:
    """The operations of a layer in one forward pass."""

    where: str
    times: int = 0
    kinds: set[str] = field(default_factory=set)


class _LayerRecorder(OperationInterceptor):
    """Record the operations of each layer without submodules, and the first operation outside of them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.outside = self.head = ""
        self.of_layers: dict[nn.Module, _LayerRecord] = {}
        for name, module in network.named_modules():
            if not any(True for _ in module.children()):
                self.of_layers[module] = _LayerRecord(describe_layer(name, module))

    def leave(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        super().leave(name, module, inputs, output)
        if module in self.of_layers:
            self.of_layers[module].times += 1

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        result = func(*args, **kwargs)
        # Relevance does not pass through sizes or comparisons, and a ReLU does not change the relevance in Captum.
        if any(x.requires_grad for x in tensors_in(result)) and not is_rectifier(called, args, kwargs):
            kind = "move" if called in REARRANGING else operation_kind(called, args, kwargs) or called
            layer = self.of_layers.get(self.running[-1][1])
            if layer is not None:
                layer.kinds.add(kind)
                refused = f"{self.where()} comes after the logsumexp of {self.head}" if self.head else ""
            else:
                self.head = self.where() if called == "logsumexp" else self.head
                refused = "" if self.head or kind == "move" else f"{self.where()} calls {called} itself"
            self.outside = self.outside or refused
        return result
