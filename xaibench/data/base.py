"""Data sets in memory: the splits of a data set and their metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils import data as torch_data

from xaibench.core.markup import html_table
from xaibench.core.types import Array
from xaibench.registry.info import DatasetInfo

_T = TypeVar("_T")
#: With more classes, the notebook table has their number instead of one column per class.
_MAX_CLASS_COLUMNS = 10

#: One sample ``(image [C,H,W], mask [H,W], target [])``, of volumes with ``D`` before ``H``, or a batch of them with a
#: leading ``N``.
Sample: TypeAlias = tuple[Tensor, Tensor, Tensor]

#: What to do with multi-hot targets, which a sample cannot have.
_MULTI_HOT = (
    " For independent labels, make one sample per image and set label, with its own mask: "
    "rows, labels = xaibench.explainers.label_pairs(targets), and images[rows], masks, labels."
)


class Split(torch_data.Dataset[Sample]):
    """Samples of one split, held in memory (:class:`~xaibench.data.disk.lazy_split.DiskSplit` reads them from disk).

    Args:
        images: ``[N, C, H, W]`` float32, or volumes ``[N, C, D, H, W]``.
        masks: ``[N, H, W]`` bool, ``True`` = important; ``[N, D, H, W]`` for volumes.
        targets: ``[N]`` int64 class indices.
        ids: ``[N]`` unique sample names. None = ``"0"``, ``"1"``, and so on.
        groups: ``[N]`` integers: samples with the same number (of a patient, of a photograph) are not independent,
            which intervals and tests account for. None = every sample is its own group.
        groups_by: What the groups are, such as ``"patients"``; stated with the number of groups.

    Raises:
        TypeError: If a tensor has another dtype, or the groups are not integers.
        ValueError: If the shapes do not match, or a sample name occurs twice.

    Example:
        >>> split = Split(torch.zeros(5, 1, 8, 8), torch.zeros(5, 8, 8, dtype=torch.bool), torch.arange(5))
        >>> [tuple(part.shape) for part in split[0]]
        [(1, 8, 8), (8, 8), ()]
        >>> [tuple(part.shape) for part in split[[3, 1]]]
        [(2, 1, 8, 8), (2, 8, 8), (2,)]
    """

    #: Description of the source that :func:`xaibench.data.open_images` opened; empty for other splits.
    name: str = ""
    #: Class names in the order of their index, from :func:`xaibench.data.open_images`; None if they are not known.
    classes: tuple[str, ...] | None = None
    #: Whether the source states class indices, so that class ``i`` is output ``i`` of a network. Otherwise it states
    #: names, such as class folders, whose indices are only their position in ``classes``.
    numbered: bool = False
    #: Whether masks are known; the masks of arrays without any are empty.
    _masks_known: bool = True

    def __init__(
        self,
        images: Tensor,
        masks: Tensor,
        targets: Tensor,
        *,
        ids: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
        groups_by: str = "",
    ) -> None:
        if targets.ndim == 2 and targets.dtype != torch.int64:
            raise TypeError(f"targets are rows {list(targets.shape)}, expected classes [N].{_MULTI_HOT}")
        for name, tensor, dtype in (
            ("images", images, torch.float32),
            ("masks", masks, torch.bool),
            ("targets", targets, torch.int64),
        ):
            if tensor.dtype != dtype:
                raise TypeError(f"{name} are {tensor.dtype}, expected {dtype}; convert them with .to({dtype}).")
        count = len(targets)
        if (
            targets.ndim != 1
            or images.ndim not in (4, 5)
            or masks.shape != (count, *images.shape[2:])
            or images.shape[0] != count
        ):
            raise ValueError(
                "Expected images [N,C,H,W], masks [N,H,W] and targets [N] with the same N, H and W (volumes have D "
                "before H); got "
                f"{list(images.shape)}, {list(masks.shape)} and {list(targets.shape)}."
                + (_MULTI_HOT if targets.ndim == 2 else "")
            )
        self._images = images
        self._masks = masks
        self._targets = targets
        self._ids = None if ids is None else _check_ids(ids, count)
        self._groups = None if groups is None else _check_groups(groups, count)
        self._groups_by = groups_by

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

    @property
    def ids(self) -> Sequence[str]:
        """``[N]`` unique sample names, used to match external maps, table rows and pictures."""
        return LazySequence(str, range(len(self))) if self._ids is None else self._ids

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """``[N]`` group number of each sample; None if every sample is its own group."""
        return self._groups

    @property
    def groups_by(self) -> str:
        """Description of the groups, such as ``"patients"``; empty if not known."""
        return self._groups_by

    @property
    def meta(self) -> Sequence[Mapping[str, object]]:
        """Metadata of each sample: ``meta[i]["id"]``, and for data sets on disk ``"file"`` and further entries."""
        return LazySequence(lambda number: {"id": self.ids[number]}, range(len(self)))

    @property
    def has_mask(self) -> NDArray[np.bool_]:
        """``[N]`` whether the mask of a sample is known. A known mask may be empty (a true negative)."""
        return np.full(len(self), self._masks_known)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)`` of the first image, or ``(C, D, H, W)`` of the first volume."""
        return tuple(self[:1][0].shape[1:])

    @property
    def in_memory(self) -> bool:
        """Whether the samples are in memory. If not, ``images`` and ``masks`` read from disk on every access."""
        return True

    def with_images(self, images: Tensor, masks: Tensor | None = None) -> Split:
        """Return the samples with other images.

        Args:
            images: ``[N, C, H, W]`` float32.
            masks: ``[N, H, W]`` bool; None = the same masks.

        Returns:
            A split in memory with the same targets, ids and groups.
        """
        masks = self.masks if masks is None else masks
        return Split(images, masks, self.targets, ids=self.ids, groups=self.groups, groups_by=self.groups_by)

    def metric_inputs(self, index: slice | Tensor) -> Mapping[str, Any]:
        """Return inputs of metrics for some samples, other than images, masks and targets.

        Args:
            index: The samples.

        Returns:
            Arrays with a row per sample, by the name of the parameter of a metric; none for most data sets
            (:class:`xaibench.data.PartSplit` has some).
        """
        return {}

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """Return one sample for an int; a batch for a slice, a list or a tensor of indices."""
        if not isinstance(index, int | slice | Tensor):
            index = torch.as_tensor(index, dtype=torch.int64)
        return self.images[index], self.masks[index], self.targets[index]

    def __repr__(self) -> str:
        return f"Split({len(self)} samples, images {list(self.images.shape[1:])})"


