"""Base class of splits whose samples are read from disk on access: indexing, metadata, normalization, transforms."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import get_worker_info
from torch.utils.dlpack import from_dlpack

from xaibench.data.base import LazySequence, Sample, Split
from xaibench.data.disk.source import SampleSource, Source

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
            number = range(len(self))[int(index)]  # range: negative indices, and IndexError past the end
            image, mask, target = self._read(self.indices[[number]])
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
    def has_mask(self) -> NDArray[np.bool_]:
        """``[N]`` whether a sample is annotated. Its mask may be empty (a true negative)."""
        return self.source.annotated[self.indices]

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

    def without(self, positions: Sequence[int]) -> Self:
        """Return a split that lacks the samples at some positions; this one is unchanged."""
        split = copy.copy(self)
        split.indices = np.delete(self.indices, positions)
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


#: Weights of red, green and blue in gray (ITU-R BT.601, as in Pillow).
_LUMINANCE = torch.tensor([0.299, 0.587, 0.114])


class DiskSplit(LazySplit):
    """Samples of one split, read from disk on access; only the index is held in memory.

    Images are resized (bilinear, antialiased), masks by the nearest pixel. An object too small to
    contain the center of a pixel keeps the pixel that has most of it.

    Args:
        source: The samples of the whole set.
        indices: ``[N]`` numbers of the samples of this split, in order.
        size: Height and width of the images: a number, or both.
        channels: 3, or 1 for gray images. Gray images are repeated in 3 channels; colors are converted to 1 channel by
            their luminance.
        normalize: Normalization of the pixels in [0, 1], after ``transform``.
        transform: Transforms the resized image and its mask together.

    Raises:
        ValueError: If the size is below 1, ``channels`` is neither 1 nor 3, or ``normalize`` does not have one mean and
            one positive deviation per channel.
    """

    source: Source

    def __init__(
        self,
        source: Source,
        indices: NDArray[np.int64],
        *,
        size: int | tuple[int, int] = 224,
        channels: int = 3,
        normalize: Normalize = None,
        transform: Transform | None = None,
    ) -> None:
        sides = (size, size) if isinstance(size, int) else size
        if min(sides) < 1:
            raise ValueError(f"size={size!r}: expected at least 1 pixel.")
        check_gray_or_color(channels)
        super().__init__(source, indices, channels=channels, normalize=normalize, transform=transform)
        self.size = size
        self._sides = sides

    def _read_samples(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        count, sides = len(numbers), self._sides
        # Every sample is written into the batch directly: stacking would copy 600 kB per sample.
        images = _allocate(count, self.channels, *sides)
        masks = _allocate(count, *sides, dtype=torch.bool)
        for image, mask, number in zip(images, masks, numbers.tolist(), strict=True):
            write_image(image, _to_channels_first(self.source.image(number, max(sides))))
            mask.copy_(torch.from_numpy(self._read_mask(number)))
        return images, masks

    def _read_masks(self, numbers: NDArray[np.int64]) -> Tensor:
        return torch.stack([torch.from_numpy(self._read_mask(number)) for number in numbers.tolist()])

    def _read_mask(self, number: int) -> NDArray[np.bool_]:
        mask = self.source.mask(number)
        return np.zeros(self._sides, dtype=np.bool_) if mask is None else resize_mask(mask, self._sides)

    def __repr__(self) -> str:
        return f"DiskSplit({len(self)} samples, images {[self.channels, *self._sides]})"


def resize_mask(mask: NDArray[np.bool_], size: int | tuple[int, int]) -> NDArray[np.bool_]:
    """Resize a mask to ``[size, size]``, or to ``size = (H, W)``, by nearest-neighbor interpolation.

    If no pixel of the mask would be left, because the object is too small, the output pixel that has most of it is set.
    The sample would otherwise count as a true negative.

    Example:
        >>> resize_mask(np.eye(4, dtype=bool), 2).tolist()
        [[True, False], [False, True]]
        >>> resize_mask(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool), 2).tolist()
        [[False, True], [False, False]]
    """
    height, width = mask.shape
    wanted_height, wanted_width = (size, size) if isinstance(size, int) else size
    rows = ((np.arange(wanted_height) + 0.5) * height / wanted_height).astype(np.int64)
    columns = ((np.arange(wanted_width) + 0.5) * width / wanted_width).astype(np.int64)
    scaled: NDArray[np.bool_] = mask[rows][:, columns]  # rows, then columns: six times faster than both at once
    if mask.any() and not scaled.any():
        marked_rows, marked_columns = np.nonzero(mask)
        held = np.zeros((wanted_height, wanted_width), dtype=np.int64)
        np.add.at(held, (marked_rows * wanted_height // height, marked_columns * wanted_width // width), 1)
        scaled[np.unravel_index(held.argmax(), held.shape)] = True
    return scaled


def _allocate(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    if get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    # A worker process passes its batches in shared memory. Allocated there, as in torch's collate, they are not copied.
    size = math.prod(shape) * dtype.itemsize
    storage: torch.UntypedStorage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=dtype).set_(storage).view(shape)


def write_image(out: Tensor, values: Tensor) -> None:
    """Resize an image, convert its channels, and write it as values in [0, 1].

    Args:
        out: ``[1 or 3, H, W]``, overwritten.
        values: ``[1 or 3, h, w]``, or ``[4, h, w]`` with an unused last channel: uint8, or float32 in [0, 1].
    """
    if values.shape[1:] != out.shape[1:]:
        # Equal to Pillow's resize to within 1/256, in a third of its time.
        size = (out.shape[1], out.shape[2])
        values = interpolate(values[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
    is_eight_bit = values.dtype == torch.uint8
    if len(out) < len(values) and len(out) == 1:
        values = torch.tensordot(_LUMINANCE, values[:3].to(torch.float32), dims=1)[None]
    out.copy_(values[:3])
    if is_eight_bit:
        out.div_(255)


def _to_channels_first(image: Image.Image) -> Tensor:
    """Return ``[1 or 3, h, w]``, or ``[4, h, w]`` with an unused last channel."""
    if image.mode == "RGB" and hasattr(image, "__arrow_c_array__"):
        import pyarrow

        with suppress(ValueError):  # images of 16 MB or more are stored in several blocks
            # Pillow's own memory, four bytes per pixel: not copied, and torch resizes four channels faster than three.
            pixels: Tensor = from_dlpack(pyarrow.array(image).values)
            return pixels.view(image.height, image.width, 4).permute(2, 0, 1)
    return torch.from_numpy(np.atleast_3d(np.array(image))).permute(2, 0, 1)
