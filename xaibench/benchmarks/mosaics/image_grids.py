"""Mosaics of labeled images for the grid pointing game.

A mosaic is a grid of images of different classes. Each of its classes is explained once, and its attribution should be
inside its own cell (:func:`xaibench.metrics.grid_pointing`). Böhle, Fritz, Schiele: Convolutional Dynamic Alignment
Networks for Interpretable Classifications, CVPR 2021 (arXiv 2104.00032); Rao, Böhle, Schiele: Towards Better
Understanding Attribution Methods, CVPR 2022 (arXiv 2205.10435), Section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.core.checks import check_count
from xaibench.data.base import Split

#: Batch size of the forward passes.
_BATCH_SIZE = 32


class MosaicSplit(Split):
    """Mosaics, each repeated once per cell, with that cell as the mask and its class as the target.

    The samples of one mosaic are a group.

    Attributes:
        cells: ``[N]`` int64 number of the cell, row by row.
    """

    def __init__(
        self, images: Tensor, masks: Tensor, targets: Tensor, cells: Tensor, groups: NDArray[np.int64]
    ) -> None:
        super().__init__(images, masks, targets, groups=groups, groups_by="mosaics")
        self.cells = cells


def make_mosaics(images: Tensor, targets: Tensor, *, side: int = 2, count: int = 100, seed: int = 0) -> MosaicSplit:
    """Build random mosaics of ``side`` × ``side`` images of different classes.

    Args:
        images: ``[N, C, h, w]`` float32, images that the network classifies with confidence (:func:`select_confident`).
        targets: ``[N]`` class indices, with at least ``side²`` different classes.
        side: Number of cells per row and column; 2 or 3 in the paper.
        count: Number of mosaics. An image may be part of several.
        seed: Seed of the random choice.

    Returns:
        ``count * side²`` samples ``[C, side * h, side * w]``: every mosaic once per cell.

    Raises:
        ValueError: If there are fewer classes than cells, or a parameter is out of range.

    Example:
        >>> split = make_mosaics(torch.rand(6, 3, 4, 4), torch.tensor([0, 1, 2, 3, 4, 4]), count=5)
        >>> split.images.shape, int(split.masks[0].sum()), split.cells[:4].tolist()
        (torch.Size([20, 3, 8, 8]), 16, [0, 1, 2, 3])
    """
    check_count("side", side)
    check_count("count", count)
    check_count("seed", seed, least=0)
    rng, cells = np.random.default_rng(seed), side**2
    labels = targets.cpu().numpy()
    classes = np.unique(labels)
    if len(classes) < cells:
        raise ValueError(
            f"targets have {len(classes)} different classes, expected at least {cells}: one per cell of "
            f"{side}×{side}. Give images of more classes, or a smaller side."
        )
    drawn = rng.permuted(np.tile(classes, (count, 1)), axis=1)[:, :cells]
    chosen = torch.from_numpy(np.array([[rng.choice(np.flatnonzero(labels == one)) for one in row] for row in drawn]))
    height, width = images.shape[2:]
    laid = images[chosen].reshape(count, side, side, *images.shape[1:])  # [count, row, column, C, h, w]
    whole = laid.permute(0, 3, 1, 4, 2, 5).reshape(count, images.shape[1], side * height, side * width)
    cell = torch.eye(cells, dtype=torch.bool).reshape(cells, side, 1, side, 1)
    masks = cell.expand(cells, side, height, side, width).reshape(cells, side * height, side * width)
    return MosaicSplit(
        whole.repeat_interleave(cells, 0),
        masks.repeat(count, 1, 1),
        targets.cpu()[chosen].flatten(),
        torch.arange(cells).repeat(count),
        np.repeat(np.arange(count), cells),
    )


def select_confident(model: Callable[[Tensor], Tensor], images: Tensor, targets: Tensor, least: float = 0.9) -> Tensor:
    """Return which images a network assigns to their class with at least a given probability.

    For other images it is not known where the network should look. Rao et al. (2022) use the images with the highest
    confidence.

    Args:
        model: Maps images ``[n, C, h, w]`` to logits ``[n, K]``, in evaluation mode.
        images: ``[N, C, h, w]``.
        targets: ``[N]`` class indices.
        least: Minimum probability of the target, in (0, 1].

    Returns:
        ``[N]`` bool.

    Raises:
        ValueError: If ``least`` is not in (0, 1].

    Example:
        >>> logits = lambda images: torch.tensor([[5.0, 0.0], [0.1, 0.0], [0.0, 5.0]])
        >>> select_confident(logits, torch.zeros(3, 1, 2, 2), torch.tensor([0, 0, 0])).tolist()
        [True, False, False]
    """
    if not 0 < least <= 1:
        raise ValueError(f"least={least!r}: expected a probability in (0, 1].")
    with torch.inference_mode():
        shares = torch.cat([model(batch).double().softmax(1).cpu() for batch in torch.split(images, _BATCH_SIZE)])
    return shares.gather(1, targets.cpu()[:, None])[:, 0] >= least
