"""Locate the tokens of a transformer in the image, by evaluating it on random noise.

This does not depend on names. The grid of patches is that of the last feature map before the tokens. Tokens before the
patches are class, distillation and register tokens. Windows, shifted or not, contain rows of a map ``[N, h, w, D]``,
which are recognized by their values. The head reads those tokens that the output has a gradient with respect to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.compute.output import LayerRun, UnsupportedModelError, network_of, record_layer_runs
from xaibench.explainers.shared.attention_calls import Attention, no_attention_error, record_attention
from xaibench.explainers.shared.feature_grids import patch_grid


@dataclass(frozen=True, eq=False)
class Tokens:
    """The positions of the tokens of one attention.

    Attributes:
        grid: Rows and columns of patches (slices first for volumes), which are the last tokens, row by row.
        extra: Number of tokens before them: class token, distillation token, registers.
        places: ``[W, T]`` int64: the index among the ``extra + h·w`` tokens of each token of each window; -1 is
            padding. A single row 0, 1, 2, ... if there are no windows.
    """

    grid: tuple[int, ...]
    extra: int
    places: Tensor

    @property
    def count(self) -> int:
        """The number of all tokens, ``extra + h·w``."""
        return self.extra + math.prod(self.grid)

    def in_token_order(self, values: Tensor) -> Tensor:
        """Reorder values ``[B, T]`` (B = N·W) of the windows' tokens to ``[N, count]``, without padding."""
        windows, size = self.places.shape
        places = self.places.flatten().to(values.device)
        rows = values.reshape(-1, windows * size)
        return rows.new_zeros(len(rows), self.count).index_copy(1, places[places >= 0], rows[:, places >= 0])

    def on_grid(self, values: Tensor) -> Tensor:
        """Return the values ``[N, h, w]`` of the patches from the values ``[B, T]`` of the tokens."""
        return self.in_token_order(values)[:, self.extra :].reshape(-1, *self.grid)


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """The tokens of all layers.

    Attributes:
        layers: The tokens of each attention, in the order in which they run.
        read: ``[count]`` bool: tokens of the last attention whose output the head reads: the class token, or all
            patches if they are averaged.
        attentions: The attentions for the noise.
        runs: Every call of a layer in that pass.
    """

    layers: tuple[Tokens, ...]
    read: Tensor
    attentions: tuple[Attention, ...]
    runs: tuple[LayerRun, ...]

    @property
    def reads_patches(self) -> bool:
        """Whether the head reads patches, for example their mean, and not only class tokens."""
        return bool(self.read[self.layers[-1].extra :].any())


def token_layout(owner: str, model: nn.Module, images: Tensor) -> TokenLayout:
    """Locate the tokens; this takes a few forward passes of one image, and one gradient.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``; only their shape matters.

    Returns:
        The layout, which is the same for all images of that size.

    Raises:
        UnsupportedModelError: If the network has no attention, or its tokens cannot be located in the image.
    """
    noise = _noise(images, 1)
    with record_attention(model) as seen, record_layer_runs(model) as runs, torch.enable_grad():
        outputs = model(noise.requires_grad_())
    if not seen:
        raise no_attention_error(owner, model)
    size = tuple(images.shape[2:])
    layers = tuple(_locate_tokens(owner, model, attention, runs, size) for attention in seen)
    if any(len(tokens.places) > 1 for tokens in layers):
        _check_order(owner, model, images, seen)
    _check_patches(owner, seen[0], layers[0], noise)
    read = _find_read_tokens(seen[-1], layers[-1], runs, outputs)
    return TokenLayout(layers, read, tuple(seen), tuple(runs))


def _noise(images: Tensor, rows: int) -> Tensor:
    noise = torch.randn(rows, *images.shape[1:], generator=torch.Generator().manual_seed(0))
    return noise.to(images.device, images.dtype)


def _locate_tokens(
    owner: str, model: nn.Module, attention: Attention, runs: Sequence[LayerRun], size: tuple[int, ...]
) -> Tokens:
    """Locate the tokens of one attention for one image."""
    batch, _, _, count = attention.weights.shape
    tokens = attention.tokens
    if tokens is not None and tokens.shape[:2] == (batch, count):
        for run in reversed(runs):
            if not isinstance(run.output, Tensor) or run.output.ndim != 2 + len(size):
                continue
            for output in (run.output, run.output.movedim(1, -1)):
                places = _match_rows(tokens.detach(), output.detach())
                if places is not None:
                    return Tokens(tuple(output.shape[1:-1]), 0, places)
    grid = patch_grid(list(runs), size, attention.weights[:, 0])
    if batch != 1 or grid is None or math.prod(grid) > count:
        windows = f", in {batch} windows" if batch > 1 else ""
        raise UnsupportedModelError(
            f"{owner}: the attention of layer {attention.name!r} ({type(network_of(model)).__name__}) is over {count} "
            f"tokens{windows}, but no layer has a grid of at most as many patches. Expected a convolution that cuts "
            "the image into patches, or windows of a map [N, h, w, D]. gradcam with layer='...', rise and occlusion "
            "work without."
        )
    return Tokens(grid, count - math.prod(grid), torch.arange(count)[None])


