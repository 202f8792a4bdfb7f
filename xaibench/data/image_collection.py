"""Images from any source, with or without classes and masks: the input of an audit."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from xaibench.core.checks import numbered_classes
from xaibench.core.messages import listed
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.image_lists import (
    UNLABELED,
    ImageEntry,
    ListedSource,
    assign_groups,
    choose_optional_classes,
    list_images,
    own_classes,
    own_images,
)
from xaibench.data.disk.lazy_split import DiskSplit, VolumeSplit, resize_mask, write_image
from xaibench.data.disk.source import Source
from xaibench.data.disk.splits import choose_classes
from xaibench.data.exchange.datasets_library import is_table, open_table
from xaibench.data.exchange.parquet import is_own, read_file, read_parquet
from xaibench.data.exchange.picture_source import choose_test_files, list_parquet, open_files
from xaibench.data.photographs.human_masks import TABLE_FOLDER
from xaibench.data.photographs.image_folder import IMAGE_FOLDERS, MASK_FOLDERS, MaskFiles, find_masks, find_subfolder
from xaibench.data.photographs.image_reader import ImageReader
from xaibench.data.photographs.labeled_photographs import labeled_images, ordered_classes
from xaibench.data.registered import DATASETS
from xaibench.data.volume_folder import has_volumes, open_volumes

#: Schemes of names of data sets that are followed by a folder of images.
_FOLDERS = {"folder", "photographs", "parquet", "volumes"}


class ImageBatch(NamedTuple):
    """A part of a collection.

    Attributes:
        ids: ``[n]`` names of the images.
        images: ``[n, C, H, W]`` float32 in [0, 1]; volumes of arrays are as in their files.
        masks: ``[n]`` masks ``[H, W]`` bool, True = important; None for an image without a mask.
        targets: ``[n]`` int64 class indices; None without classes.
    """

    ids: list[str]
    images: Tensor
    masks: list[Tensor | None]
    targets: Tensor | None


@dataclass(frozen=True)
class ImageCollection:
    """Images that are read on access, from :func:`open_images`.

    Attributes:
        name: Description of the source.
        samples: The images as a split. Without classes all targets are 0; without a mask the mask is empty.
        classes: Class names in the order of their index; None if the source has no classes.
        has_mask: ``[N]`` bool: whether the mask of an image is known. A known mask may be empty (a true negative).
        numbered: Whether the source states class indices, so that class ``i`` is output ``i`` of a network. Otherwise
            it states names, such as class folders, whose indices are only their place in ``classes``.
    """

    name: str
    samples: Split
    classes: tuple[str, ...] | None
    has_mask: NDArray[np.bool_]
    numbered: bool = False

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> Sequence[str]:
        """``[N]`` unique names: paths below the folder, or numbers."""
        return self.samples.ids

    @property
    def targets(self) -> Tensor | None:
        """``[N]`` int64 class indices; None if the source has no classes."""
        return None if self.classes is None else self.samples.targets

    @property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)`` of the images, or ``(C, D, H, W)`` of volumes."""
        return tuple(self.samples[:1][0].shape[1:])

    def __getitem__(self, index: int | slice | Sequence[int]) -> ImageBatch:
        """Read some images, by a slice or a list of numbers. A single number returns a batch of one."""
        numbers = np.arange(len(self))[[index] if isinstance(index, int) else index].tolist()
        images, masks, targets = self.samples[numbers]
        return ImageBatch(
            [self.ids[number] for number in numbers],
            images,
            [mask if self.has_mask[number] else None for number, mask in zip(numbers, masks, strict=True)],
            None if self.classes is None else targets,
        )

    def batches(self, batch_size: int = 32) -> Iterator[ImageBatch]:
        """Read all images in order, in batches.

        Args:
            batch_size: Number of images per batch; the last one may be smaller.

        Yields:
            The batches.
        """
        for start in range(0, len(self), batch_size):
            yield self[start : start + batch_size]

    def select(self, numbers: Sequence[int] | NDArray[np.int64]) -> ImageCollection:
        """Return a part of the images, without reading them.

        Args:
            numbers: Numbers of the images, from 0, in the order of the result.

        Returns:
            The collection of these images.
        """
        chosen = np.asarray(numbers, dtype=np.int64)
        return replace(self, samples=_select(self.samples, chosen), has_mask=self.has_mask[chosen])

    def with_targets(self, targets: Tensor | Sequence[int]) -> Split:
        """Return the images as a split with other targets, such as the predicted classes, for ``xaibench.evaluate``.

        Args:
            targets: ``[N]`` class indices.

        Returns:
            A split; images without a mask have an empty one (see ``has_mask``).

        Raises:
            ValueError: If the number of targets is not that of the images.
        """
        labels = torch.as_tensor(targets, dtype=torch.int64)
        if labels.shape != (len(self),):
            raise ValueError(f"targets have shape {list(labels.shape)}, expected [{len(self)}]: one class per image.")
        samples = self.samples
        if isinstance(samples, DiskSplit):
            source = copy.copy(samples.source)
            source.targets = source.targets.copy()
            source.targets[samples.indices] = labels.numpy()
            return DiskSplit(source, samples.indices, size=samples.size, channels=samples.channels)
        return Split(
            samples.images,
            samples.masks,
            labels,
            ids=samples.ids,
            groups=samples.groups,
            groups_by=samples.groups_by,
        )


