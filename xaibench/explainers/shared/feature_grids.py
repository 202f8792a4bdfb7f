"""Relate the output of a layer to positions in the image: feature maps, and tokens of patches."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.modules import pooling

from xaibench.explainers.shared.layer_calls import LayerRun


def is_map(run: LayerRun, runs: list[LayerRun], size: tuple[int, int]) -> bool:
    """Return whether an output ``[1, C, h, w]`` is a feature map with (about) the aspect ratio of the image.

    The queries and weights of an attention have four dimensions too. They are recognized by the tokens that their
    parent layer receives.
    """
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 4 or len(output) != 1:
        return False
    wide = output.shape[-2] * size[1] / size[0]  # approximate width with the aspect ratio of the image
    if abs(wide - output.shape[-1]) > max(1.0, wide / 4):
        return False
    return not _inside_tokens(run, runs)


def is_channels_last(run: LayerRun, runs: list[LayerRun], size: tuple[int, int]) -> bool:
    """Return whether an output is a feature map ``[1, h, w, C]`` of more than one position."""
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 4 or len(output) != 1:
        return False
    wide = output.shape[1] * size[1] / size[0]
    if output.shape[1:3].numel() == 1 or abs(wide - output.shape[2]) > max(1.0, wide / 4):
        return False
    return not _inside_tokens(run, runs)


def _inside_tokens(run: LayerRun, runs: list[LayerRun]) -> bool:
    """Return whether a parent of the layer receives tokens."""
    return any(_has_tokens(other.inputs) for other in runs if other.name and run.name.startswith(f"{other.name}."))


def _has_tokens(values: object) -> bool:
    values = values if isinstance(values, tuple) else (values,)
    return any(isinstance(value, Tensor) and value.ndim == 3 for value in values)


def is_tokens(output: object, grid: tuple[int, int]) -> bool:
    """Return whether an output is a sequence of tokens ``[1, T, D]`` with at least one token per patch of the grid."""
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def spatial_runs(runs: list[LayerRun], size: tuple[int, int]) -> list[int]:
    """Return the indices of the runs whose output is a feature map of several positions.

    Outputs before the first convolution, outputs of pooling layers and channels-last maps are left out.
    """
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, nn.Conv2d)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns the same tensor object as that layer.
        if isinstance(run.output, Tensor) and id(run.output) not in pooled and is_map(run, runs, size):
            height, width = run.output.shape[-2:]
            if height * width > 1 and height <= size[0] and width <= size[1]:
                found.append(i)
    return found


def is_patch_embedding(runs: list[LayerRun], last: int, size: tuple[int, int]) -> bool:
    """Return whether the last feature map only embeds the patches of a transformer.

    That is the case if as many tokens as it has positions follow, possibly in windows.
    """
    output = runs[last].output
    assert isinstance(output, Tensor)
    positions = output.shape[-2:].numel()
    later = [run.output for run in runs[last + 1 :]]
    return any(isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2].numel() >= positions for x in later)


def patch_grid(runs: list[LayerRun], size: tuple[int, int], tokens: object = None) -> tuple[int, int] | None:
    """Return rows and columns of patches.

    They are taken from the last feature map. Without one, they are the square formed by ``tokens``.
    """
    maps = spatial_runs(runs, size)
    if maps:
        output = runs[maps[-1]].output
        assert isinstance(output, Tensor)
        return output.shape[-2], output.shape[-1]
    if isinstance(tokens, Tensor) and tokens.ndim == 3 and size[0] == size[1]:
        side = math.isqrt(tokens.shape[1])
        # A square of patches, with or without a class token before it.
        return (side, side) if tokens.shape[1] - side**2 in (0, 1) else None
    return None
