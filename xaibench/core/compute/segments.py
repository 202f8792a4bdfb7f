"""Pixels that belong together: the cells of a grid, and superpixels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def grid_cells(height: int, width: int, cell: int) -> Tensor:
    """The number ``[H, W]`` of the square cell that each pixel lies in, row by row.

    Args:
        height: H.
        width: W.
        cell: Side of a cell in pixels; those at the right and lower edge may be smaller.

    Returns:
        int64, from 0.

    Example:
        >>> grid_cells(2, 3, 2).tolist()
        [[0, 0, 1], [0, 0, 1]]
    """
    rows, columns = torch.arange(height) // cell, torch.arange(width) // cell
    return rows[:, None] * -(-width // cell) + columns


def superpixels(images: Tensor, n_segments: int) -> Tensor:
    """The number ``[N, H, W]`` of the superpixel of each pixel (Achanta et al. 2012; scikit-image's SLIC).

    Args:
        images: ``[N, C, H, W]``; each is scaled to [0, 1] first.
        n_segments: Superpixels of an image, about.

    Returns:
        int64, from 0, on the CPU.
    """
    from skimage.segmentation import slic

    found = []
    for image in images.detach().cpu().double().numpy():
        # In Lab space, where colours become distances of tens, the usual compactness is 10; in grey levels 0.1.
        grey = len(image) != 3
        labels = slic(image, n_segments, compactness=0.1 if grey else 10.0, channel_axis=0, start_label=0)
        found.append(torch.from_numpy(labels.astype(np.int64)))
    return torch.stack(found)