def open_images(
    source: Any,
    *,
    masks: str | os.PathLike[str] | ArrayLike | None = None,
    classes: str | Sequence[str] | None = None,
    targets: ArrayLike | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    window: str | Sequence[float] | None = None,
    slices: str | Sequence[int] | None = None,
    scale: float | None = None,
    negatives: str | Sequence[str] = (),
    volumes: bool = False,
) -> ImageCollection:
    """Open images for an audit. Pixels are read when an image is accessed.

    Args:
        source: One of

            - a folder of images (pictures, DICOM or NIfTI files), with class folders, with the images directly inside,
              or with ``image/`` and ``mask/`` as for ``folder:DIR``; or a single file;
            - a folder of volumes in the same layout: ``.npy`` and ``.npz`` arrays, and with ``volumes`` NIfTI files
              (:func:`xaibench.data.volume_folder.open_volumes`);
            - ``photographs:DIR``: a folder whose files may also be named by their class
              (:class:`~xaibench.data.photographs.labeled_photographs.Photographs`);
            - a Parquet file or a folder of them, written by xaibench or by the ``datasets`` library;
            - a ``datasets.Dataset`` or ``datasets.DatasetDict``;
            - an array or tensor ``[N, C, H, W]`` or ``[N, C, D, H, W]`` of numbers in [0, 1], or of 8-bit integers;
            - a name of :func:`xaibench.load`, a data set, or a split.

            Of data sets, files and tables with several splits, the test samples are opened.
        masks: A folder of mask files with the names of their images; or an array ``[N, H, W]``, 0 = not important, for
            arrays. None = the masks of the source, if it has any.
        classes: The classes to open, in this order. For arrays: the class names. None = all.
        targets: ``[N]`` class indices, for arrays.
        size: Height and width of the images: a number, or both. None = the size of the images, if all have the same.
        channels: 1 or 3; None = as in an array, and 3 for files. Gray images are repeated in 3 channels; colors are
            converted to 1 channel by their luminance.
        window: ``(center, width)`` of the values shown from black to white in DICOM and NIfTI files and in gray images
            with more than 8 bits. None = the window of the file, otherwise its full range.
        slices: Numbers of the slices of NIfTI volumes, the frames of DICOM files and the pages of TIFF files that are
            images; None = all.
        scale: The value of white in pictures with more than 8 bits; None = 65,535, or 1 for floating-point numbers.
        negatives: Classes whose images have nothing to mark: without a mask, theirs counts as known and empty.
        volumes: Read NIfTI files of a folder whole, as volumes, instead of slice by slice. Of a folder of volumes, only
            ``masks`` and ``window`` apply.

    Returns:
        The images; their ids, groups, classes and masks, as far as the source has them.

    Raises:
        MissingDataError: If a folder or file does not exist or has no images.
        DataFileError: If a file cannot be read.
        ValueError: If an option is out of range or does not apply to the source; if images differ in size and ``size``
            is None; or if arrays do not match.
        TypeError: If the source is of no known kind.

    Example:
        >>> collection = open_images(torch.rand(4, 1, 8, 8), channels=3)
        >>> len(collection), collection.image_shape, collection.classes, collection[:2].masks
        (4, (3, 8, 8), None, [None, None])
    """
    photographs = isinstance(source, str) and source.startswith("photographs:")
    volumes = volumes or (isinstance(source, str) and source.startswith("volumes:"))
    if isinstance(source, str | os.PathLike):
        source = _resolve(source, size)
    if isinstance(source, Dataset | Split):
        return _open_split(source, size, channels)
    if isinstance(source, Path) and source.is_dir() and (volumes or has_volumes(source)):
        others = {"size": size, "channels": channels, "classes": classes, "slices": slices, "scale": scale}
        _refuse_options(
            others | {"negatives": negatives or None}, "folders of images, but the source is one of volumes"
        )
        if masks is not None and not isinstance(masks, str | os.PathLike):
            raise ValueError("masks: got an array, expected a folder of mask files for a folder of volumes.")
        found = open_volumes(source, masks=masks, window=window)
        names = None if found.classes == (UNLABELED,) else found.classes
        every = VolumeSplit(found, np.arange(len(found)))
        return ImageCollection(os.fspath(source), every, names, found.annotated)
    _refuse_options(
        {"volumes": volumes or None} if not isinstance(source, Path) or source.is_file() else {}, "a folder"
    )
    if isinstance(source, Path):
        reader = ImageReader(scale, window=window, slices=slices)
        if masks is not None and not isinstance(masks, str | os.PathLike):
            raise ValueError("masks: got an array, expected a folder of mask files for a folder of images.")
        mask_folder = None if masks is None else Path(masks).expanduser()
        images = labeled_images(source) if photographs and source.is_dir() else _list_images(source)
        labels = {image.label for image in images}
        known = ordered_classes(labels) if photographs else tuple(sorted(labels))
        return _open_folder(source, images, known, mask_folder, reader, classes, negatives, size, channels)
    given = {"window": window, "slices": slices, "scale": scale, "negatives": negatives or None}
    _refuse_options(given, f"folders of images, but the source is a {type(source).__name__}")
    if is_table(source):
        splits = source if isinstance(source, dict) else {}
        source = open_table(next((splits[name] for name in ("test", "validation") if name in splits), source))
    if isinstance(source, Source):
        if size is None:
            pictures = (source.image(number, 2**16) for number in range(len(source)))
            size = _require_one({(picture.height, picture.width) for picture in pictures})
        return _collect(str(source), source, source.classes, size, channels or 3)
    return _open_arrays(source, masks, classes, targets, size, channels)


