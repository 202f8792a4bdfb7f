"""Where the numbers of a layer's output lie in the image: feature maps, and tokens of patches."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.modules import pooling

from xaibench.explainers.shared.layer_runs import Run


def is_map(run: Run, runs: list[Run], size: tuple[int, int]) -> bool:
    """Whether the positions of an output are those of the image: as in it, one axis as finely as the other.

    Queries and weights of an attention have four dimensions too; they are made in a layer that is given tokens.
    """
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 4 or len(output) != 1:
        return False
    wide = output.shape[-2] * size[1] / size[0]  # what the width must be, about
    if abs(wide - output.shape[-1]) > max(1.0, wide / 4):
        return False
    return not _inside_tokens(run, runs)


def is_channels_last(run: Run, runs: list[Run], size: tuple[int, int]) -> bool:
    """Whether an output is a map ``[1, h, w, C]`` of more than one position, as a layer normalisation sees it."""
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 4 or len(output) != 1:
        return False
    wide = output.shape[1] * size[1] / size[0]
    if output.shape[1:3].numel() == 1 or abs(wide - output.shape[2]) > max(1.0, wide / 4):
        return False
    return not _inside_tokens(run, runs)


def _inside_tokens(run: Run, runs: list[Run]) -> bool:
    """Whether a layer is part of one that is given tokens."""
    return any(_has_tokens(other.inputs) for other in runs if other.name and run.name.startswith(f"{other.name}."))


def _has_tokens(values: object) -> bool:
    values = values if isinstance(values, tuple) else (values,)
    return any(isinstance(value, Tensor) and value.ndim == 3 for value in values)


def is_tokens(output: object, grid: tuple[int, int]) -> bool:
    """Whether an output is tokens ``[1, T, D]``, at least as many as the grid has patches."""
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def spatial(runs: list[Run], size: tuple[int, int]) -> list[int]:
    """The runs whose output is a map of several positions: not before a convolution, nor pooled, nor channels-last."""
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, nn.Conv2d)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns that layer's very tensor.
        if isinstance(run.output, Tensor) and id(run.output) not in pooled and is_map(run, runs, size):
            height, width = run.output.shape[-2:]
            if height * width > 1 and height <= size[0] and width <= size[1]:
                found.append(i)
    return found


def is_patch_embedding(runs: list[Run], last: int, size: tuple[int, int]) -> bool:
    """Whether the last map is only the beginning of a transformer: its positions go on as tokens, maybe in windows."""
    output = runs[last].output
    assert isinstance(output, Tensor)
    positions = output.shape[-2:].numel()
    later = [run.output for run in runs[last + 1 :]]
    return any(isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2].numel() >= positions for x in later)


def patch_grid(runs: list[Run], size: tuple[int, int], tokens: object = None) -> tuple[int, int] | None:
    """Rows and columns of patches: as in the last map, else the square that ``tokens`` fill."""
    maps = spatial(runs, size)
    if maps:
        output = runs[maps[-1]].output
        assert isinstance(output, Tensor)
        return output.shape[-2], output.shape[-1]
    if isinstance(tokens, Tensor) and tokens.ndim == 3 and size[0] == size[1]:
        side = math.isqrt(tokens.shape[1])
        # A square of patches, alone or behind a class token.
        return (side, side) if tokens.shape[1] - side**2 in (0, 1) else None
    return None
