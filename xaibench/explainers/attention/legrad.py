"""LeGrad: to which patches more attention, in any layer, would raise the logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.attention.attention_calls import attending
from xaibench.explainers.attention.attention_maps import AttentionGradients, check_same_tokens
from xaibench.explainers.attention.token_places import TokenLayout, token_layout
from xaibench.explainers.shared.counted_passes import GRADIENT
from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.interface import UnsupportedModelError


@described(
    ExplainerInfo(
        "LeGrad",
        family="Attention",
        citation="Bousselham et al.: LeGrad: An Explainability Method for Vision Transformers via Feature Formation "
        "Sensitivity. arXiv:2404.03214, 2024.",
    )
)
@dataclass(frozen=True, kw_only=True)
class LeGrad(AttentionGradients):
    """The positive gradient of each layer's own logit by its attention, summed over the layers.

    The tokens of layer l, their mean in the place of each, go straight to what follows the last layer (its
    normalisation and head), which gives y_l; the map is the sum over l of the mean over heads and queries of
    max(dy_l/dA_l, 0), at the patches. Never negative. It looks at the gradient alone: a patch that nobody attends to
    counts too, if attention to it would help. The authors' scaling of each map to [0, 1] is left to the caller;
    so scaled, it agrees with their package (legrad_torch 1.1, float32) to 10⁻⁴.

    Attributes:
        n_layers: How many of the last layers are summed; ``None``: all. The authors' package takes two unless it is told.
    """

    n_layers: int | None = None
    name: ClassVar[str] = "legrad"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_layers is not None:
            check_count("n_layers", self.n_layers, owner="LeGrad")

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Passes for these images, of which the network's layers decide; looks at the first.

        Args:
            model: Maps images to ``[N, K]``.
            images: ``[N, C, H, W]``.

        Returns:
            One for the tokens, and a gradient for each layer, through what is left of the network.
        """
        layers = len(token_layout(self.name, model, images[:1]).attentions)
        return len(images) * (1 + GRADIENT * min(layers, self.n_layers or layers))

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """The sum over the layers.

        Args:
            model: Maps images to ``[N, K]``.
            layout: Where the tokens lie.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n, h, w]``.

        Raises:
            UnsupportedModelError: If the layers do not all attend over the same tokens, as in Swin, or are not blocks
                from tokens to tokens.
        """
        check_same_tokens(self.name, layout)
        blocks = _blocks(self.name, model, layout)
        outputs: list[Tensor] = []
        handles = [block.register_forward_hook(lambda *call: outputs.append(call[-1])) for block in blocks]
        try:
            with attending(model) as seen, torch.enable_grad():
                model(images.detach().requires_grad_())
        finally:
            for handle in handles:
                handle.remove()
        total = torch.zeros(len(images), layout.layers[0].count, dtype=images.dtype, device=images.device)
        for attention, tokens in list(zip(seen, outputs, strict=True))[-(self.n_layers or len(blocks)) :]:
            mean = tokens.mean(1, keepdim=True).expand_as(tokens)
            with torch.enable_grad():
                logits = _ended(model, blocks, mean, images).gather(1, targets[:, None])
            (gradient,) = torch.autograd.grad(logits.sum(), attention.weights, retain_graph=True)
            total = total + gradient.clamp(min=0).mean((1, 2))
        return layout.layers[0].on_grid(total)


def _blocks(owner: str, model: nn.Module, layout: TokenLayout) -> list[nn.Module]:
    """The layer around each attention that takes tokens and returns as many."""
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
                f"{owner}: the attention {name!r} of {type(network).__name__} is in no block of its own. Expected a "
                "module for each layer that takes tokens [N, T, D] and returns as many, to end the network after it. "
                "Use gradient_rollout or attention_x_gradient."
            )
        # The whole of a layer, not a part of it; around the only attention everything fits that takes tokens.
        found.append(network.get_submodule(alone[0] if len(names) > 1 else alone[-1]))
    return found


def _shape(x: object) -> tuple[int, ...]:
    return tuple(x.shape) if isinstance(x, Tensor) else ()


def _ended(model: nn.Module, blocks: list[nn.Module], tokens: Tensor, images: Tensor) -> Tensor:
    """What the network returns when these tokens come out of its last block, whatever goes into the first."""
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
