"""Base class of splits whose samples are read from disk on access: indexing, metadata, normalization, transforms."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.data.base import LazySequence, Sample, Split
from xaibench.data.disk.source import SampleSource

if TYPE_CHECKING:
    from torchvision import tv_tensors

#: A function of ``(image, mask)`` that transforms both together, such as those of ``torchvision.transforms.v2``.
Transform: TypeAlias = Callable[["tv_tensors.Image", "tv_tensors.Mask"], tuple[Tensor, Tensor]]
#: ``"imagenet"``, ``(means, deviations)`` of the channels, or None to leave the pixels in [0, 1].
Normalize: TypeAlias = Literal["imagenet"] | tuple[Sequence[float], Sequence[float]] | None

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class LazySplit(Split):
    """Samples of one split, read from disk on access; only the index is held in memory.

    Args:
        source: The samples of the whole set.
        indices: ``[N]`` numbers of the samples of this split, in order.
        channels: Number of channels of the images.
        normalize: Normalization of the pixels in [0, 1], after ``transform``.
        transform: Transforms an image and its mask together.

    Raises:
        ValueError: If ``normalize`` does not have one mean and one positive deviation per channel.
    """

    def __init__(
        self,
        source: SampleSource,
        indices: NDArray[np.int64],
        *,
        channels: int,
        normalize: Normalize = None,
        transform: Transform | None = None,
    ) -> None:
        self.source = source
        self.indices = np.asarray(indices, dtype=np.int64)
        self.channels = channels
        self.normalize = normalize
        self.transform = transform
        self._statistics = _statistics(normalize, channels)

    @abstractmethod
    def _read_samples(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return images in [0, 1] and masks of samples of the source."""

    @abstractmethod
    def _read_masks(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return masks of samples of the source, without reading their images."""

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """Return one sample for an int; a batch for a slice, a list or a tensor of indices (or of booleans)."""
        if isinstance(index, int | np.integer) or (isinstance(index, Tensor) and index.ndim == 0):
            place = range(len(self))[int(index)]  # range: negative indices, and IndexError past the end
            image, mask, target = self._read(self.indices[[place]])
            return image[0], mask[0], target[0]
        chosen: Sequence[int]
        if isinstance(index, slice):
            chosen = range(len(self))[index]
        elif isinstance(index, Tensor) and index.dtype == torch.bool:
            chosen = torch.nonzero(index).flatten().tolist()
        else:
            chosen = torch.as_tensor(index, dtype=torch.int64).tolist()
        return self._read(self.indices[[range(len(self))[one] for one in chosen]])

    @property
    def images(self) -> Tensor:
        """All images. Reads them from disk on every access; for small splits."""
        return self[:][0]

    @property
    def masks(self) -> Tensor:
        """All masks. Reads them from disk on every access; images are not read."""
        return self._read_masks(self.indices)

    @property
    def targets(self) -> Tensor:
        """``[N]`` class indices."""
        return torch.from_numpy(self.source.targets[self.indices])

    @property
    def ids(self) -> Sequence[str]:
        """``[N]`` unique name of each sample, the same in every run."""
        return LazySequence(lambda number: str(self.source.meta(number)["id"]), self.indices)

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """``[N]`` group of each sample (a patient, a photograph); None if every sample is its own group."""
        return None if self.source.groups is None else self.source.groups[self.indices]

    @property
    def groups_by(self) -> str:
        """Description of the groups, such as ``"patients"``; empty if not known."""
        return self.source.groups_by

    @property
    def meta(self) -> Sequence[Mapping[str, object]]:
        """Metadata of each sample: ``meta[i]["id"]``, ``meta[i]["file"]`` and entries of the data set."""
        return LazySequence(self.source.meta, self.indices)

    @property
    def in_memory(self) -> bool:
        """False: ``images`` and ``masks`` read all samples from disk on every access."""
        return False

    def with_transform(self, transform: Transform | None) -> Self:
        """Return a split with the same samples and another ``transform``, for example to augment the training split.

        Args:
            transform: Transforms image and mask together: any of ``torchvision.transforms.v2``; None = none.

        Returns:
            A new split; this one is unchanged.
        """
        split = copy.copy(self)
        split.transform = transform
        return split

    def _read(self, numbers: NDArray[np.int64]) -> Sample:
        images, masks = self._read_samples(numbers)
        if self.transform is not None and len(numbers):
            images, masks = self._apply_transform(images, masks)
        if self._statistics is not None:
            mean, deviation = (each.view(-1, *[1] * (images.ndim - 2)) for each in self._statistics)
            images.sub_(mean).div_(deviation)
        return images, masks, torch.from_numpy(self.source.targets[numbers])

    def _apply_transform(self, images: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        from torchvision import tv_tensors  # imported here, because it takes 160 MB

        assert self.transform is not None
        pairs = zip(images, masks, strict=True)
        moved = [self.transform(tv_tensors.Image(image), tv_tensors.Mask(mask)) for image, mask in pairs]
        return (
            torch.stack([image.as_subclass(Tensor).float() for image, _ in moved]),
            torch.stack([mask.as_subclass(Tensor).bool() for _, mask in moved]),
        )


def check_gray_or_color(channels: int) -> None:
    """Raise a ``ValueError`` unless a number of channels is 1 or 3."""
    if channels not in (1, 3):
        raise ValueError(f"channels={channels!r}: expected 1 (gray) or 3 (color).")


def _statistics(normalize: Normalize, channels: int) -> tuple[Tensor, Tensor] | None:
    if normalize is None:
        return None
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ValueError(f"normalize={normalize!r}: expected 'imagenet', (means, deviations) or None.")
        normalize = IMAGENET
    means, deviations = (torch.tensor(values, dtype=torch.float32) for values in normalize)
    if means.shape != (channels,) or deviations.shape != (channels,) or not (deviations > 0).all():
        expected = "one mean and one deviation" if channels == 1 else "a mean and a positive deviation of each channel"
        raise ValueError(f"normalize={normalize!r}: expected {expected}, for channels={channels}.")
    return means, deviations
