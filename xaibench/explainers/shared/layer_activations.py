"""Which layer an explainer looks at, and how its map becomes as large as the image.

A layer can be looked at when its output is a feature map ``[N, C, h, w]``, or the tokens ``[N, T, D]`` of a
transformer: the last h·w of them are the patches, row by row; class and register tokens before them are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.compute.row_memory import default_rows
from xaibench.explainers.attention.attention_calls import attending
from xaibench.explainers.attention.token_places import TokenLayout, token_layout
from xaibench.explainers.shared.captured_maps import Layer, captured
from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.feature_grids import (
    is_channels_last,
    is_map,
    is_patch_embedding,
    is_tokens,
    patch_grid,
    spatial,
)
from xaibench.explainers.shared.interface import UnsupportedModelError
from xaibench.explainers.shared.layer_runs import Run, check_sees_whole, layer_name, run_layers

#: How a map becomes as large as the image: bilinear without aligned corners, or nearest neighbour by pixel centres.
Resize: TypeAlias = Literal["bilinear", "nearest"]


def find_layer(owner: str, model: nn.Module, images: Tensor, name: str | nn.Module | None = None) -> Layer:
    """The layer of that name, or the last that still knows where it looks.

    Without a name: the last feature map of more than one position that is not the output of a pooling layer (``layer4``
    of a ResNet, the last ReLU before the last pooling of a VGG), after the activation if that is a function (as in
    torchvision's DenseNets). In a transformer whose head averages the patches: the last tokens or map of them (``norm``
    of Swin). In one whose head reads a class token: the last tokens before the last attention
    (``encoder.layers.encoder_layer_11.ln_1`` of ViT-B), because after it the output only depends on the class token.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``; one of them is run.
        name: As in ``network.named_modules()``, or one of these modules.

    Raises:
        UnsupportedModelError: If no layer fits.
        ValueError: If ``name`` is no layer that runs, or its output is neither a feature map nor tokens.
    """
    if isinstance(name, nn.Module):
        name = layer_name(owner, model, name)
    check_sees_whole(owner, model)
    with attending(model) as seen:
        runs = run_layers(model, images)
    size = (images.shape[-2], images.shape[-1])
    if name is not None:
        return _named(owner, runs, size, name)
    maps = spatial(runs, size)
    # A network that goes on with convolutions after its last attention is looked at there.
    attends = bool(seen) and (not maps or _index(runs, seen[-1].name) > maps[-1])
    found = _before_the_head(token_layout(owner, model, images)) if attends else None
    if found is not None:
        return found
    if maps and not attends and not is_patch_embedding(runs, maps[-1], size):
        return _with_activation(model, Layer(runs[maps[-1]].name, runs[maps[-1]].module), images)
    raise UnsupportedModelError(
        f"{owner}: found no feature map [N, C, h, w] after a convolution, nor patch tokens [N, T, D] before an "
        f"attention, in {type(network_of(model)).__name__}. Layers that can be named (layer='...'): "
        f"{_known(runs, size)}. rise, occlusion and integrated_gradients explain networks without such a layer."
    )


def _index(runs: Sequence[Run], name: str) -> int:
    """The last run of the layer of that name."""
    return max(i for i, run in enumerate(runs) if run.name == name)


def _before_the_head(layout: TokenLayout) -> Layer | None:
    """The last tokens or map of patches that the output depends on."""
    tokens, last = layout.layers[-1], layout.attentions[-1]
    runs = list(layout.runs)
    if not layout.reads_patches:
        runs = runs[: _index(runs, last.name)]
        runs = [run for run in runs if not run.name.startswith(f"{last.name}.")]
    for run in reversed(runs):
        output = run.output
        if not isinstance(output, Tensor) or len(output) != 1:
            continue
        if output.ndim == 3 and output.shape[1] == tokens.count:
            return Layer(run.name, run.module, tokens.grid)
        if output.ndim == 4 and output.shape[1:3] == tokens.grid:
            return Layer(run.name, run.module, channels_last=True)
    return None


def _named(owner: str, runs: list[Run], size: tuple[int, int], name: str) -> Layer:
    for run in reversed(runs):
        if run.name == name and is_map(run, runs, size):
            return Layer(name, run.module)
        if run.name == name and is_channels_last(run, runs, size):
            return Layer(name, run.module, channels_last=True)
        grid = patch_grid(runs, size, run.output)
        if run.name == name and grid and is_tokens(run.output, grid):
            return Layer(name, run.module, grid)
    raise ValueError(
        f"{owner}(layer={name!r}): expected a layer that runs and whose output is a feature map [N, C, h, w] or patch "
        f"tokens [N, T, D]: {_known(runs, size)}."
    )


def _known(runs: list[Run], size: tuple[int, int]) -> str:
    """The layers that can be named, the last ones of many."""
    names = []
    for run in runs:
        grid = patch_grid(runs, size, run.output)
        there = is_map(run, runs, size) or is_channels_last(run, runs, size) or (grid and is_tokens(run.output, grid))
        if run.name and there:
            names.append(repr(run.name))
    names = list(dict.fromkeys(names))
    return ("..., " if len(names) > 12 else "") + ", ".join(names[-12:]) if names else "none"


def _with_activation(model: nn.Module, layer: Layer, images: Tensor) -> Layer:
    """The layer, after its activation if it has one that is called as a function."""
    with captured(replace(layer, activated=True)) as capture, torch.no_grad():
        model(images[:1])
    return replace(layer, activated=capture.activated)


def resized(maps: Tensor, size: tuple[int, int], how: Resize | None) -> Tensor:
    """Maps ``[N, *size]`` from maps ``[N, h, w]``; unchanged when ``how`` is ``None``.

    Example:
        >>> import torch
        >>> resized(torch.tensor([[[0.0, 4.0]]]), (1, 4), "bilinear").tolist()
        [[[0.0, 1.0, 3.0, 4.0]]]
        >>> resized(torch.tensor([[[0.0, 4.0]]]), (1, 4), "nearest").tolist()
        [[[0.0, 0.0, 4.0, 4.0]]]
    """
    if how is None:
        return maps
    if how == "nearest":
        return nn.functional.interpolate(maps[:, None], size, mode="nearest-exact")[:, 0]
    return nn.functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def forward_rows(images: Tensor, batch_size: int | None) -> int:
    """Rows ``[C, H, W]`` that one forward pass takes; ``None`` chooses by the size of the images."""
    return batch_size or default_rows(images)


def fastest_layout(model: nn.Module, images: Tensor) -> torch.memory_format:
    """The memory layout in which the model runs fastest: channels last for float32 convolutions, where it can.

    A network that calls ``view`` where ``reshape`` is needed cannot: one image is run to see.
    """
    if images.dtype == torch.float64 or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return torch.contiguous_format
    try:
        with torch.no_grad():
            model(images[:1].contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return torch.contiguous_format
    return torch.channels_last
