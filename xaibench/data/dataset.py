"""What a data set is once it is in memory: three splits and what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils import data as torch_data

from xaibench.core.part_info import DatasetInfo
from xaibench.core.rich_results import html_table

_T = TypeVar("_T")
#: With more classes than this, a notebook is shown how many there are.
_FEW_CLASSES = 10

#: One sample ``(image [C,H,W], mask [H,W], target [])``, or a batch of them with a leading ``N``.
Sample: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Split(torch_data.Dataset[Sample]):
    """Samples of one split, held in memory (:class:`~xaibench.data.disk.disk_split.DiskSplit` reads them from disk).

    Args:
        images: ``[N, C, H, W]`` float32.
        masks: ``[N, H, W]`` bool, ``True`` = important.
        targets: ``[N]`` int64 class indices.
        ids: ``[N]`` a name of its own for each sample. None = ``"0"``, ``"1"``, and so on.
        groups: ``[N]`` integers: samples of one number belong together (a patient, a photograph) and are not
            independent, which intervals and tests allow for. None = each sample stands for itself.

    Raises:
        TypeError: If a tensor has another type, or the groups are no integers.
        ValueError: If the shapes do not belong together, or two samples have one name.

    Example:
        >>> split = Split(torch.zeros(5, 1, 8, 8), torch.zeros(5, 8, 8, dtype=torch.bool), torch.arange(5))
        >>> [tuple(part.shape) for part in split[0]]
        [(1, 8, 8), (8, 8), ()]
        >>> [tuple(part.shape) for part in split[[3, 1]]]
        [(2, 1, 8, 8), (2, 8, 8), (2,)]
    """

    def __init__(
        self,
        images: Tensor,
        masks: Tensor,
        targets: Tensor,
        *,
        ids: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
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
        self._ids = None if ids is None else _checked_ids(ids, count)
        self._groups = None if groups is None else _checked_groups(groups, count)

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
        """``[N]`` the name of each sample, by which maps computed elsewhere, rows and pictures find it."""
        return Each(str, range(len(self))) if self._ids is None else self._ids

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """``[N]`` which samples belong together (those of one number); None where each stands for itself."""
        return self._groups

    @property
    def meta(self) -> Sequence[Mapping[str, object]]:
        """What is known of each sample: ``meta[i]["id"]``; of a set on disk ``"file"`` too, and what the set adds."""
        return Each(lambda number: {"id": self.ids[number]}, range(len(self)))

    @property
    def in_memory(self) -> bool:
        """Whether all samples lie in memory; where not, ``images`` and ``masks`` read them from disk every time."""
        return True

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """One sample for an int; a whole batch, in one indexing, for a slice, a list or a tensor of indices."""
        if not isinstance(index, int | slice | Tensor):
            index = torch.as_tensor(index, dtype=torch.int64)
        return self.images[index], self.masks[index], self.targets[index]

    def __repr__(self) -> str:
        return f"Split({len(self)} samples, images {list(self.images.shape[1:])})"


class Each(Sequence[_T], Generic[_T]):
    """What a function says of each of some numbers, asked when it is looked at: a set may have a million samples."""

    def __init__(self, of: Callable[[int], _T], numbers: Sequence[int] | NDArray[np.int64]) -> None:
        self._of = of
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        if isinstance(index, slice):
            return [self._of(int(number)) for number in self._numbers[index]]
        return self._of(int(self._numbers[index]))


def _checked_ids(ids: Sequence[str], count: int) -> list[str]:
    names = [str(name) for name in ids]
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"ids: got {len(names)} names, {len(set(names))} of them different, for {count} samples; give each sample "
            "one of its own."
        )
    return names


def _checked_groups(groups: ArrayLike, count: int) -> NDArray[np.int64]:
    numbers = np.asarray(groups)
    if numbers.shape != (count,):
        raise ValueError(f"groups are {list(numbers.shape)}, expected [{count}]: one integer a sample.")
    if numbers.dtype.kind not in "iu" and count:
        raise TypeError(
            f"groups are {numbers.dtype}, expected integers; number names with numpy.unique(names, "
            "return_inverse=True)[1]."
        )
    return numbers.astype(np.int64)


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
        note: What else is to be known of these very samples, in a sentence; empty where nothing is.
        distribution: Called without arguments, it returns what one image was drawn from, so that some of its pixels can
            be drawn again (:func:`xaibench.reliance`); None where nobody knows.
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
        few = self.classes if len(self.classes) <= _FEW_CLASSES else ()
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
            "licence": self.info.licence,
            "cite": self.info.citation,
        }
        notes = [f"{what}: {value}" for what, value in known.items() if value]
        return html_table(rows, head=("", "samples", *few), title=self.info.name, notes=notes)