def _refuse_options(options: Mapping[str, Any], kind: str) -> None:
    if used := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"{listed(used)}: only for {kind}.")


def _resolve(source: str | os.PathLike[str], size: int | tuple[int, int] | None) -> Any:
    """Return a folder or file as a path, and a data set by name as its splits."""
    text = os.fspath(source)
    scheme, _, rest = text.partition(":")
    path = Path(rest if scheme in _FOLDERS and rest else text).expanduser()
    if path.exists():
        if files := list_parquet(path):
            if not is_own(files[0]):
                return open_files(choose_test_files(files))
            return read_parquet(path) if path.is_dir() else read_file(path)
        return path
    if scheme in DATASETS.schemes - _FOLDERS or DATASETS.canonical(text) in DATASETS:
        opened = DATASETS.resolve(text)
        if isinstance(opened, AnnotatedSet) and isinstance(size, int):
            return opened(size=size)
        return opened()
    raise MissingDataError(f"{path} does not exist; expected a folder of images, a file, or the name of a data set.")


def _open_folder(
    path: Path,
    images: list[ImageEntry],
    known: tuple[str, ...],
    masks: Path | None,
    reader: ImageReader,
    classes: str | Sequence[str] | None,
    negatives: str | Sequence[str],
    size: int | tuple[int, int] | None,
    channels: int | None,
) -> ImageCollection:
    folder = path if path.is_dir() else path.parent
    if not images:
        raise MissingDataError(
            f"{path} has no images: expected pictures, DICOM or NIfTI files, directly inside, in class folders, or in "
            "image/."
        )
    images = reader.group_patients(folder, images)
    chosen = choose_classes(classes, known)
    mask_files = find_masks(folder, known, reader) if masks is None else MaskFiles(masks, reader)
    source = ListedSource(
        os.fspath(path),
        folder,
        images,
        mask_files,
        chosen,
        negatives=choose_optional_classes(negatives, known),
        reader=reader,
        frames=reader.frames,
    )
    if not len(source):
        raise MissingDataError(f"{path}: none of {len(images)} files has an image.")
    if size is None:
        sizes, damaged = set(), None
        for file in source.files():
            try:
                sizes.add(reader.size_of(file))
            except DataFileError as error:  # reported when the image is read
                damaged = error
        if damaged is not None and not sizes:
            raise damaged
        size = _require_one(sizes)
    return _collect(os.fspath(path), source, chosen, size, channels or 3)


