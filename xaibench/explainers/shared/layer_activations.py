"""Which layer an explainer looks at, what passes through it, and how its map becomes as large as the image.

A layer can be looked at when its output is a feature map ``[N, C, h, w]``, or the tokens ``[N, T, D]`` of a
transformer: the last h·w of them are the patches, row by row; class and register tokens before them are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules import pooling

from xaibench.core.compute.row_memory import default_rows
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import UnsupportedModelError

#: How a map becomes as large as the image: bilinear without aligned corners, or nearest neighbour by pixel centres.
Resize: TypeAlias = Literal["bilinear", "nearest"]


@dataclass(frozen=True)
class Layer:
    """A layer whose output can be seen as feature maps.

    Attributes:
        name: As in ``network.named_modules()``.
        module: The layer.
        grid: Rows and columns of patches when the output is tokens; ``None`` when it is a feature map.
    """

    name: str
    module: nn.Module
    grid: tuple[int, int] | None = None

    def as_maps(self, output: Tensor) -> Tensor:
        """The feature maps ``[N, C, h, w]`` in an output of the layer, or in its gradient."""
        if self.grid is None:
            return output
        patches = output[:, -math.prod(self.grid) :]
        return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)

    def __str__(self) -> str:
        return f"layer {self.name!r} ({type(self.module).__name__})"


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


def find_layer(owner: str, model: nn.Module, images: Tensor, name: str | nn.Module | None = None) -> Layer:
    """The layer of that name, or the last that still knows where it looks.

    Without a name: the last feature map of more than one position that is not the output of a pooling layer (``layer4``
    of a ResNet, the last ReLU before the last pooling of a VGG). In a transformer: the last tokens before the last
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
        return Layer(runs[spatial[-1]].name, runs[spatial[-1]].module)
    raise UnsupportedModelError(
        f"{owner}: found no feature map [N, C, h, w] after a convolution, nor patch tokens [N, T, D] before an "
        f"nn.MultiheadAttention, in {type(network_of(model)).__name__}. Layers that can be named (layer='...'): "
        f"{_known(runs, size)}. rise, occlusion and integrated_gradients explain networks without such a layer."
    )


def _named(owner: str, runs: list[Run], size: tuple[int, int], name: str) -> Layer:
    for run in reversed(runs):
        if run.name == name and _is_map(run.output):
            return Layer(name, run.module)
        grid = patch_grid(runs, size, run.output)
        if run.name == name and grid and _is_tokens(run.output, grid):
            return Layer(name, run.module, grid)
    raise ValueError(
        f"{owner}(layer={name!r}): expected a layer that runs and whose output is a feature map [N, C, h, w] or patch "
        f"tokens [N, T, D]: {_known(runs, size)}."
    )


def _is_map(output: object) -> bool:
    return isinstance(output, Tensor) and output.ndim == 4 and len(output) == 1


def _is_tokens(output: object, grid: tuple[int, int]) -> bool:
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def _spatial(runs: list[Run], size: tuple[int, int]) -> list[int]:
    """The runs whose output is a map of several positions: not before a convolution, nor pooled, nor channels-last."""
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, nn.Conv2d)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns that layer's very tensor.
        if isinstance(run.output, Tensor) and _is_map(run.output) and id(run.output) not in pooled:
            height, width = run.output.shape[-2:]
            if height * width > 1 and height <= size[0] and width <= size[1]:
                found.append(i)
    return found


def _is_patch_embedding(runs: list[Run], last: int, size: tuple[int, int]) -> bool:
    """Whether the last map is only the beginning of a transformer: its positions go on as tokens."""
    grid = patch_grid(runs, size)
    return grid is not None and any(_is_tokens(run.output, grid) for run in runs[last + 1 :])


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
        if run.name and (_is_map(run.output) or (grid and _is_tokens(run.output, grid))):
            names.append(repr(run.name))
    names = list(dict.fromkeys(names))
    return ("..., " if len(names) > 12 else "") + ", ".join(names[-12:]) if names else "none"


@contextmanager
def _captured(layer: Layer) -> Iterator[list[Tensor]]:
    """Hold the output of the layer's last run."""
    held: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        held[:] = [output]
        # What follows works on a copy: an in-place ReLU would change the output that is held.
        return output.clone()

    handle = layer.module.register_forward_hook(keep)
    try:
        yield held
    finally:
        handle.remove()


def activations(model: nn.Module, layer: Layer, images: Tensor) -> Tensor:
    """The feature maps ``[N, C, h, w]`` of the layer, without gradients."""
    with _captured(layer) as held, torch.no_grad():
        model(images)
    return layer.as_maps(held[0])


def activations_and_gradients(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """The feature maps of the layer and the gradients of each sample's target output by them, both ``[N, C, h, w]``.

    Raises:
        UnsupportedModelError: If the target output does not depend on the feature maps through differentiable
            operations.
    """
    with _captured(layer) as held, torch.enable_grad():
        # With the parameters frozen, the images are what makes the graph.
        outputs = model(images.detach().requires_grad_()).gather(1, targets[:, None])
        output = held[0]
        gradient: Tensor | None = None
        if output.requires_grad and outputs.requires_grad:
            (gradient,) = torch.autograd.grad(outputs.sum(), output, allow_unused=True)
    if gradient is None or (layer.grid and gradient.any() and not layer.as_maps(gradient).any()):
        what = "the patch tokens" if layer.grid else "the output"
        raise UnsupportedModelError(
            f"{owner}: the explained output has no gradient by {what} of {layer}. Name an earlier layer (layer='...'), "
            "or use an explainer that needs no gradient (rise, occlusion, scorecam)."
        )
    return layer.as_maps(output.detach()), layer.as_maps(gradient)


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
