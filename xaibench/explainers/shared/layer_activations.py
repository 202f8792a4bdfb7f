"""Find the layer that an explainer uses, and resize its maps to the image.

A layer can be used if its output is a feature map ``[N, C, h, w]`` or the tokens ``[N, T, D]`` of a transformer. The
last h·w tokens are the patches, row by row; class and register tokens come before them and are left out. For volumes,
feature maps are ``[N, C, d, h, w]``, and the last d·h·w tokens are the patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.compute.batching import default_batch_size
from xaibench.compute.output import LayerRun, UnsupportedModelError, network_of, run_layers
from xaibench.explainers.shared.attention_calls import record_attention
from xaibench.explainers.shared.captured_maps import Layer, captured
from xaibench.explainers.shared.feature_grids import (
    is_channels_last,
    is_map,
    is_patch_embedding,
    is_tokens,
    patch_grid,
    spatial_runs,
)
from xaibench.explainers.shared.layer_calls import check_sees_whole_image, layer_name
from xaibench.explainers.shared.token_places import TokenLayout, Tokens, token_layout

#: Interpolation to the size of the image: bilinear (trilinear for volumes) without aligned corners, or nearest neighbor
#: by pixel centers.
Resize: TypeAlias = Literal["bilinear", "nearest"]


def find_layer(owner: str, model: nn.Module, images: Tensor, name: str | nn.Module | None = None) -> Layer:
    """Return the layer of the given name, or the last layer whose output still has spatial positions.

    Default without a name:

    - Convolutional network: the last feature map of more than one position that is not the output of a pooling layer
      (``layer4`` of a ResNet, the last ReLU before the last pooling of a VGG). If its activation is called as a
      function, the output of that function is taken (torchvision's DenseNets).
    - Transformer whose head averages the patches: the last tokens or map of patches (``norm`` of Swin).
    - Transformer whose head reads a class token: the last tokens before the last attention
      (``encoder.layers.encoder_layer_11.ln_1`` of ViT-B), since afterwards the output depends on the class token only.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``; the model is called with one of them.
        name: A name in ``network.named_modules()``, or one of these modules.

    Raises:
        UnsupportedModelError: If no layer fits.
        ValueError: If no layer of that name is called, or its output is neither a feature map nor tokens.
    """
    if isinstance(name, nn.Module):
        name = layer_name(owner, model, name)
    check_sees_whole_image(owner, model)
    with record_attention(model) as seen:
        runs = run_layers(model, images)
    size = tuple(images.shape[2:])
    if name is not None:
        return _find_named_layer(owner, runs, size, name)
    maps = spatial_runs(runs, size)
    # If convolutions follow the last attention, the last feature map is used.
    attends = bool(seen) and (not maps or _last_run_index(runs, seen[-1].name) > maps[-1])
    found = _last_patch_layer(token_layout(owner, model, images)) if attends else None
    if found is not None:
        return found
    if maps and not attends and not is_patch_embedding(runs, maps[-1], size):
        return _with_activation(model, Layer(runs[maps[-1]].name, runs[maps[-1]].module), images)
    raise UnsupportedModelError(
        f"{owner}: found neither a feature map [N, C, h, w] after a convolution nor patch tokens [N, T, D] before an "
        f"attention in {type(network_of(model)).__name__}. Layers that can be named (layer='...'): "
        f"{_list_usable_layers(runs, size)}. rise, occlusion and integrated_gradients need no such layer."
    )


def find_finer_layers(owner: str, model: nn.Module, images: Tensor, layer: Layer) -> list[Layer]:
    """Return the layers before a layer that add spatial detail, from late to early.

    In a convolutional network or a Swin transformer, these are the last feature map of each larger size; in a ViT, the
    tokens before each earlier attention. The embedding of the patches is not among them.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``; the model is called with one of them.
        layer: The layer, from :func:`find_layer`.
    """
    with record_attention(model) as seen:
        runs = run_layers(model, images)
    size = tuple(images.shape[2:])
    last, maps = _last_run_index(runs, layer.name), spatial_runs(runs, size)
    attends = {_last_run_index(runs, attention.name) for attention in seen}
    # Feature maps between attentions belong to a convolutional network with attention in it.
    if attends and not any(min(attends) < i < max(attends) for i in maps):
        return _finer_patch_layers(token_layout(owner, model, images), layer, last)
    found, area = [], _count_positions(layer, runs[last])
    for i in reversed([i for i in maps if i < last]):
        finer = Layer(runs[i].name, runs[i].module)
        if _count_positions(finer, runs[i]) > area and not is_patch_embedding(runs, i, size):
            found.append(_with_activation(model, finer, images))
            area = _count_positions(finer, runs[i])
    return found


def _count_positions(layer: Layer, run: LayerRun) -> int:
    assert isinstance(run.output, Tensor)
    return layer.as_maps(run.output).shape[2:].numel()


def _last_run_index(runs: Sequence[LayerRun], name: str) -> int:
    """Return the index of the last run of the layer of that name."""
    return max(i for i, run in enumerate(runs) if run.name == name)


def _last_patch_layer(layout: TokenLayout) -> Layer | None:
    """Return the layer with the last tokens or map of patches that the output depends on."""
    runs = list(layout.runs)
    if not layout.reads_patches:
        runs = _runs_before(runs, layout.attentions[-1].name)
    return _last_with_tokens(runs, layout.layers[-1])


def _finer_patch_layers(layout: TokenLayout, layer: Layer, last: int) -> list[Layer]:
    """Return the layers before run ``last``, that of ``layer``: see :func:`find_finer_layers`."""
    runs, positions = list(layout.runs)[:last], _count_positions(layer, layout.runs[last])
    found: list[Layer | None] = []
    if len({tokens.grid for tokens in layout.layers}) > 1:
        larger = [tokens for tokens in layout.layers if math.prod(tokens.grid) > positions]
        found = [_last_with_tokens(runs, tokens) for tokens in reversed(larger)]
    else:
        for attention in reversed(layout.attentions):
            if any(run.name == attention.name for run in runs):
                runs = _runs_before(runs, attention.name)
                found.append(_last_with_tokens(runs, layout.layers[-1]))
    return [each for each in dict.fromkeys(found) if each is not None]


def _runs_before(runs: list[LayerRun], attention: str) -> list[LayerRun]:
    """Return the runs that finish before the last run of an attention, without the layers in it."""
    before = runs[: _last_run_index(runs, attention)]
    return [run for run in before if not run.name.startswith(f"{attention}.")]


def _last_with_tokens(runs: Sequence[LayerRun], tokens: Tokens) -> Layer | None:
    """Return the last layer whose output is a sequence or a map of these tokens."""
    for run in reversed(runs):
        output = run.output
        if not isinstance(output, Tensor) or len(output) != 1:
            continue
        if output.ndim == 3 and output.shape[1] == tokens.count:
            return Layer(run.name, run.module, tokens.grid)
        if output.ndim == 2 + len(tokens.grid) and output.shape[1:-1] == tokens.grid:
            return Layer(run.name, run.module, channels_last=True)
    return None


def _find_named_layer(owner: str, runs: list[LayerRun], size: tuple[int, ...], name: str) -> Layer:
    for run in reversed(runs):
        if run.name == name and is_map(run, runs, size):
            return Layer(name, run.module)
        if run.name == name and is_channels_last(run, runs, size):
            return Layer(name, run.module, channels_last=True)
        grid = patch_grid(runs, size, run.output)
        if run.name == name and grid and is_tokens(run.output, grid):
            return Layer(name, run.module, grid)
    raise ValueError(
        f"{owner}(layer={name!r}): expected a layer that is called and whose output is a feature map [N, C, h, w] or "
        f"patch tokens [N, T, D]: {_list_usable_layers(runs, size)}."
    )


def _list_usable_layers(runs: list[LayerRun], size: tuple[int, ...]) -> str:
    """List the layers that can be named, at most the last twelve."""
    names = []
    for run in runs:
        grid = patch_grid(runs, size, run.output)
        usable = is_map(run, runs, size) or is_channels_last(run, runs, size) or (grid and is_tokens(run.output, grid))
        if run.name and usable:
            names.append(repr(run.name))
    names = list(dict.fromkeys(names))
    return ("..., " if len(names) > 12 else "") + ", ".join(names[-12:]) if names else "none"


def _with_activation(model: nn.Module, layer: Layer, images: Tensor) -> Layer:
    """Return the layer, including its activation if that is called as a function."""
    with captured(replace(layer, activated=True)) as capture, torch.no_grad():
        model(images[:1])
    return replace(layer, activated=capture.activated)


def resize_maps(maps: Tensor, size: tuple[int, ...], how: Resize | None) -> Tensor:
    """Resize maps ``[N, h, w]`` to ``[N, *size]``; ``None`` leaves them unchanged.

    Example:
        >>> import torch
        >>> resize_maps(torch.tensor([[[0.0, 4.0]]]), (1, 4), "bilinear").tolist()
        [[[0.0, 1.0, 3.0, 4.0]]]
        >>> resize_maps(torch.tensor([[[0.0, 4.0]]]), (1, 4), "nearest").tolist()
        [[[0.0, 0.0, 4.0, 4.0]]]
    """
    if how is None:
        return maps
    if how == "nearest":
        return nn.functional.interpolate(maps[:, None], size, mode="nearest-exact")[:, 0]
    return interpolate_linearly(maps[:, None], size)[:, 0]


def interpolate_linearly(features: Tensor, size: Sequence[int], *, align_corners: bool = False) -> Tensor:
    """Interpolate ``[N, C, h, w]`` to ``[N, C, *size]``: bilinear for images, trilinear for volumes."""
    mode = "bilinear" if features.ndim == 4 else "trilinear"
    return nn.functional.interpolate(features, list(size), mode=mode, align_corners=align_corners)


def forward_rows(images: Tensor, batch_size: int | None) -> int:
    """Return the number of rows ``[C, H, W]`` per forward pass; ``None``: chosen by the size of the images."""
    return batch_size or default_batch_size(images)


def fastest_layout(model: nn.Module, images: Tensor) -> torch.memory_format:
    """Return the memory layout in which the model runs fastest: channels last for float32 convolutions.

    A network that calls ``view`` where ``reshape`` is needed does not support channels last. This is tested with one
    image.
    """
    volumes = images.ndim > 4
    layout = torch.channels_last_3d if volumes else torch.channels_last
    convolution = nn.Conv3d if volumes else nn.Conv2d
    if images.dtype == torch.float64 or not any(isinstance(module, convolution) for module in model.modules()):
        return torch.contiguous_format
    try:
        with torch.no_grad():
            model(images[:1].contiguous(memory_format=layout))
    except RuntimeError:
        return torch.contiguous_format
    return layout
