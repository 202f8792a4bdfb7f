"""Maps made of attention and its gradient: rollout, gradient-weighted rollout, attention × gradient, LeGrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import CheckedParameters, chunks
from xaibench.explainers.shared.layers import Resize, forward_rows, resize_maps
from xaibench.explainers.shared.passes import GRADIENT
from xaibench.explainers.shared.tokens import TokenLayout, Tokens, attention_gradients, record_attention, token_layout
from xaibench.network.calls import record_layer_runs
from xaibench.network.explained_output import UnsupportedModelError, network_of
from xaibench.registry.info import ExplainerInfo


@dataclass(frozen=True, kw_only=True)
class AttentionGradients(CheckedParameters):
    """Base class of explainers that compute one value per patch from the attention and the gradient with respect to it.

    Attributes:
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (without aligned corners),
            ``"nearest"``, or ``None``: one value per patch.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    resize: Resize | None = "bilinear"
    batch_size: int | None = None
    #: The explained output by default.
    explains: ClassVar[Output] = "logit"
    #: The name of the explainer, for error messages.
    name: ClassVar[str]

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the grid of patches if ``resize`` is ``None``.

        Raises:
            UnsupportedModelError: If the network has no attention, or the method does not support its tokens.
        """
        layout = token_layout(self.name, model, images)
        rows = forward_rows(images, self.batch_size)
        parts = [self.on_patches(model, layout, x, y) for x, y in chunks(rows, images, targets)]
        return resize_maps(torch.cat(parts).to(images.dtype), tuple(images.shape[2:]), self.resize)

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the map before it is resized.

        Args:
            model: Maps images to ``[N, K]``.
            layout: The layout of the tokens.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n, h, w]``.
        """
        raise NotImplementedError


def check_same_tokens(owner: str, layout: TokenLayout) -> None:
    """Require that every layer attends over the same tokens, without windows.

    Args:
        owner: The explainer.
        layout: The layout of the tokens.

    Raises:
        UnsupportedModelError: If a layer attends within windows, or over other tokens.
    """
    count = layout.layers[0].count
    for tokens, attention in zip(layout.layers, layout.attentions, strict=True):
        shape = tuple(attention.weights.shape[-2:])
        if len(tokens.places) > 1 or shape != (count, count):
            windows = f" in {len(tokens.places)} windows" if len(tokens.places) > 1 else ""
            raise UnsupportedModelError(
                f"{owner}: layer {attention.name!r} attends over {shape} tokens{windows}; the method is defined for "
                "self-attention over the same tokens in every layer, as in ViT and DeiT. Use attention_x_gradient, "
                "libragrad or gradcam."
            )


@ExplainerInfo(
    "Attention Rollout",
    family="Attention",
    needs_gradient=False,
    citation="Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020.",
    revision=2,
    passes=1,
)
@dataclass(frozen=True, kw_only=True)
class AttentionRollout(CheckedParameters):
    """The product over the layers of (A + I) / 2, with A the attention averaged over the heads (section 3).

    The map is the row of the token that the head of the network reads, at the patches. If it reads several tokens (all
    patches, averaged, or a class and a distillation token), the map is the mean of their rows. Never negative, and
    independent of the target class.

    Beyond the paper, in a transformer with windows (Swin), A is zero between tokens of different windows. Where patches
    are merged, the mean of their rows is taken.

    Attributes:
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (without aligned corners),
            ``"nearest"``, or ``None``: one value per patch.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    resize: Resize | None = "bilinear"
    batch_size: int | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the grid of patches without ``resize``; targets are ignored.

        Raises:
            UnsupportedModelError: If the network has no attention, or its tokens cannot be located in the image.
        """
        layout = token_layout("attention_rollout", model, images)
        before = layout.layers[0]
        for tokens, attention in zip(layout.layers, layout.attentions, strict=True):
            shape = tuple(attention.weights.shape[-2:])
            merged = before.extra == tokens.extra == 0 and all(
                a >= b for a, b in zip(before.grid, tokens.grid, strict=True)
            )
            if shape[0] != shape[1] or (tokens.count != before.count and not merged):
                raise UnsupportedModelError(
                    f"attention_rollout: the attention of layer {attention.name!r} is over {shape} of {tokens.count} "
                    f"tokens, that before over {before.count}; expected self-attention over the same tokens in every "
                    "layer, or over patches that are merged. Use gradcam, or rise."
                )
            before = tokens
        parts = [_rollout(model, layout, x) for (x,) in chunks(forward_rows(images, self.batch_size), images)]
        return resize_maps(torch.cat(parts), tuple(images.shape[2:]), self.resize)


