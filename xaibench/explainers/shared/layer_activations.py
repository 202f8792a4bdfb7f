"""Which layer an explainer looks at, and how its map becomes as large as the image.

A layer can be looked at when its output is a feature map ``[N, C, h, w]``, or the tokens ``[N, T, D]`` of a
transformer: the last h·w of them are the patches, row by row; class and register tokens before them are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules import pooling

from xaibench.core.compute.row_memory import default_rows
from xaibench.explainers.shared.captured_maps import Layer, captured
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import UnsupportedModelError

#: How a map becomes as large as the image: bilinear without aligned corners, or nearest neighbour by pixel centres.
Resize: TypeAlias = Literal["bilinear", "nearest"]


@dataclass(frozen=True)
class Run:
    """One run of a layer in a forward pass.

    Attributes:
        name: As in ``network.named_modules()``.
        module: The layer.
        inputs: Its positional arguments.
        output: What it returned.
    """

    name: str
    module: nn.Module
    inputs: tuple[object, ...]
    output: object


def network_of(model: nn.Module) -> nn.Module:
    """The classifier itself, without the head that chooses the explained output; layers are named from here."""
    return model.network if isinstance(model, ExplainedOutput) else model


def run_layers(model: nn.Module, images: Tensor) -> list[Run]:
    """Every layer and container, in the order in which they finish for the first image, as often as they run."""
    runs: list[Run] = []
    handles = [
        module.register_forward_hook(lambda m, inputs, out, name=name: runs.append(Run(name, m, inputs, out)))
        for name, module in network_of(model).named_modules()
    ]
    try:
        with torch.no_grad():
            model(images[:1])
    finally:
        for handle in handles:
            handle.remove()
    return runs


def layer_name(owner: str, model: nn.Module, layer: nn.Module) -> str:
    """What a module of the network is called in ``named_modules()``.

    Raises:
        ValueError: If it is none of the network's.
    """
    for name, module in network_of(model).named_modules():
        if module is layer:
            return str(name)
    network = type(network_of(model)).__name__
    raise ValueError(
        f"{owner}: its layer is a {type(layer).__name__} that the model {network} does not hold, expected "
        "one of its own modules. Take it from this model, or give its name (model.named_modules())."
    )


def with_layer_named(part: object, owner: str, model: nn.Module) -> Any:
    """The explainer with its ``layer`` by name, where that is a module: a copy of the network has other modules."""
    layer = getattr(part, "layer", None)
    if not isinstance(layer, nn.Module) or not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, layer=layer_name(owner, model, layer))


def check_sees_whole(owner: str, model: nn.Module) -> None:
    """Refuse a network that cuts the image up before its first layer (its attribute ``sees_in_parts``).

    Raises:
        UnsupportedModelError: If it does.
    """
    if getattr(network_of(model), "sees_in_parts", False):
        raise UnsupportedModelError(
            f"{owner}: each layer of {type(network_of(model)).__name__} sees a part of the image, so that none has a "
            "feature map of it. Explain the network of one part, on that part."
        )


def find_layer(owner: str, model: nn.Module, images: Tensor, name: str | nn.Module | None = None) -> Layer:
    """The layer of that name, or the last that still knows where it looks.

    Without a name: the last feature map of more than one position that is not the output of a pooling layer (``layer4``
    of a ResNet, the last ReLU before the last pooling of a VGG), after the activation if that is a function (as in
    torchvision's DenseNets). In a transformer: the last tokens before the last
    ``nn.MultiheadAttention`` (``encoder.layers.encoder_layer_11.ln_1`` of ViT-B), because after it the output only
    depends on the class token.

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
    runs = run_layers(model, images)
    size = (images.shape[-2], images.shape[-1])
    if name is not None:
        return _named(owner, runs, size, name)
    spatial = _spatial(runs, size)
    attentions = [i for i, run in enumerate(runs) if isinstance(run.module, nn.MultiheadAttention)]
    if attentions and (not spatial or attentions[-1] > spatial[-1]):
        grid = patch_grid(runs, size)
        for run in reversed(runs[: attentions[-1]]):
            if grid and _is_tokens(run.output, grid):
                return Layer(run.name, run.module, grid)
    elif spatial and not _is_patch_embedding(runs, spatial[-1], size):
        return _with_activation(model, Layer(runs[spatial[-1]].name, runs[spatial[-1]].module), images)
    raise UnsupportedModelError(
        f"{owner}: found no feature map [N, C, h, w] after a convolution, nor patch tokens [N, T, D] before an "
        f"nn.MultiheadAttention, in {type(network_of(model)).__name__}. Layers that can be named (layer='...'): "
        f"{_known(runs, size)}. rise, occlusion and integrated_gradients explain networks without such a layer."
    )


def _named(owner: str, runs: list[Run], size: tuple[int, int], name: str) -> Layer:
    for run in reversed(runs):
        if run.name == name and _is_map(run, runs, size):
            return Layer(name, run.module)
        grid = patch_grid(runs, size, run.output)
        if run.name == name and grid and _is_tokens(run.output, grid):
            return Layer(name, run.module, grid)
    raise ValueError(
        f"{owner}(layer={name!r}): expected a layer that runs and whose output is a feature map [N, C, h, w] or patch "
        f"tokens [N, T, D]: {_known(runs, size)}."
    )


def _is_map(run: Run, runs: list[Run], size: tuple[int, int]) -> bool:
    """Whether the positions of an output are those of the image: as in it, one axis as finely as the other.

    Queries and weights of an attention have four dimensions too; they are made in a layer that is given tokens.
    """
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 4 or len(output) != 1:
        return False
    wide = output.shape[-2] * size[1] / size[0]  # what the width must be, about
    if abs(wide - output.shape[-1]) > max(1.0, wide / 4):
        return False
    return not any(_has_tokens(other.inputs) for other in runs if other.name and run.name.startswith(f"{other.name}."))


def _has_tokens(values: object) -> bool:
    values = values if isinstance(values, tuple) else (values,)
    return any(isinstance(value, Tensor) and value.ndim == 3 for value in values)


def _is_tokens(output: object, grid: tuple[int, int]) -> bool:
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def _spatial(runs: list[Run], size: tuple[int, int]) -> list[int]:
    """The runs whose output is a map of several positions: not before a convolution, nor pooled, nor channels-last."""
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, nn.Conv2d)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns that layer's very tensor.
        if isinstance(run.output, Tensor) and id(run.output) not in pooled and _is_map(run, runs, size):
            height, width = run.output.shape[-2:]
            if height * width > 1 and height <= size[0] and width <= size[1]:
                found.append(i)
    return found


