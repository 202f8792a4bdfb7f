"""Partitions of an image: grid cells and superpixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def grid_cells(sides: Sequence[int], cell: int) -> Tensor:
    """Return the index ``[H, W]`` of the square (cubic) grid cell of each pixel, numbered row by row.

    Args:
        sides: H and W, or D, H and W.
        cell: Side length of a cell in pixels; cells at the far edges may be smaller.

    Returns:
        int64, from 0.

    Example:
        >>> grid_cells((2, 3), 2).tolist()
        [[0, 0, 1], [0, 0, 1]]
    """
    cells = torch.zeros((), dtype=torch.int64)
    for side in sides:
        cells = cells[..., None] * -(-side // cell) + torch.arange(side) // cell
    return cells


def superpixels(images: Tensor, n_segments: int) -> Tensor:
    """Return the index ``[N, H, W]`` of the superpixel of each pixel (SLIC, Achanta et al. 2012; scikit-image).

    Volumes have supervoxels, by the same algorithm in three axes.

    Args:
        images: ``[N, C, H, W]``; each is scaled to [0, 1] first.
        n_segments: Approximate number of superpixels per image.

    Returns:
        int64, from 0, on the CPU.
    """
    from skimage.segmentation import slic

    segments = []
    for image in images.detach().cpu().double().numpy():
        # The usual compactness is 10 in Lab space, where color distances are in the tens, and 0.1 for gray levels.
        gray = len(image) != 3
        labels = slic(image, n_segments, compactness=0.1 if gray else 10.0, channel_axis=0, start_label=0)
        segments.append(torch.from_numpy(labels.astype(np.int64)))
    return torch.stack(segments)
