"""LeGrad: the patches to which more attention, in any layer, would increase the logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.attention.attention_maps import AttentionGradients, check_same_tokens
from xaibench.explainers.shared.passes import GRADIENT
from xaibench.explainers.shared.tokens import TokenLayout, record_attention, token_layout
from xaibench.network.calls import record_layer_runs
from xaibench.network.explained_output import UnsupportedModelError, network_of


@ExplainerInfo(
    "LeGrad",
    family="Attention",
    citation="Bousselham et al.: LeGrad: An Explainability Method for Vision Transformers via Feature Formation "
    "Sensitivity. arXiv:2404.03214, 2024.",
)
@dataclass(frozen=True, kw_only=True)
class LeGrad(AttentionGradients):
    """The positive gradient of each layer's own logit with respect to its attention, summed over the layers.

    For layer l, the mean of its output tokens replaces each of them, and the rest of the network after the last layer
    (normalization and head) computes the logit y_l. The map is the sum over l of the mean over heads and queries of
    max(dy_l/dA_l, 0), at the patches. Never negative. Only the gradient is used: a patch without attention counts if
    more attention to it would increase the logit. The authors scale each map to [0, 1], which is left to the caller.
    Scaled in this way, the map agrees with their package (legrad_torch 1.1, float32) to 10⁻⁴.

    Attributes:
        n_layers: Number of last layers that are summed; ``None``: all. The default of the authors' package is two.
    """

    n_layers: int | None = None
    name: ClassVar[str] = "legrad"

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of passes, which depends on the layers of the network.

        Args:
            model: Maps images to ``[N, K]``.
            images: ``[N, C, H, W]``; the model is called with the first.

        Returns:
            One for the tokens, and one gradient per layer through the rest of the network.
        """
        layers = len(token_layout(self.name, model, images[:1]).attentions)
        return len(images) * (1 + GRADIENT * min(layers, self.n_layers or layers))

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the values of the patches ``[n, h, w]``.

        Raises:
            UnsupportedModelError: If the layers do not all attend over the same tokens, as in Swin, or are not blocks
                that map tokens to tokens.
        """
        check_same_tokens(self.name, layout)
        blocks = _find_blocks(self.name, model, layout)
        modules = [("", block) for block in blocks]
        with record_layer_runs(modules) as runs, record_attention(model) as seen, torch.enable_grad():
            model(images.detach().requires_grad_())
        total = torch.zeros(len(images), layout.layers[0].count, dtype=images.dtype, device=images.device)
        outputs = [cast(Tensor, run.output) for run in runs]
        for attention, tokens in list(zip(seen, outputs, strict=True))[-(self.n_layers or len(blocks)) :]:
            mean = tokens.mean(1, keepdim=True).expand_as(tokens)
            with torch.enable_grad():
                logits = _run_from_last_block(model, blocks, mean, images).gather(1, targets[:, None])
            (gradient,) = torch.autograd.grad(logits.sum(), attention.weights, retain_graph=True)
            total = total + gradient.clamp(min=0).mean((1, 2))
        return layout.layers[0].on_grid(total)


def _find_blocks(owner: str, model: nn.Module, layout: TokenLayout) -> list[nn.Module]:
    """Return the transformer block of each attention: the module around it that maps tokens to the same number."""
    network = network_of(model)
    names = [attention.name for attention in layout.attentions]
    tokens = {
        run.name
        for run in layout.runs
        if run.inputs and _shape(run.inputs[0]) == _shape(run.output) and len(_shape(run.output)) == 3
    }
    found = []
    for name in names:
        parts = name.split(".")
        around = [".".join(parts[:i]) for i in range(1, len(parts))]
        alone = [path for path in around if path in tokens and sum(f"{n}.".startswith(f"{path}.") for n in names) == 1]
        if not alone:
            raise UnsupportedModelError(
                f"{owner}: the attention {name!r} of {type(network).__name__} is not in a block of its own. Expected "
                "a module per layer that takes tokens [N, T, D] and returns as many, so that the network can be ended "
                "after it. "
                "Use gradient_rollout or attention_x_gradient."
            )
        # The outermost module is the whole layer. With a single attention, the outermost could be the whole network, so
        # the innermost is taken.
        found.append(network.get_submodule(alone[0] if len(names) > 1 else alone[-1]))
    return found


def _shape(x: object) -> tuple[int, ...]:
    return tuple(x.shape) if isinstance(x, Tensor) else ()


def _run_from_last_block(model: nn.Module, blocks: list[nn.Module], tokens: Tensor, images: Tensor) -> Tensor:
    """Return the output of the network with ``tokens`` as the output of its last block."""
    before = [dict(vars(block)) for block in blocks]
    try:
        for block in blocks:
            block.forward = lambda x, *_, **__: x
        blocks[-1].forward = lambda *_, **__: tokens
        outputs: Tensor = model(images)
        return outputs
    finally:
        for block, saved in zip(blocks, before, strict=True):
            vars(block).clear()
            vars(block).update(saved)
