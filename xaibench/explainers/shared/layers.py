"""Find the layer that an explainer uses, capture its feature maps and their gradient, and resize maps to the image.

A layer can be used if its output is a feature map ``[N, C, h, w]`` or the tokens ``[N, T, D]`` of a transformer. The
last h·w tokens are the patches, row by row; class and register tokens come before them and are left out. For volumes,
feature maps are ``[N, C, d, h, w]``, and the last d·h·w tokens are the patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from xaibench.explainers.registered import gradient_free_advice
from xaibench.explainers.shared.tokens import (
    TokenLayout,
    Tokens,
    is_channels_last,
    is_map,
    is_patch_embedding,
    is_tokens,
    patch_grid,
    record_attention,
    spatial_runs,
    token_layout,
)
from xaibench.network.calls import LayerRun, describe_layer, observe_calls
from xaibench.network.explained_output import UnsupportedModelError, network_of, run_layers
from xaibench.tensors.batching import default_batch_size


def layer_name(owner: str, model: nn.Module, layer: nn.Module) -> str:
    """Return the name of a module in ``named_modules()`` of the network.

    Raises:
        ValueError: If the module does not belong to the network.
    """
    for name, module in network_of(model).named_modules():
        if module is layer:
            return str(name)
    network = type(network_of(model)).__name__
    raise ValueError(
        f"{owner}: its layer is a {type(layer).__name__} that does not belong to the model {network}, expected "
        "one of its modules. Take it from this model, or give its name (model.named_modules())."
    )


def check_sees_whole_image(owner: str, model: nn.Module) -> None:
    """Refuse a network that cuts the image into parts before its first layer (attribute ``sees_in_parts``).

    Raises:
        UnsupportedModelError: If it does.
    """
    if getattr(network_of(model), "sees_in_parts", False):
        raise UnsupportedModelError(
            f"{owner}: each layer of {type(network_of(model)).__name__} sees only a part of the image, so none has a "
            "feature map of the whole image. Explain the network of one part on that part."
        )


#: Names of the activation functions that networks call as functions.
_ACTIVATIONS = (
    *("relu", "relu_", "relu6", "leaky_relu", "leaky_relu_", "elu", "elu_"),
    *("gelu", "silu", "mish", "hardswish"),
)


@dataclass(frozen=True)
class Layer:
    """A layer whose output can be read as feature maps.

    Attributes:
        name: Its name in ``network.named_modules()``.
        module: The layer.
        grid: Rows and columns of patches (slices first for volumes) if the output is a sequence of tokens; ``None`` if
            it is a feature map.
        channels_last: Whether the feature map is ``[N, h, w, C]``, as in Swin transformers.
        activated: Whether to take the output of the activation function that is called right after the layer
            (``F.relu``) instead of the output of the layer.
    """

    name: str
    module: nn.Module
    grid: tuple[int, ...] | None = None
    activated: bool = False
    channels_last: bool = False

    def as_maps(self, output: Tensor) -> Tensor:
        """Return the feature maps ``[N, C, h, w]`` contained in an output of the layer or in its gradient."""
        if self.grid is None:
            return output.movedim(-1, 1) if self.channels_last else output
        patches = output[:, -math.prod(self.grid) :]
        return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)

    def __str__(self) -> str:
        return f"{describe_layer(self.name, self.module)}{' after its activation' if self.activated else ''}"


class _Capture(TorchFunctionMode):
    """Keep the last output of a layer with at least ``axes`` axes, or of the activation function applied to it.

    Attributes:
        output: The captured tensor.
        activated: Whether it is the output of the activation function.
        runs: Number of calls of the layer.
    """

    def __init__(self, axes: int, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> None:
        super().__init__()
        self._axes = axes
        # The network continues with a copy, since an in-place ReLU would change the captured output.
        self._pass_on = change or (lambda output, run, activated: output.clone())
        self._pending: Tensor | None = None
        self.output = torch.empty(0)
        self.activated = False
        self.runs = 0

    def keep(self, name: str, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        """Capture an output of the layer; a module that runs again after the positions are gone keeps its maps."""
        if output.ndim < self._axes:
            return output
        self.runs += 1
        self.output, self.activated, self._pending = output, False, self._pass_on(output, self.runs, False)
        return self._pending

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        called = getattr(func, "__name__", "")
        if self._pending is None or not args or args[0] is not self._pending or called not in _ACTIVATIONS:
            return result
        self.output, self.activated, self._pending = result, True, None
        return self._pass_on(result, self.runs, True)


@contextmanager
def captured(layer: Layer, change: Callable[[Tensor, int, bool], Tensor] | None = None) -> Iterator[_Capture]:
    """Capture the output of the layer in the forward passes of the block.

    Args:
        layer: The layer.
        change: Called with each output, the number of the call and whether the output is that of the activation
            function. It returns a new tensor that the network continues with. ``None``: a copy of the output.
    """
    capture = _Capture(3 if layer.grid else 4, change)
    with observe_calls([(layer.name, layer.module)], after=capture.keep), capture if layer.activated else nullcontext():
        yield capture


def check_rows(where: object, output: Tensor, images: Tensor) -> None:
    """Raise an error if the output of a layer is not that of all images, as in a network that loops over them.

    Raises:
        UnsupportedModelError: If it has fewer rows.
    """
    if len(output) < len(images):
        raise UnsupportedModelError(
            f"{where} is called with {len(output)} of {len(images)} images at a time. Let the network process a batch "
            "in one call, or pass batch_size=1."
        )


def activations(model: nn.Module, layer: Layer, images: Tensor) -> Tensor:
    """Return the feature maps ``[N, C, h, w]`` of the layer, without gradients.

    Raises:
        UnsupportedModelError: See :func:`check_rows`.
    """
    with captured(layer) as capture, torch.no_grad():
        model(images)
    check_rows(layer, capture.output, images)
    return layer.as_maps(capture.output)


def activations_and_gradients(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the feature maps of the layer and the gradients of the target outputs, both ``[N, C, h, w]``.

    Raises:
        UnsupportedModelError: If the target output does not depend on the feature maps through differentiable
            operations.
    """
    output, gradient = _output_and_gradient(owner, model, layer, images, targets)
    return layer.as_maps(output.detach()), layer.as_maps(gradient)


