"""Relate the output of a layer to positions in the image: feature maps, and tokens of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn.modules import pooling

from xaibench.compute.output import LayerRun
from xaibench.explainers.shared.layer_calls import CONVOLUTIONS


def is_map(run: LayerRun, runs: list[LayerRun], size: tuple[int, ...]) -> bool:
    """Return whether an output ``[1, C, h, w]`` is a feature map with (about) the aspect ratio of the image.

    The queries and weights of an attention have four dimensions too. They are recognized by the tokens that their
    parent layer receives. The number of slices of a volume does not matter: many networks reduce it later than rows
    and columns.
    """
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 2 + len(size) or len(output) != 1:
        return False
    return _has_aspect_ratio(output.shape[2:], size) and not _inside_tokens(run, runs)


def is_channels_last(run: LayerRun, runs: list[LayerRun], size: tuple[int, ...]) -> bool:
    """Return whether an output is a feature map ``[1, h, w, C]`` of more than one position."""
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 2 + len(size) or len(output) != 1:
        return False
    grid = output.shape[1:-1]
    return grid.numel() > 1 and _has_aspect_ratio(grid, size) and not _inside_tokens(run, runs)


def _has_aspect_ratio(grid: Sequence[int], size: Sequence[int]) -> bool:
    """Return whether rows and columns of a grid have about the same ratio as rows and columns of the image."""
    wide = grid[-2] * size[-1] / size[-2]  # approximate width with the aspect ratio of the image
    return abs(wide - grid[-1]) <= max(1.0, wide / 4)


def _inside_tokens(run: LayerRun, runs: list[LayerRun]) -> bool:
    """Return whether a parent of the layer receives tokens."""
    return any(_has_tokens(other.inputs) for other in runs if other.name and run.name.startswith(f"{other.name}."))


def _has_tokens(values: object) -> bool:
    values = values if isinstance(values, tuple) else (values,)
    return any(isinstance(value, Tensor) and value.ndim == 3 for value in values)


def is_tokens(output: object, grid: tuple[int, ...]) -> bool:
    """Return whether an output is a sequence of tokens ``[1, T, D]`` with at least one token per patch of the grid."""
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def spatial_runs(runs: list[LayerRun], size: tuple[int, ...]) -> list[int]:
    """Return the indices of the runs whose output is a feature map of several positions.

    Outputs before the first convolution, outputs of pooling layers and channels-last maps are left out.
    """
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, CONVOLUTIONS)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns the same tensor object as that layer.
        if isinstance(run.output, Tensor) and id(run.output) not in pooled and is_map(run, runs, size):
            grid = run.output.shape[2:]
            if grid.numel() > 1 and all(side <= whole for side, whole in zip(grid, size, strict=True)):
                found.append(i)
    return found


def is_patch_embedding(runs: list[LayerRun], last: int, size: tuple[int, ...]) -> bool:
    """Return whether the last feature map only embeds the patches of a transformer.

    That is the case if as many tokens as it has positions follow, possibly in windows.
    """
    output = runs[last].output
    assert isinstance(output, Tensor)
    positions = output.shape[2:].numel()
    later = [run.output for run in runs[last + 1 :]]
    return any(isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2].numel() >= positions for x in later)


def patch_grid(runs: list[LayerRun], size: tuple[int, ...], tokens: object = None) -> tuple[int, ...] | None:
    """Return rows and columns of patches.

    They are taken from the last feature map. Without one, they are the square (for volumes, the cube) formed by
    ``tokens``.
    """
    maps = spatial_runs(runs, size)
    if maps:
        output = runs[maps[-1]].output
        assert isinstance(output, Tensor)
        return tuple(output.shape[2:])
    long = [side for side in size if side > 1]
    if isinstance(tokens, Tensor) and tokens.ndim == 3 and len(set(long)) == 1:
        side = round(tokens.shape[1] ** (1 / len(long)))
        # A square of patches, with or without a class token before it.
        if tokens.shape[1] - side ** len(long) in (0, 1):
            return tuple(side if whole > 1 else 1 for whole in size)
    return None
