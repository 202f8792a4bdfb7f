"""A split of volumes that are read from disk on access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.data.disk.lazy_split import LazySplit, Normalize, Transform, check_gray_or_color
from xaibench.data.disk.source import VolumeSource


class VolumeSplit(LazySplit):
    """Volumes of one split, read from disk on access: images ``[N, C, D, H, W]``, masks ``[N, D, H, W]``.

    Volumes are not scaled. A batch needs volumes of one shape: crops have one, whole scans are read one at a time.

    Args:
        source: The samples of the whole set.
        indices: ``[N]`` numbers of the samples of this split, in order.
        channels: 1, or 3 for three equal channels.
        normalize: Normalization of the voxels in [0, 1], after ``transform``.
        transform: Transforms a volume ``[C, D, H, W]`` and its mask ``[D, H, W]`` together. The transforms of
            ``torchvision.transforms.v2`` treat all slices of a volume in the same way.

    Raises:
        ValueError: If ``channels`` is neither 1 nor 3, or ``normalize`` does not have one mean and one positive
            deviation per channel.
    """

    source: VolumeSource

    def __init__(
        self,
        source: VolumeSource,
        indices: NDArray[np.int64],
        *,
        channels: int = 1,
        normalize: Normalize = None,
        transform: Transform | None = None,
    ) -> None:
        check_gray_or_color(channels)
        super().__init__(source, indices, channels=channels, normalize=normalize, transform=transform)

    def metric_inputs(self, index: slice | Tensor) -> Mapping[str, Any]:
        """Return the distance of neighboring voxels, which metrics of distance take as ``spacing``.

        Args:
            index: The samples.

        Returns:
            ``spacing`` ``[n, 3]`` float64 in mm, along the axes D, H and W.
        """
        chosen = index if isinstance(index, slice) else index.numpy()
        return {"spacing": self.source.spacing[self.indices[chosen]]}

    def _read_samples(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        masks = self._read_masks(numbers)
        volumes = [torch.from_numpy(self.source.volume(number)) for number in numbers.tolist()]
        images = _stack(volumes, torch.float32)[:, None]
        return images.repeat(1, 3, 1, 1, 1) if self.channels == 3 else images, masks

    def _read_masks(self, numbers: NDArray[np.int64]) -> Tensor:
        shapes = dict.fromkeys(self.source.shape(number) for number in numbers.tolist())
        if len(shapes) > 1:
            raise ValueError(
                f"{len(numbers)} volumes have the shapes {', '.join(str(list(shape)) for shape in shapes)}, expected "
                "one shape per batch. Read whole scans one at a time (batch_size=1), or load crops: crop=(D, H, W)."
            )
        return _stack([torch.from_numpy(self._read_mask(number)) for number in numbers.tolist()], torch.bool)

    def _read_mask(self, number: int) -> NDArray[np.bool_]:
        mask = self.source.mask(number)
        return np.zeros(self.source.shape(number), dtype=np.bool_) if mask is None else mask

    def __repr__(self) -> str:
        return f"VolumeSplit({len(self)} volumes, {self.channels} channel{'s' if self.channels > 1 else ''})"


def _stack(volumes: list[Tensor], dtype: torch.dtype) -> Tensor:
    if len(volumes) == 1:
        return volumes[0][None]  # not copied: a whole scan takes hundreds of megabytes
    return torch.stack(volumes) if volumes else torch.empty((0, 0, 0, 0), dtype=dtype)