def activations_and_curvature(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the feature maps A, the gradients g and the products H A with the Hessian, all ``[N, C, h, w]``.

    In a transformer, H A includes the class and register tokens of A.

    Raises:
        UnsupportedModelError: See :func:`activations_and_gradients`.
    """
    # The fused attentions have no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        output, gradient = _output_and_gradient(owner, model, layer, images, targets, create_graph=True)
    product: Tensor | None = None
    if gradient.requires_grad:  # not if the rest of the network is linear
        with torch.enable_grad():
            (product,) = torch.autograd.grad(gradient, output, output.detach(), allow_unused=True)
    product = torch.zeros_like(output) if product is None else product
    return layer.as_maps(output.detach()), layer.as_maps(gradient.detach()), layer.as_maps(product.detach())


def _output_and_gradient(
    owner: str, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor, *, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the captured output of the layer with its graph, and the gradient of the target outputs."""
    with captured(layer) as capture, torch.enable_grad():
        # The parameters are frozen, so the images must require the gradient.
        outputs = model(images.detach().requires_grad_()).gather(1, targets[:, None])
        output = capture.output
        check_rows(layer, output, images)
        gradient: Tensor | None = None
        if output.requires_grad and outputs.requires_grad:
            (gradient,) = torch.autograd.grad(outputs.sum(), output, allow_unused=True, create_graph=create_graph)
    if gradient is None or (layer.grid and gradient.any() and not layer.as_maps(gradient).any()):
        what = "the patch tokens" if layer.grid else "the output"
        raise UnsupportedModelError(
            f"{owner}: the explained output has no gradient with respect to {what} of {layer}. Name an earlier "
            f"layer (layer='...'). {gradient_free_advice()}"
        )
    return output, gradient


def zero_feature_map(layer: Layer, run: int, rows: Tensor, channels: Tensor) -> Callable[[Tensor, int, bool], Tensor]:
    """Return a ``change`` for :func:`captured` that sets feature map ``channels[i]`` of row ``rows[i]`` to zero.

    It applies to call number ``run`` of the layer only.
    """

    def change(output: Tensor, number: int, activated: bool) -> Tensor:
        passed_on = output.clone()
        if number == run and activated == layer.activated:
            check_rows(layer, output, rows)
            # A view, regardless of the layout of the output.
            layer.as_maps(passed_on)[rows, channels] = 0
        return passed_on

    return change


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
    """List the names of layers that ``layer=`` accepts, at most the last twelve."""
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