def _rollout(model: nn.Module, layout: TokenLayout, images: Tensor) -> Tensor:
    """Compute ``[n, h, w]``: the share of each patch in the tokens that the head reads."""
    with record_attention(model) as seen, torch.no_grad():
        model(images)
    first = layout.layers[0]
    # [n, tokens, tokens of the first layer]: the share of the latter in each token.
    rollout = torch.eye(first.count, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
    before = first
    for tokens, attention in zip(layout.layers, seen, strict=True):
        if tokens.count != before.count:
            # The rows of patches that are merged are averaged.
            rows = rollout.transpose(1, 2).reshape(len(rollout), -1, *before.grid)
            pool = nn.AdaptiveAvgPool2d if len(before.grid) == 2 else nn.AdaptiveAvgPool3d
            rollout = torch.as_tensor(pool(tokens.grid)(rows)).flatten(2).transpose(1, 2)
        rollout = _apply_attention(rollout, tokens, attention.weights.mean(1).to(rollout.dtype))
        before = tokens
    rows = rollout[:, layout.read.to(rollout.device)].mean(1)
    return rows[:, first.extra :].reshape(-1, *first.grid)


def _apply_attention(rollout: Tensor, tokens: Tokens, attention: Tensor) -> Tensor:
    """Multiply the rollout by (A + I) / 2, window by window; padding is zero."""
    places = tokens.places.to(rollout.device)
    padded = torch.cat([rollout, torch.zeros_like(rollout[:, :1])], 1)
    windows = padded[:, places]
    windows = (attention.reshape(-1, len(places), *attention.shape[1:]) @ windows + windows) / 2
    there = places.flatten() >= 0
    return rollout.index_copy(1, places.flatten()[there], windows.flatten(1, 2)[:, there])


@ExplainerInfo(
    "Gradient Rollout",
    family="Attention",
    citation="Chefer, Gur, Wolf: Generic Attention-model Explainability for Interpreting Bi-Modal and "
    "Encoder-Decoder Transformers. ICCV 2021.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class GradientRollout(AttentionGradients):
    """Rollout of the attention times its gradient: R = R + A' R from layer to layer, starting with the identity.

    A' is the mean over the heads of the positive part of A times dy/dA, the gradient of the explained output (equations
    5 and 6, for self-attention). The map is the row of the token that the head of the network reads, at the patches. If
    it reads several tokens, the map is the mean of their rows. Never negative. This is the method of the ICCV 2021
    paper; that of CVPR 2021 by the same authors uses relevance (LRP) instead of A.
    """

    name: ClassVar[str] = "gradient_rollout"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the values of the patches ``[n, h, w]``.

        Raises:
            UnsupportedModelError: If the layers do not all attend over the same tokens, as in Swin.
        """
        check_same_tokens(self.name, layout)
        seen, gradients = attention_gradients(self.name, model, images, targets)
        tokens = layout.layers[0]
        rollout = torch.eye(tokens.count, dtype=images.dtype, device=images.device).expand(len(images), -1, -1)
        for attention, gradient in zip(seen, gradients, strict=True):
            weighted = (attention.weights.detach() * gradient).clamp(min=0).mean(1)
            rollout = rollout + weighted.to(rollout.dtype) @ rollout
        return tokens.on_grid(rollout[:, layout.read.to(rollout.device)].mean(1))


@ExplainerInfo(
    "Attention × Gradient",
    family="Attention",
    citation="Serrano, Smith: Is Attention Interpretable? ACL 2019.",
    passes=2,
)
@dataclass(frozen=True, kw_only=True)
class AttentionXGradient(AttentionGradients):
    """The attention of the last layer times the gradient of the explained output with respect to it, per token.

    The value of patch s is sum_t A_ts dy/dA_ts, averaged over the heads. If the head of the network reads a class
    token, only the row t of that token has a gradient. Signed. The paper weights the words of a text in this way. Here
    the tokens are patches, also those in the windows of Swin.
    """

    name: ClassVar[str] = "attention_x_gradient"

    def on_patches(self, model: nn.Module, layout: TokenLayout, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the values of the patches ``[n, h, w]``."""
        seen, gradients = attention_gradients(self.name, model, images, targets)
        return layout.layers[-1].on_grid((seen[-1].weights.detach() * gradients[-1]).mean(1).sum(1))


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
