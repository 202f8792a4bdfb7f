"""A split whose samples stay on disk until they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import get_worker_info
from torch.utils.dlpack import from_dlpack

from xaibench.data.dataset import Each, Sample, Split
from xaibench.data.disk.source import Source

if TYPE_CHECKING:
    from torchvision import tv_tensors

#: A function of ``(image, mask)`` that moves both together, such as those of ``torchvision.transforms.v2``.
Transform: TypeAlias = Callable[["tv_tensors.Image", "tv_tensors.Mask"], tuple[Tensor, Tensor]]
#: ``"imagenet"``, ``(means, deviations)`` of the channels, or None to leave the pixels in [0, 1].
Normalize: TypeAlias = Literal["imagenet"] | tuple[Sequence[float], Sequence[float]] | None

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class DiskSplit(Split):
    """Samples of one split, read when they are asked for; nothing but the index is held in memory.

    Images are scaled to ``size × size`` (bilinear, antialiased), masks likewise by the nearest pixel; an object too
    small to meet one keeps the pixel that holds most of it.

    Args:
        source: The set.
        indices: ``[N]`` which of its samples, in order.
        size: Side of the images.
        normalize: What is done with the pixels of [0, 1], after ``transform``.
        transform: Moves the scaled image and its mask together.

    Raises:
        ValueError: For a size below 1, or means and deviations that are not three each.
    """

    def __init__(
        self,
        source: Source,
        indices: NDArray[np.int64],
        *,
        size: int = 224,
        normalize: Normalize = None,
        transform: Transform | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"size={size!r}: expected at least 1 pixel.")
        self.source = source
        self.indices = np.asarray(indices, dtype=np.int64)
        self.size = size
        self.normalize = normalize
        self.transform = transform
        self._statistics = _statistics(normalize)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """One sample for an int; a batch of them for a slice, a list or a tensor of indices (or of booleans)."""
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
        """All images ``[N, 3, size, size]``: reads them all, every time; for small splits."""
        return self[:][0]

    @property
    def masks(self) -> Tensor:
        """All masks ``[N, size, size]``: reads them all, every time; images are not read."""
        return torch.stack([torch.from_numpy(self._mask(one)) for one in self.indices.tolist()])

    @property
    def targets(self) -> Tensor:
        """``[N]`` class indices."""
        return torch.from_numpy(self.source.targets[self.indices])

    @property
    def ids(self) -> Sequence[str]:
        """``[N]`` the name of each sample, stable over runs."""
        return Each(lambda number: str(self.source.meta(number)["id"]), self.indices)

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """``[N]`` which samples belong together (a patient's, a photograph's); None where each stands for itself."""
        return None if self.source.groups is None else self.source.groups[self.indices]

    @property
    def meta(self) -> Sequence[Mapping[str, object]]:
        """What is known of each sample: ``meta[i]["id"]``, ``meta[i]["file"]`` and what the set adds."""
        return Each(self.source.meta, self.indices)

    @property
    def in_memory(self) -> bool:
        """False: ``images`` and ``masks`` read all samples, every time."""
        return False

    def with_transform(self, transform: Transform | None) -> DiskSplit:
        """The same samples under another ``transform``: augment the training split and no other.

        Args:
            transform: Moves image and mask together: any of ``torchvision.transforms.v2``; None = none.

        Returns:
            A split of its own; this one is left as it is.
        """
        return DiskSplit(self.source, self.indices, size=self.size, normalize=self.normalize, transform=transform)

    def _read(self, numbers: NDArray[np.int64]) -> Sample:
        count, size = len(numbers), self.size
        # Each sample is written where it stays in the batch: stacking would copy 600 kB a sample.
        images = _empty(count, 3, size, size)
        masks = _empty(count, size, size, dtype=torch.bool)
        for image, mask, number in zip(images, masks, numbers.tolist(), strict=True):
            _fill(image, self.source.image(number, size))
            mask.copy_(torch.from_numpy(self._mask(number)))
        if self.transform is not None and count:
            images, masks = self._moved(images, masks)
        if self._statistics is not None:
            images.sub_(self._statistics[0]).div_(self._statistics[1])
        return images, masks, torch.from_numpy(self.source.targets[numbers])

    def _moved(self, images: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        from torchvision import tv_tensors  # 160 MB, which only this needs

        assert self.transform is not None
        pairs = zip(images, masks, strict=True)
        moved = [self.transform(tv_tensors.Image(image), tv_tensors.Mask(mask)) for image, mask in pairs]
        return (
            torch.stack([image.as_subclass(Tensor).float() for image, _ in moved]),
            torch.stack([mask.as_subclass(Tensor).bool() for _, mask in moved]),
        )

    def _mask(self, number: int) -> NDArray[np.bool_]:
        mask = self.source.mask(number)
        return np.zeros((self.size, self.size), dtype=np.bool_) if mask is None else nearest(mask, self.size)

    def __repr__(self) -> str:
        return f"DiskSplit({len(self)} samples, images {[3, self.size, self.size]})"


def nearest(mask: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """``[size, size]``: each pixel has the value of the mask's pixel under its centre.

    An object so small that no centre meets it would vanish, and its sample count as one that shows nothing: of it, the
    pixel that holds most is kept.

    Example:
        >>> nearest(np.eye(4, dtype=bool), 2).tolist()
        [[True, False], [False, True]]
        >>> nearest(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool), 2).tolist()
        [[False, True], [False, False]]
    """
    height, width = mask.shape
    rows = ((np.arange(size) + 0.5) * height / size).astype(np.int64)
    columns = ((np.arange(size) + 0.5) * width / size).astype(np.int64)
    scaled: NDArray[np.bool_] = mask[rows][:, columns]  # rows, then columns: six times faster than both at once
    if mask.any() and not scaled.any():
        marked_rows, marked_columns = np.nonzero(mask)
        held = np.zeros((size, size), dtype=np.int64)
        np.add.at(held, (marked_rows * size // height, marked_columns * size // width), 1)
        scaled[np.unravel_index(held.argmax(), held.shape)] = True
    return scaled


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    if get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    # A worker hands its batches over in shared memory. Made there, as by torch's own collating, they are not copied.
    size = math.prod(shape) * dtype.itemsize
    storage: torch.UntypedStorage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=dtype).set_(storage).view(shape)


def _fill(out: Tensor, image: Image.Image) -> None:
    """Write the image, scaled, into ``out`` ``[3, size, size]`` as values in [0, 1]."""
    values = _channels_last(image).permute(2, 0, 1)
    if values.shape[1:] != out.shape[1:]:
        # The same as Pillow's resize to within one step of 256, in a third of its time.
        size = (out.shape[1], out.shape[2])
        values = interpolate(values[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
    out.copy_(values[:3])
    if values.dtype == torch.uint8:
        out.div_(255)


def _channels_last(image: Image.Image) -> Tensor:
    """``[h, w, 1 or 3]``, or ``[h, w, 4]`` of which the last channel means nothing."""
    if image.mode == "RGB" and hasattr(image, "__arrow_c_array__"):
        import pyarrow

        with suppress(ValueError):  # an image of 16 MB or more lies in several blocks
            # Pillow's own memory, four bytes a pixel: no copy, and torch scales four channels faster than three.
            pixels: Tensor = from_dlpack(pyarrow.array(image).values)
            return pixels.view(image.height, image.width, 4)
    return torch.from_numpy(np.atleast_3d(np.array(image)))


def _statistics(normalize: Normalize) -> tuple[Tensor, Tensor] | None:
    if normalize is None:
        return None
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ValueError(f"normalize={normalize!r}: expected 'imagenet', (means, deviations) or None.")
        normalize = IMAGENET
    means, deviations = (torch.tensor(values, dtype=torch.float32) for values in normalize)
    if means.shape != (3,) or deviations.shape != (3,) or not (deviations > 0).all():
        raise ValueError(f"normalize={normalize!r}: expected three means and three positive deviations.")
    return means.view(3, 1, 1), deviations.view(3, 1, 1)