def _match_rows(tokens: Tensor, output: Tensor) -> Tensor | None:
    """Match tokens to positions of a map ``[1, h, w, D]`` by value: ``[W, T]``; ``None`` if one has no match."""
    rows = output.flatten(0, -2)
    if rows.shape[1] != tokens.shape[-1]:
        return None
    strongest = tokens.flatten(0, 1)[tokens.flatten(0, 1).abs().sum(1).argmax()]
    if len(rows) < 2 or not bool((rows == strongest).all(1).any()):
        return None
    _, which = torch.unique(torch.cat([rows, tokens.flatten(0, 1)]), dim=0, return_inverse=True)
    of_rows, of_tokens = which[: len(rows)], which[len(rows) :]
    position = torch.full((int(which.max()) + 1,), -1, device=which.device)
    position[of_rows] = torch.arange(len(rows), device=which.device)
    places = position[of_tokens]
    # Each position must occur once. Other tokens are padding if they are zero; otherwise they are of another kind.
    once = torch.equal(places[places >= 0].sort().values, torch.arange(len(rows), device=which.device))
    if not once or bool(tokens.flatten(0, 1)[places < 0].any()):
        return None
    return places.reshape(tokens.shape[:2]).cpu()


def _check_order(owner: str, model: nn.Module, images: Tensor, seen: Sequence[Attention]) -> None:
    """Require that the windows of an image are consecutive in the batch."""
    with record_attention(model) as both, torch.no_grad():
        model(_noise(images, 2))
    alone, of_two = seen[0].tokens, both[0].tokens
    assert alone is not None
    if of_two is None or not torch.allclose(of_two[: len(alone)], alone, rtol=1e-3, atol=1e-4):
        raise UnsupportedModelError(
            f"{owner}: the windows of layer {seen[0].name!r} are not ordered by image in the batch. Expected those of "
            "the first image first, as in Swin transformers. rise and occlusion explain any network."
        )


def _check_patches(owner: str, first: Attention, tokens: Tokens, noise: Tensor) -> None:
    """Require that the last tokens of the first attention are the patches, row by row."""
    if first.tokens is None or not first.tokens.requires_grad or len(tokens.places) > 1:
        return
    last = tuple(side - 1 for side in tokens.grid)
    for patch in {(*[0] * (len(last) - 1), min(1, last[-1])), last}:
        number = tokens.extra + int(np.ravel_multi_index(patch, tokens.grid))
        vector = first.tokens[0, number]
        weights = torch.linspace(1, 2, len(vector), dtype=vector.dtype, device=vector.device)
        (gradient,) = torch.autograd.grad((weights * vector).sum(), noise, retain_graph=True, allow_unused=True)
        if gradient is None:
            return
        seen = gradient[0].abs().sum(0)
        if not seen.any():  # a part of the image that the network does not receive
            continue
        for axis, (at, cells) in enumerate(zip(patch, tokens.grid, strict=True)):
            along = seen.sum([other for other in range(seen.ndim) if other != axis])
            middles = (torch.arange(len(along), device=along.device) + 0.5) * cells / len(along)
            center = float((along * middles).sum() / along.sum().clamp(min=1e-30))
            if abs(center - at - 0.5) > 1:
                raise UnsupportedModelError(
                    f"{owner}: token {number} of layer {first.name!r} depends on another part of the image than patch "
                    f"{patch} of {' by '.join(map(str, tokens.grid))}. Expected the patches to be the last tokens, row "
                    "by row. rise and occlusion explain any network."
                )


def _find_read_tokens(last: Attention, tokens: Tokens, runs: Sequence[LayerRun], outputs: Tensor) -> Tensor:
    """Return which tokens the head reads, by the gradient with respect to their rows of the last attention."""
    pooled = [run.inputs[0] for run in runs if isinstance(run.module, nn.Linear) and run.inputs]
    # A head of zeros, as torchvision's before training, has no gradient: then the input of the head is used.
    for result in (outputs, *pooled[-1:]):
        if not isinstance(result, Tensor) or not result.requires_grad or not last.weights.requires_grad:
            continue
        mixed = (result * torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)).sum()
        (gradient,) = torch.autograd.grad(mixed, last.weights, allow_unused=True, retain_graph=True)
        if gradient is None or not gradient.any():
            continue
        rows = gradient.ne(0).any(3).any(1)
        if rows.shape == tokens.places.shape:
            return tokens.in_token_order(rows.float())[0] > 0
        # Separate queries, for example of a class token that alone attends: the first tokens.
        return torch.arange(tokens.count, device=rows.device) < min(tokens.extra, rows.shape[1])
    read = torch.zeros(tokens.count, dtype=torch.bool)
    read[: 1 if tokens.extra else None] = True
    return read
