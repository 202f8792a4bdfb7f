"""``open_images``: a split of images from any source, with or without classes and masks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from xaibench.core.checks import numbered_classes
from xaibench.core.messages import listed
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.image_lists import UNLABELED, ImageEntry, ListedSource, choose_optional_classes
from xaibench.data.disk.lazy_split import DiskSplit, check_gray_or_color, resize_mask, write_image
from xaibench.data.disk.source import Source
from xaibench.data.disk.splits import choose_classes
from xaibench.data.exchange.datasets_library import is_table, open_table
from xaibench.data.exchange.parquet import is_own, read_file, read_parquet
from xaibench.data.exchange.picture_source import choose_test_files, list_parquet, open_files
from xaibench.data.photographs.image_folder import (
    ImageReader,
    MaskFiles,
    find_masks,
    labeled_images,
    list_own_images,
    ordered_classes,
)
from xaibench.data.registered import DATASETS
from xaibench.data.volume_folder import VolumeSplit, has_volumes, open_volumes

#: Schemes of names of data sets that are followed by a folder of images.
_FOLDERS = {"folder", "photographs", "parquet", "volumes"}


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
) -> Split:
    """Open images as a split, such as for an audit. Pixels are read when an image is accessed.

    Args:
        source: One of

            - a folder of images (pictures, DICOM or NIfTI files), with class folders, with the images directly inside,
              or with ``image/`` and ``mask/`` as for ``folder:DIR``; or a single file;
            - a folder of volumes in the same layout: ``.npy`` and ``.npz`` arrays, and with ``volumes`` NIfTI files
              (:func:`xaibench.data.volume_folder.open_volumes`);
            - ``photographs:DIR``: a folder whose files may also be named by their class
              (:class:`~xaibench.data.photographs.image_folder.Photographs`);
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
        A split of the images; its ids, groups, ``classes`` and masks, as far as the source has them. ``has_mask`` says
        which masks are known; without classes, all targets are 0.

    Raises:
        MissingDataError: If a folder or file does not exist or has no images.
        DataFileError: If a file cannot be read.
        ValueError: If an option is out of range or does not apply to the source; if images differ in size and ``size``
            is None; or if arrays do not match.
        TypeError: If the source is of no known kind.

    Example:
        >>> split = open_images(torch.rand(4, 1, 8, 8), channels=3)
        >>> len(split), split.image_shape, split.classes, bool(split.has_mask.any())
        (4, (3, 8, 8), None, False)
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
        return _describe(VolumeSplit(found, np.arange(len(found))), os.fspath(source), found.classes)
    _refuse_options(
        {"volumes": volumes or None} if not isinstance(source, Path) or source.is_file() else {}, "a folder"
    )
    if isinstance(source, Path):
        reader = ImageReader(scale, window=window, slices=slices)
        if masks is not None and not isinstance(masks, str | os.PathLike):
            raise ValueError("masks: got an array, expected a folder of mask files for a folder of images.")
        mask_folder = None if masks is None else Path(masks).expanduser()
        images = labeled_images(source) if photographs and source.is_dir() else list_own_images(source)
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
) -> Split:
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


def _collect(name: str, source: Source, classes: tuple[str, ...], size: int | tuple[int, int], channels: int) -> Split:
    return _describe(DiskSplit(source, np.arange(len(source)), size=size, channels=channels), name, classes)


def _describe(split: Split, name: str, classes: tuple[str, ...] | None, *, numbered: bool = False) -> Split:
    split.name, split.numbered = name, numbered
    split.classes = None if classes == (UNLABELED,) else classes
    return split


def _require_one(sizes: set[tuple[int, int]]) -> tuple[int, int]:
    if len(sizes) > 1:
        some = listed([f"{height}×{width}" for height, width in sorted(sizes)], most=3)
        raise ValueError(f"size=None: the images have different sizes ({some}); give the size of the network's input.")
    return next(iter(sizes))


def _open_split(source: Dataset | Split, size: int | tuple[int, int] | None, channels: int | None) -> Split:
    if isinstance(source, Split) and source.name and size is None and channels is None:
        return source
    split = source.test if isinstance(source, Dataset) else source
    classes = source.classes if isinstance(source, Dataset) else None
    if classes is None and isinstance(split, DiskSplit):
        classes = split.source.classes
    numbered = classes is None
    if classes is None and len(split):
        classes = numbered_classes(int(split.targets.max()), "targets")
    name = source.info.name if isinstance(source, Dataset) else "split"
    if isinstance(split, DiskSplit):
        # Normalization is left to the network; the images of an opened split are in [0, 1].
        plain = DiskSplit(split.source, split.indices, size=size or split.size, channels=channels or split.channels)
        return _describe(plain, name, classes)
    images, masks, _ = split[:]
    return _describe(split.with_images(*_fit(images, masks, size, channels)), name, classes, numbered=numbered)


def _open_arrays(
    source: Any,
    masks: Any,
    classes: str | Sequence[str] | None,
    targets: ArrayLike | None,
    size: int | tuple[int, int] | None,
    channels: int | None,
) -> Split:
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
    split = Split(images, marked, labels)
    split._masks_known = masks is not None
    return _describe(split, "array", known, numbered=True)


def _fit(
    images: Tensor, masks: Tensor, size: int | tuple[int, int] | None, channels: int | None
) -> tuple[Tensor, Tensor]:
    """Resize images in memory and change their number of channels, as :class:`DiskSplit` does."""
    sides = tuple(images.shape[2:]) if size is None else (size, size) if isinstance(size, int) else size
    wanted = channels or images.shape[1]
    check_gray_or_color(wanted)
    if sides == tuple(images.shape[2:]) and wanted == images.shape[1]:
        return images, masks
    fitted = torch.empty((len(images), wanted, *sides))
    for out, image in zip(fitted, images, strict=True):
        write_image(out, image)
    resized = [torch.from_numpy(resize_mask(mask.numpy(), (sides[0], sides[1]))) for mask in masks]
    return fitted, torch.stack(resized)
