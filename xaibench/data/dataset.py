"""What a data set is once it is in memory: three splits and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils import data as torch_data

from xaibench.core.part_info import DatasetInfo

#: One sample ``(image [C,H,W], mask [H,W], target [])``, or a batch of them with a leading ``N``.
Sample: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Split(torch_data.Dataset[Sample]):
    """Samples of one split, held in memory (:class:`~xaibench.data.disk.disk_split.DiskSplit` reads them from disk).

    Args:
        images: ``[N, C, H, W]`` float32.
        masks: ``[N, H, W]`` bool, ``True`` = important.
        targets: ``[N]`` int64 class indices.

    Raises:
        TypeError: If a tensor has another type.
        ValueError: If the shapes do not belong together.

    Example:
        >>> split = Split(torch.zeros(5, 1, 8, 8), torch.zeros(5, 8, 8, dtype=torch.bool), torch.arange(5))
        >>> [tuple(part.shape) for part in split[0]]
        [(1, 8, 8), (8, 8), ()]
        >>> [tuple(part.shape) for part in split[[3, 1]]]
        [(2, 1, 8, 8), (2, 8, 8), (2,)]
    """

    def __init__(self, images: Tensor, masks: Tensor, targets: Tensor) -> None:
        for name, tensor, dtype in (
            ("images", images, torch.float32),
            ("masks", masks, torch.bool),
            ("targets", targets, torch.int64),
        ):
            if tensor.dtype != dtype:
                raise TypeError(f"{name} are {tensor.dtype}, expected {dtype}; convert them with .to({dtype}).")
        count = len(targets)
        if images.ndim != 4 or masks.shape != (count, *images.shape[2:]) or images.shape[0] != count:
            raise ValueError(
                "Expected images [N,C,H,W], masks [N,H,W] and targets [N] of one N, H and W; got "
                f"{list(images.shape)}, {list(masks.shape)} and {list(targets.shape)}."
            )
        self._images = images
        self._masks = masks
        self._targets = targets

    @property
    def images(self) -> Tensor:
        """``[N, C, H, W]`` float32."""
        return self._images

    @property
    def masks(self) -> Tensor:
        """``[N, H, W]`` bool, ``True`` = important."""
        return self._masks

    @property
    def targets(self) -> Tensor:
        """``[N]`` int64 class indices."""
        return self._targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """One sample for an int; a whole batch, in one indexing, for a slice, a list or a tensor of indices."""
        if not isinstance(index, int | slice | Tensor):
            index = torch.as_tensor(index, dtype=torch.int64)
        return self.images[index], self.masks[index], self.targets[index]

    def __repr__(self) -> str:
        return f"Split({len(self)} samples, images {list(self.images.shape[1:])})"


@dataclass(frozen=True)
class Dataset:
    """A data set: ``train``, ``val`` and ``test``, and what they are.

    Attributes:
        train: Samples to train on.
        val: Samples to choose the best epoch by.
        test: Samples to explain and score.
        info: What is fixed about the set, whatever its seed.
        parameters: The parameters these samples were made with, defaults filled in.
        batch_size: The batch size that the set was published with.
    """

    train: Split
    val: Split
    test: Split
    info: DatasetInfo
    parameters: Mapping[str, object] = field(default_factory=dict)
    batch_size: int = 32

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their index."""
        return self.info.classes

    def __repr__(self) -> str:
        sizes = f"train={len(self.train)}, val={len(self.val)}, test={len(self.test)}"
        given = "".join(f", {key}={value!r}" for key, value in self.parameters.items())
        return f"Dataset({self.info.name!r}, {sizes}{given})"
