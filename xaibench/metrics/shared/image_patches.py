"""Patches of a regular grid over the image or volume."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from xaibench.metrics.shared.perturbed_images import constant, peaks


def patch_numbers(sides: Sequence[int], grid_size: int) -> Tensor:
    """Return the patch of each pixel, numbered row by row; a side has at most as many patches as pixels.

    Args:
        sides: Spatial axes of the image: H and W, or D, H and W.
        grid_size: Patches along each axis.

    Returns:
        ``[H, W]`` int64, or ``[D, H, W]``.

    Example:
        >>> patch_numbers((2, 3), 2).tolist()
        [[0, 0, 1], [2, 2, 3]]
    """
    numbers = torch.zeros((), dtype=torch.int64)
    for side in sides:
        patches = min(grid_size, side)
        numbers = numbers[..., None] * patches + torch.arange(side) * patches // side
    return numbers


def patch_sums(maps: Tensor, grid_size: int) -> Tensor:
    """Return the sums ``[N, patches]`` of maps ``[N, H, W]``, up to one factor per map; zero for a constant map."""
    peak = peaks(maps.double())
    flat = (maps.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)  # avoids overflow in sums of huge values
    labels = patch_numbers(maps.shape[1:], grid_size).flatten().to(flat.device)
    sums = flat.new_zeros(len(flat), int(labels.max()) + 1).index_add_(1, labels, flat)
    return sums.masked_fill_(constant(maps)[:, None], 0)  # otherwise patch sizes would decide