def _list_images(path: Path) -> list[ImageEntry]:
    """Return the file itself, or the images in class folders, otherwise those directly inside, otherwise all."""
    if not path.is_dir():
        return assign_groups(path.parent, [ImageEntry(path.name, UNLABELED)], ".")
    below = find_subfolder(path, IMAGE_FOLDERS)
    below = below if (path / below).is_dir() else "."
    not_classes = {*MASK_FOLDERS, TABLE_FOLDER} if below == "." else set()
    images = own_images(path, below, own_classes(path / below, without=not_classes))
    images = images or own_images(path, below, (UNLABELED,))
    if not images:  # DICOM exports have folders for patient, study and series
        places = sorted(os.fspath(place.relative_to(path)) for place in (path / below).rglob("*") if place.is_dir())
        places = [place for place in places if not_classes.isdisjoint(Path(place).parts)]
        images = [ImageEntry(file, UNLABELED) for place in places for file in list_images(path, place, medical=True)]
    return assign_groups(path, [ImageEntry(image.file.removeprefix("./"), image.label) for image in images], below)


def _collect(
    name: str, source: Source, classes: tuple[str, ...], size: int | tuple[int, int], channels: int
) -> ImageCollection:
    samples = DiskSplit(source, np.arange(len(source)), size=size, channels=channels)
    return ImageCollection(name, samples, None if classes == (UNLABELED,) else classes, source.annotated)


def _require_one(sizes: set[tuple[int, int]]) -> tuple[int, int]:
    if len(sizes) > 1:
        some = listed([f"{height}×{width}" for height, width in sorted(sizes)], most=3)
        raise ValueError(f"size=None: the images have different sizes ({some}); give the size of the network's input.")
    return next(iter(sizes))


def _open_split(source: Dataset | Split, size: int | tuple[int, int] | None, channels: int | None) -> ImageCollection:
    split = source.test if isinstance(source, Dataset) else source
    classes = source.classes if isinstance(source, Dataset) else None
    if classes is None and isinstance(split, DiskSplit):
        classes = split.source.classes
    numbered = classes is None
    if classes is None and len(split):
        classes = numbered_classes(int(split.targets.max()), "targets")
    name = source.info.name if isinstance(source, Dataset) else "split"
    if isinstance(split, DiskSplit):
        # Normalization is left to the network; the images of a collection are in [0, 1].
        plain = DiskSplit(split.source, split.indices, size=size or split.size, channels=channels or split.channels)
        return ImageCollection(
            name, plain, None if classes == (UNLABELED,) else classes, split.source.annotated[split.indices]
        )
    images, masks, targets = split[:]
    images, masks = _fit(images, masks, size, channels)
    samples = Split(images, masks, targets, ids=split.ids, groups=split.groups, groups_by=split.groups_by)
    return ImageCollection(name, samples, classes, np.ones(len(split), dtype=np.bool_), numbered)