def _is_patch_embedding(runs: list[Run], last: int, size: tuple[int, int]) -> bool:
    """Whether the last map is only the beginning of a transformer: its positions go on as tokens, maybe in windows."""
    output = runs[last].output
    assert isinstance(output, Tensor)
    positions = output.shape[-2:].numel()
    later = [run.output for run in runs[last + 1 :]]
    return any(isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2].numel() >= positions for x in later)


def patch_grid(runs: list[Run], size: tuple[int, int], tokens: object = None) -> tuple[int, int] | None:
    """Rows and columns of patches: as in the last map, else the square that ``tokens`` fill."""
    spatial = _spatial(runs, size)
    if spatial:
        output = runs[spatial[-1]].output
        assert isinstance(output, Tensor)
        return output.shape[-2], output.shape[-1]
    if isinstance(tokens, Tensor) and tokens.ndim == 3 and size[0] == size[1]:
        side = math.isqrt(tokens.shape[1])
        # A square of patches, alone or behind a class token.
        return (side, side) if tokens.shape[1] - side**2 in (0, 1) else None
    return None


def _known(runs: list[Run], size: tuple[int, int]) -> str:
    """The layers that can be named, the last ones of many."""
    names = []
    for run in runs:
        grid = patch_grid(runs, size, run.output)
        if run.name and (_is_map(run, runs, size) or (grid and _is_tokens(run.output, grid))):
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
