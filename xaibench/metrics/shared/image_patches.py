"""Patches of a regular grid over the image."""

from __future__ import annotations

import torch
from torch import Tensor

from xaibench.metrics.shared.perturbed_images import constant


def patch_numbers(height: int, width: int, grid_size: int) -> Tensor:
    """Return the patch ``[H * W]`` of each pixel, numbered row by row; a side has at most as many patches as pixels.

    Example:
        >>> patch_numbers(2, 3, 2).reshape(2, 3).tolist()
        [[0, 0, 1], [2, 2, 3]]
    """
    rows, columns = min(grid_size, height), min(grid_size, width)
    down = torch.arange(height) * rows // height
    across = torch.arange(width) * columns // width
    return (down[:, None] * columns + across).flatten()


def patch_sums(maps: Tensor, grid_size: int) -> Tensor:
    """Return the sums ``[N, patches]`` of maps ``[N, H, W]``, up to one factor per map; zero for a constant map."""
    peak = maps.double().abs().amax((1, 2), keepdim=True)
    flat = (maps.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)  # avoids overflow in sums of huge values
    labels = patch_numbers(maps.shape[1], maps.shape[2], grid_size).to(flat.device)
    sums = flat.new_zeros(len(flat), int(labels.max()) + 1).index_add_(1, labels, flat)
    return sums.masked_fill_(constant(maps)[:, None], 0)  # otherwise patch sizes would decide