def _open_arrays(
    source: Any,
    masks: Any,
    classes: str | Sequence[str] | None,
    targets: ArrayLike | None,
    size: int | tuple[int, int] | None,
    channels: int | None,
) -> ImageCollection:
    if not isinstance(source, Tensor | np.ndarray):
        raise TypeError(
            f"source: got {type(source).__name__}, expected a folder, a Parquet file, a datasets.Dataset, an array or "
            "tensor [N, C, H, W], or a data set."
        )
    images = torch.as_tensor(source)
    if images.ndim not in (4, 5) or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"source: got shape {list(images.shape)}, expected [N, C, H, W] (volumes: [N, C, D, H, W]) with C = 1 or 3."
        )
    if images.ndim == 5:
        _refuse_options({"size": size, "channels": channels}, "images [N, C, H, W], but the source has volumes")
    images = images.to(torch.float32) / (255 if images.dtype == torch.uint8 else 1)
    if not 0 <= float(images.min()) <= float(images.max()) <= 1:
        raise ValueError(
            f"source: got values from {float(images.min()):g} to {float(images.max()):g}, expected numbers in [0, 1] "
            "or 8-bit integers; leave the normalization to the network."
        )
    count, shape = len(images), images.shape[2:]
    marked = torch.zeros((count, *shape), dtype=torch.bool) if masks is None else torch.as_tensor(masks) != 0
    if marked.shape != (count, *shape):
        raise ValueError(f"masks: got shape {list(marked.shape)}, expected {[count, *shape]}.")
    labels = torch.zeros(count, dtype=torch.int64) if targets is None else torch.as_tensor(targets).to(torch.int64)
    if labels.shape != (count,):
        raise ValueError(f"targets: got shape {list(labels.shape)}, expected [{count}].")
    known = None
    if targets is not None:
        most = int(labels.max()) + 1
        named = [name.strip() for name in classes.split(",")] if isinstance(classes, str) else classes
        known = tuple(named or numbered_classes(most - 1, "targets"))
        if len(known) < most:
            raise ValueError(f"classes: got {len(known)} names, but targets up to {most - 1}.")
    images, marked = _fit(images, marked, size, channels)
    return ImageCollection(
        "array", Split(images, marked, labels), known, np.full(count, masks is not None, dtype=np.bool_), True
    )


def _fit(
    images: Tensor, masks: Tensor, size: int | tuple[int, int] | None, channels: int | None
) -> tuple[Tensor, Tensor]:
    """Resize images in memory and change their number of channels, as :class:`DiskSplit` does."""
    sides = tuple(images.shape[2:]) if size is None else (size, size) if isinstance(size, int) else size
    wanted = channels or images.shape[1]
    if wanted not in (1, 3):
        raise ValueError(f"channels={channels!r}: expected 1 (gray) or 3 (color).")
    if sides == tuple(images.shape[2:]) and wanted == images.shape[1]:
        return images, masks
    fitted = torch.empty((len(images), wanted, *sides))
    for out, image in zip(fitted, images, strict=True):
        write_image(out, image)
    resized = [torch.from_numpy(resize_mask(mask.numpy(), (sides[0], sides[1]))) for mask in masks]
    return fitted, torch.stack(resized)


def _select(samples: Split, numbers: NDArray[np.int64]) -> Split:
    if isinstance(samples, DiskSplit):
        return DiskSplit(samples.source, samples.indices[numbers], size=samples.size, channels=samples.channels)
    images, masks, targets = samples[numbers.tolist()]
    groups = None if samples.groups is None else samples.groups[numbers]
    ids = [samples.ids[number] for number in numbers.tolist()]
    return Split(images, masks, targets, ids=ids, groups=groups, groups_by=samples.groups_by)
