"""Splits of images whose parts are known and can be removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from xaibench.core.types import Array
from xaibench.data.base import Split


class PartSplit(Split):
    """A split of images that show an object of several parts, each of which can be removed.

    Args:
        images: ``[N, C, H, W]`` float32.
        masks: ``[N, H, W]`` bool.
        targets: ``[N]`` int64 class indices.
        parts: ``[N, H, W]`` uint8: the number of the part that is visible in each pixel, starting at 1; 0 = none.
        behind: ``[N, C, H, W]`` float32: what a pixel shows if the part that is visible in it is removed.

    Raises:
        TypeError: If a tensor has another dtype.
        ValueError: If the shapes do not match.

    Example:
        >>> images, masks = torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool)
        >>> parts = torch.tensor([[[1, 1], [2, 0]]], dtype=torch.uint8)
        >>> split = PartSplit(images, masks, torch.tensor([0]), parts, torch.zeros(1, 1, 2, 2))
        >>> split.part_masks(0).sum((1, 2)).tolist(), split.without(0, 1).tolist()
        ([2, 1], [[[0.0, 0.0], [1.0, 1.0]]])
    """

    def __init__(self, images: Tensor, masks: Tensor, targets: Tensor, parts: Tensor, behind: Tensor) -> None:
        super().__init__(images, masks, targets)
        for name, tensor, like in (("parts", parts, masks), ("behind", behind, images)):
            if tensor.shape != like.shape:
                raise ValueError(f"{name} are {list(tensor.shape)}, expected {list(like.shape)}, one value per pixel.")
        if parts.dtype != torch.uint8 or behind.dtype != images.dtype:
            raise TypeError(
                f"parts are {parts.dtype} and behind is {behind.dtype}; expected torch.uint8 and {images.dtype}."
            )
        self.parts = parts
        self.behind = behind

    @property
    def part_count(self) -> int:
        """The largest number of a part."""
        return int(self.parts.max()) if self.parts.numel() else 0

    def part_masks(self, index: int) -> Tensor:
        """Return the visible pixels of each part of one sample.

        Args:
            index: Index of the sample.

        Returns:
            ``[P, H, W]`` bool, where P is the largest number of a part.
        """
        return self.parts[index] == torch.arange(1, self.part_count + 1)[:, None, None]

    def without(self, index: int, part: int) -> Tensor:
        """Return the image of one sample without a part.

        Args:
            index: Index of the sample.
            part: Number of the part, starting at 1.

        Returns:
            ``[C, H, W]``; what is behind the part is visible.

        Raises:
            ValueError: If there is no part of this number.
        """
        if not 1 <= part <= self.part_count:
            raise ValueError(f"part is {part!r}; expected a number from 1 to {self.part_count}.")
        return torch.where(self.parts[index] == part, self.behind[index], self.images[index])

    def metric_inputs(self, index: slice | Tensor) -> Mapping[str, Any]:
        """Return the parts and the background behind them, which metrics take as parameters.

        Args:
            index: The samples.

        Returns:
            ``parts`` ``[n, H, W]`` and ``behind`` ``[n, C, H, W]``.
        """
        inputs: dict[str, Array] = {"parts": self.parts[index], "behind": self.behind[index]}
        return inputs
