"""Attention rollout: how much of each patch's input reaches the class token through the attention of all layers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.shared.interface import UnsupportedModelError, chunks
from xaibench.explainers.shared.layer_activations import (
    Resize,
    forward_rows,
    network_of,
    patch_grid,
    resized,
    run_layers,
)


@described(
    ExplainerInfo(
        "Attention Rollout",
        family="Attention",
        citation="Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020.",
    )
)
@dataclass(frozen=True, kw_only=True)
class AttentionRollout:
    """The product over the layers of (A + I) / 2, with A the attention, averaged over the heads (section 3).

    The map is the row of the class token (the first), at the patches; where there is no such token, the mean of all
    rows. Never negative, and the same for every target: it knows nothing of the class.

    Attributes:
        resize: How the map becomes as large as the image: ``"bilinear"`` (without aligned corners), ``"nearest"``, or
            ``None``: one value for each patch.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
    """

    resize: Resize | None = "bilinear"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            check_choice("resize", self.resize, get_args(Resize), owner="AttentionRollout")
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner="AttentionRollout")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``, or as large as the grid of patches without ``resize``; targets are not looked at.

        Raises:
            UnsupportedModelError: If the network is no transformer of ``nn.MultiheadAttention`` over patches.
        """
        size = (images.shape[-2], images.shape[-1])
        runs = run_layers(model, images)
        last = [run for run in runs if isinstance(run.module, nn.MultiheadAttention)]
        if not last:
            raise UnsupportedModelError(
                f"attention_rollout: {type(network_of(model)).__name__} runs no nn.MultiheadAttention, whose attention "
                "it needs. Use a transformer made of it (torchvision's ViT), or gradcam or rise."
            )
        parts = [self._roll(model, x) for (x,) in chunks(forward_rows(images, self.batch_size), images)]
        rollout = torch.cat(parts)
        grid = patch_grid(runs, size, rollout)
        if grid is None or grid[0] * grid[1] > rollout.shape[1]:
            raise UnsupportedModelError(
                f"attention_rollout: the attention is over {rollout.shape[1]} tokens, but no layer has a grid of at "
                "most as many patches. Expected a convolution that cuts the image into patches."
            )
        patches = grid[0] * grid[1]
        rows = rollout[:, 0] if rollout.shape[1] > patches else rollout.mean(1)
        return resized(rows[:, -patches:].reshape(-1, *grid), size, self.resize)

    def _roll(self, model: nn.Module, images: Tensor) -> Tensor:
        """``[n, T, T]``: how much of each token's input is in each token's output."""
        with _attention(model) as attentions, torch.no_grad():
            model(images)
        rollout = torch.eye(attentions[0].shape[-1], dtype=images.dtype, device=images.device)
        for attention in attentions:
            if attention.shape[1:] != rollout.shape[-2:]:
                raise UnsupportedModelError(
                    f"attention_rollout: one attention is over {tuple(attention.shape[1:])} tokens, others over "
                    f"{tuple(rollout.shape[-2:])}; expected self-attention over the same tokens in every layer."
                )
            # (A + I) / 2 times what came before
            rollout = (attention @ rollout + rollout) / 2
        return rollout


@contextmanager
def _attention(model: nn.Module) -> Iterator[list[Tensor]]:
    """Hold the attention ``[N, T, T]`` of every ``nn.MultiheadAttention``, averaged over the heads, as they run."""
    held: list[Tensor] = []

    def ask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = inspect.signature(module.forward).bind(*args, **kwargs)
        call.arguments.update(need_weights=True, average_attn_weights=True)
        return call.args, call.kwargs

    handles = []
    try:
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                handles.append(module.register_forward_pre_hook(ask, with_kwargs=True))
                handles.append(module.register_forward_hook(lambda m, inputs, out: held.append(out[1])))
        yield held
    finally:
        for handle in handles:
            handle.remove()