class LazySequence(Sequence[_T], Generic[_T]):
    """The values of a function at given numbers, computed on access: a data set may have a million samples."""

    def __init__(self, function: Callable[[int], _T], numbers: Sequence[int] | NDArray[np.int64]) -> None:
        self._function = function
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        if isinstance(index, slice):
            return [self._function(int(number)) for number in self._numbers[index]]
        return self._function(int(self._numbers[index]))


def _check_ids(ids: Sequence[str], count: int) -> list[str]:
    names = [str(name) for name in ids]
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"ids: got {len(names)} names, {len(set(names))} of them different, for {count} samples; give each sample "
            "a unique name."
        )
    return names


def _check_groups(groups: ArrayLike, count: int) -> NDArray[np.int64]:
    numbers = np.asarray(groups)
    if numbers.shape != (count,):
        raise ValueError(f"groups have shape {list(numbers.shape)}, expected [{count}]: one integer per sample.")
    if numbers.dtype.kind not in "iu" and count:
        raise TypeError(
            f"groups are {numbers.dtype}, expected integers; convert names with numpy.unique(names, "
            "return_inverse=True)[1]."
        )
    return numbers.astype(np.int64)


@dataclass(frozen=True)
class Dataset:
    """A data set with the splits ``train``, ``val`` and ``test``.

    Attributes:
        train: Samples for training.
        val: Samples for selecting the best epoch.
        test: Samples to explain and score.
        info: Properties of the data set that do not depend on its seed.
        parameters: The parameters of these samples, including defaults.
        batch_size: The batch size that the data set was published with.
        note: A further remark on these samples, in one sentence; may be empty.
        distribution: A function without arguments that returns the distribution of one image, from which pixels can be
            redrawn (:func:`xaibench.reliance`); None = not known.
    """

    train: Split
    val: Split
    test: Split
    info: DatasetInfo
    parameters: Mapping[str, object] = field(default_factory=dict)
    batch_size: int = 32
    note: str = ""
    distribution: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their index."""
        return self.info.classes

    def __repr__(self) -> str:
        sizes = f"train={len(self.train)}, val={len(self.val)}, test={len(self.test)}"
        given = "".join(f", {key}={value!r}" for key, value in self.parameters.items())
        return f"Dataset({self.info.name!r}, {sizes}{given})"

    def _repr_html_(self) -> str:
        few = self.classes if len(self.classes) <= _MAX_CLASS_COLUMNS else ()
        splits = {"train": self.train, "val": self.val, "test": self.test}
        rows = [
            (name, len(split), *(int((split.targets == number).sum()) for number in range(len(few))))
            for name, split in splits.items()
        ]
        known = {
            "images": list(self.info.image_shape) if len(self.train) == 0 else list(self.train[0][0].shape),
            "classes": "" if few else len(self.classes),
            "parameters": ", ".join(f"{key}={value!r}" for key, value in self.parameters.items()),
            "note": self.note,
            "license": self.info.license,
            "cite": self.info.citation,
        }
        notes = [f"{what}: {value}" for what, value in known.items() if value]
        return html_table(rows, head=("", "samples", *few), title=self.info.name, notes=notes)


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
