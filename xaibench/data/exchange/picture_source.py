"""Samples from rows with decoded pictures: tables of the ``datasets`` library and Parquet files of the Hub."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from xaibench.component.info import describe_own_data
from xaibench.core.messages import listed
from xaibench.data.base import Dataset
from xaibench.data.disk.disk_split import DiskSplit
from xaibench.data.disk.file_readers import DataFileError
from xaibench.data.disk.image_files import convert_image
from xaibench.data.disk.image_lists import UNLABELED
from xaibench.data.disk.lazy_split import Normalize
from xaibench.data.disk.source import Source
from xaibench.data.disk.splits import Splits, split_indices

#: Usual names of the columns, in order of priority.
IMAGE_COLUMNS = ("image", "img", "pixel_values", "picture")
MASK_COLUMNS = ("mask", "segmentation", "annotation", "ground_truth")
LABEL_COLUMNS = ("label", "labels", "target", "class", "fine_label")


class TableOptions(TypedDict, total=False):
    """Options of a data set that is read from a table."""

    image: str | None
    mask: str | None
    label: str | None
    size: int
    channels: int
    normalize: Normalize
    splits: Splits | None
    include_unannotated: bool


class PictureSource(Source):
    """Rows of a table as samples of a data set; pictures are decoded on access.

    Args:
        name: Name of the table, for messages.
        row: ``row(number)`` returns a row as a dict.
        labels: ``[N]`` class index of each row.
        classes: Class names.
        image: Column of the images.
        mask: Column of the masks; None = no row has a mask.
        has_mask: ``[N]`` bool: whether a row has a mask.
        official: Rows of the published splits, if there are any.
    """

    def __init__(
        self,
        name: str,
        row: Callable[[int], Mapping[str, Any]],
        labels: NDArray[np.int64],
        classes: tuple[str, ...],
        *,
        image: str,
        mask: str | None,
        has_mask: NDArray[np.bool_],
        official: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> None:
        self.classes = classes
        self.targets = labels
        self.annotated = has_mask
        self.official = official
        self._name, self._row, self._image, self._mask = name, row, image, mask

    def image(self, index: int, size: int) -> Image.Image:  # noqa: D102  # as in Source
        where = f"{self._name}, row {index}, {self._image}"
        return convert_image(decode_picture(self._row(index)[self._image], where), where)

    def mask(self, index: int) -> NDArray[np.bool_] | None:  # noqa: D102
        if self._mask is None or not self.annotated[index]:
            return None
        picture = decode_picture(self._row(index)[self._mask], f"{self._name}, row {index}, {self._mask}")
        marked: NDArray[np.bool_] = np.asarray(picture) != 0
        return np.asarray(marked[..., :3].any(axis=2)) if marked.ndim == 3 else marked  # alpha is not a color

    def __str__(self) -> str:
        return self._name

    def meta(self, index: int) -> dict[str, object]:  # noqa: D102
        return {"id": str(index), "file": f"{self._name}#{index}", "annotated": bool(self.annotated[index])}


def decode_picture(value: Any, where: str) -> Image.Image:
    """Return a cell of a table as an image.

    Args:
        value: A Pillow image; ``{"bytes": ..., "path": ...}`` or bytes of an image file; or an array ``[H, W]``,
            ``[H, W, C]`` or ``[C, H, W]`` of 8-bit numbers, booleans or numbers in [0, 1].
        where: Place of the cell, for messages.

    Raises:
        DataFileError: If it is none of these, or damaged.
    """
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if isinstance(value, bytes):
        try:
            picture = Image.open(io.BytesIO(value))
            picture.load()
        except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
            raise DataFileError(f"{where}: the bytes are not an image that Pillow reads ({error}).") from error
        return picture
    values = np.asarray(value)
    if values.dtype.kind not in "buif" or values.ndim not in (2, 3):
        raise DataFileError(
            f"{where}: got {type(value).__name__}, expected a picture, the bytes of an image file, or an array [H, W] "
            "or [H, W, C]."
        )
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.dtype.kind == "f" and values.ndim == 3:
        if not (values.min(initial=0) >= 0 and values.max(initial=1) <= 1):
            raise DataFileError(
                f"{where}: got colors from {values.min():g} to {values.max():g}, expected numbers in [0, 1]."
            )
        values = np.round(values * 255)
    if values.dtype.kind == "f" and values.ndim == 2:
        return Image.fromarray(values.astype(np.float32))
    if values.dtype.kind == "b":
        values = values * np.uint8(255)
    return Image.fromarray(np.ascontiguousarray(values.astype(np.uint8)))


def make_dataset(
    source: Source,
    name: str,
    *,
    seed: int = 0,
    size: int = 224,
    channels: int = 3,
    normalize: Normalize = None,
    splits: Splits | None = None,
    include_unannotated: bool = False,
) -> Dataset:
    """Return the rows of a table as a data set.

    Args:
        source: The rows.
        name: Name of the data set.
        seed: Seed of the split.
        size: Height and width of the images.
        channels: 3, or 1 for gray images.
        normalize: As for the annotated data sets.
        splits: Three fractions, or ``"official"``. None = the official split if there is one, else 0.6, 0.2, 0.2.
        include_unannotated: Keep rows without a mask, also if others have one.

    Raises:
        ValueError: If a parameter is out of range, or a class has too few rows.
    """
    # Without a single mask, the rows are for metrics that do not need any.
    kept = np.flatnonzero(source.annotated | (include_unannotated or not source.annotated.any()))
    if splits is None:
        splits = (0.6, 0.2, 0.2) if source.official is None else "official"
    parts = split_indices(source, kept, splits, seed)
    train, val, test = (DiskSplit(source, part, size=size, channels=channels, normalize=normalize) for part in parts)
    info = describe_own_data(name, source.classes, (channels, size, size), "It is a table of your own.")
    return Dataset(train, val, test, info, parameters={"size": size, "splits": splits, "seed": seed})


def choose_column(name: str, given: str | None, usual: Sequence[str], there: Sequence[str], what: str) -> str | None:
    """Return the column ``given``, or the first usual one that exists; None if there is none.

    Raises:
        ValueError: If the given column does not exist.
    """
    if given is None:
        return next((column for column in usual if column in there), None)
    if given not in there:
        raise ValueError(f"{what}={given!r}: {name} has the columns {listed(there)}.")
    return given


def encode_labels(
    values: Sequence[Any] | None, names: Sequence[str] | None, count: int, what: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the class index of each row, and the class names.

    Args:
        values: Labels: integers, or names. None = all rows are of the class ``unlabeled``.
        names: Class names of integer labels; None = the numbers.
        count: Number of rows.
        what: Name of the column, for messages.

    Raises:
        DataFileError: If a label is missing, or an integer has no name.
    """
    if values is None:
        return np.zeros(count, dtype=np.int64), (UNLABELED,)
    if any(value is None for value in values):
        raise DataFileError(f"{what} has rows without a label; leave these rows out.")
    if any(isinstance(value, str) for value in values):
        known = tuple(sorted({str(value) for value in values}))
        places = {name: place for place, name in enumerate(known)}
        return np.array([places[str(value)] for value in values], dtype=np.int64), known
    labels = np.asarray(values)
    if labels.shape != (count,) or labels.dtype.kind not in "biu":
        raise DataFileError(
            f"{what} has labels of type {labels.dtype}, shape {labels.shape[1:]}; expected one class each."
        )
    labels = labels.astype(np.int64)
    most = int(labels.max(initial=0))
    known = tuple(names) if names is not None else tuple(map(str, range(most + 1)))
    if labels.min(initial=0) < 0 or most >= len(known):
        raise DataFileError(f"{what} has labels from {labels.min()} to {most}, but {len(known)} classes.")
    return labels, known
