"""Folders of volumes: NumPy arrays, and NIfTI files that are read whole instead of slice by slice."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.data.disk.file_readers import DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.disk.image_lists import UNLABELED, ImageEntry, assign_groups
from xaibench.data.disk.lazy_split import LazySplit, Normalize, Transform
from xaibench.data.disk.source import SampleSource
from xaibench.data.photographs.image_folder import IMAGE_FOLDERS, MASK_FOLDERS, find_subfolder
from xaibench.data.scans.ct_reading import check_center_width
from xaibench.data.scans.nifti_volumes import are_misaligned, read_volume, read_volume_header

_ARRAYS, _NIFTI = (".npy", ".npz"), (".nii", ".nii.gz")
#: Suffixes of the files that :func:`read_values` reads.
VALUE_SUFFIXES = _ARRAYS + _NIFTI


class FolderVolumes(SampleSource):
    """Volumes and their masks in files, which are read on access.

    Args:
        files: ``[N]`` files of the volumes.
        masks: ``[N]`` files of their masks; None = an empty mask.
        ids: ``[N]`` unique names.
        labels: ``[N]`` class of each volume.
        classes: Class names in the order of their index.
        groups: ``[N]`` names of the groups.
        negatives: Classes whose volumes are annotated without a mask: nothing in them is important.
        window: Ends of the range of values that becomes [0, 1]; None: arrays are taken as they are (8-bit integers
            divided by 255), NIfTI files are scaled from their smallest to their largest value.
    """

    def __init__(
        self,
        files: Sequence[Path],
        masks: Sequence[Path | None],
        ids: Sequence[str],
        labels: Sequence[str],
        *,
        classes: tuple[str, ...],
        groups: Sequence[str],
        negatives: Sequence[str] = (),
        window: tuple[float, float] | None,
    ) -> None:
        self.classes = classes
        self.targets = np.array([classes.index(label) for label in labels], dtype=np.int64)
        known = [file is not None or label in negatives for file, label in zip(masks, labels, strict=True)]
        self.annotated = np.array(known, dtype=np.bool_)
        self.groups = np.unique(groups, return_inverse=True)[1].astype(np.int64)
        self._files, self._masks, self._ids, self._window = files, masks, ids, window
        self._shapes: dict[int, tuple[int, ...]] = {}

    def volume(self, index: int) -> Tensor:
        """Read a volume ``[C, D, H, W]`` float32.

        Raises:
            DataFileError: If the file cannot be read, has another number of axes, or values that are not finite.
        """
        image = read_image(self._files[index], self._window)
        self._shapes[index] = tuple(image.shape)
        return image

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Read a mask ``[D, H, W]``; None = an empty mask.

        Raises:
            DataFileError: If the file cannot be read, or has another shape than its volume.
        """
        file = self._masks[index]
        if file is None:
            return None
        mask: NDArray[np.bool_] = (_read_values(file) != 0).any(axis=0)
        if mask.shape != (expected := self.shape(index)[1:]):
            raise DataFileError(
                f"{file} has the shape {list(mask.shape)}, expected that of its volume {list(expected)}."
            )
        if _is_nifti(file) and _is_nifti(self._files[index]):
            headers = [read_volume_header(one) for one in (file, self._files[index])]
            if are_misaligned(*headers):
                raise DataFileError(
                    f"{file} covers another region than its volume {self._files[index].name}: their axes are "
                    f"{headers[0].axes} and {headers[1].axes}, and one of the two affines is flipped."
                )
        return mask

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape ``(C, D, H, W)`` of a volume; only headers of ``.npy`` and NIfTI files are read.

        Raises:
            DataFileError: If the file cannot be read.
        """
        if index not in self._shapes:
            self._shapes[index] = _read_shape(self._files[index])
        return self._shapes[index]

    def spacing(self, numbers: Sequence[int]) -> NDArray[np.float64] | None:
        """Return ``[n, 3]``, the distance of neighboring voxels in mm along D, H and W; None unless all are NIfTI.

        Raises:
            DataFileError: If a file cannot be read.
        """
        files = [self._files[number] for number in numbers]
        if not all(map(_is_nifti, files)):
            return None
        return np.array([read_volume_header(file).spacing for file in files], dtype=np.float64).reshape(-1, 3)

    def meta(self, index: int) -> dict[str, object]:
        """Return the name of a volume and its file."""
        return {"id": self._ids[index], "file": self._ids[index], "annotated": bool(self.annotated[index])}


class VolumeFolderSplit(LazySplit):
    """Volumes ``[N, C, D, H, W]`` and masks ``[N, D, H, W]`` of one split, read from files on access.

    Args:
        source: The volumes of the whole set.
        indices: ``[N]`` numbers of the volumes of this split, in order.
        normalize: ``(means, deviations)`` of the channels, after ``transform``.
        transform: Transforms a volume ``[C, D, H, W]`` and its mask ``[D, H, W]`` together.
    """

    source: FolderVolumes

    def __init__(
        self,
        source: FolderVolumes,
        indices: NDArray[np.int64],
        *,
        normalize: Normalize = None,
        transform: Transform | None = None,
    ) -> None:
        channels = source.shape(0)[0]
        super().__init__(source, indices, channels=channels, normalize=normalize, transform=transform)

    def metric_inputs(self, index: slice | Tensor) -> Mapping[str, Any]:
        """Return ``spacing`` ``[n, 3]`` float64 in mm, along D, H and W, of NIfTI files; nothing for arrays."""
        chosen = self.indices[index if isinstance(index, slice) else index.numpy()]
        spacing = self.source.spacing(chosen.tolist())
        return {} if spacing is None else {"spacing": spacing}

    def _read_samples(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        images = [self.source.volume(number) for number in numbers.tolist()]
        self._check_shapes(numbers, [tuple(image.shape) for image in images])
        return torch.stack(images) if images else torch.empty(0, self.channels, 0, 0, 0), self._read_masks(numbers)

    def _read_masks(self, numbers: NDArray[np.int64]) -> Tensor:
        shapes = [self.source.shape(number) for number in numbers.tolist()]
        self._check_shapes(numbers, shapes)
        masks = [
            np.zeros(shape[1:], dtype=np.bool_) if (mask := self.source.mask(number)) is None else mask
            for number, shape in zip(numbers.tolist(), shapes, strict=True)
        ]
        return torch.from_numpy(np.stack(masks)) if masks else torch.empty((0, 0, 0, 0), dtype=torch.bool)

    def _check_shapes(self, numbers: NDArray[np.int64], shapes: Sequence[tuple[int, ...]]) -> None:
        for number, shape in zip(numbers.tolist(), shapes, strict=True):
            if shape != shapes[0]:
                one, first = (self.source.meta(which)["file"] for which in (number, int(numbers[0])))
                raise DataFileError(
                    f"{one} has the shape {list(shape)}, {first} {list(shapes[0])}; crop or resample all volumes to "
                    "the shape that the network takes."
                )

    def __repr__(self) -> str:
        return f"VolumeFolderSplit({len(self)} volumes, {self.channels} channel{'s' if self.channels > 1 else ''})"


def has_volumes(folder: str | os.PathLike[str], *, nifti: bool = False) -> bool:
    """Return whether a folder has volumes.

    Args:
        folder: The folder, which need not exist.
        nifti: Whether NIfTI files count; otherwise only ``.npy`` and ``.npz`` files, which are never pictures.
    """
    return bool(_list_volumes(Path(folder).expanduser(), nifti=nifti)[1])


def open_volumes(
    folder: str | os.PathLike[str],
    *,
    masks: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    negatives: Sequence[str] = (),
    window: str | Sequence[float] | None = None,
) -> FolderVolumes:
    """Open a folder of volumes.

    The files are in the folder or in its subfolder ``image``, in subfolders of classes or without, and
    ``groups.csv`` lists groups such as patients, as in folders of images. Arrays (``.npy``, or ``.npz`` with one array)
    are ``[D, H, W]`` or ``[C, D, H, W]``; NIfTI files (``.nii``, ``.nii.gz``) are oriented as slices are.

    Args:
        folder: The folder.
        masks: Folder of masks with the names of their volumes, 0 = not important; None: the subfolder ``mask``.
        classes: The wanted classes; None: all, sorted. Without subfolders of classes, the only one is ``unlabeled``.
        negatives: Classes whose volumes are annotated without a mask: nothing in them is important.
        window: ``(center, width)`` of the values that become [0, 1]; None: arrays are taken as they are (8-bit integers
            divided by 255), NIfTI files are scaled from their smallest to their largest value.

    Returns:
        The volumes.

    Raises:
        MissingDataError: If the folder has no volumes.
        ValueError: If the window has no positive width.
    """
    place = Path(folder).expanduser()
    below, images = _list_volumes(place, nifti=True)
    if not images:
        raise MissingDataError(
            f"{place} has no volumes; expected .npy, .npz, .nii or .nii.gz files, directly inside or in class folders."
        )
    images = assign_groups(place, images, below)
    wanted = tuple(classes) if classes is not None else tuple(sorted({image.label for image in images}))
    images = [image for image in images if image.label in wanted]
    marked = Path(masks).expanduser() if masks is not None else place / find_subfolder(place, MASK_FOLDERS)
    return FolderVolumes(
        [place / image.file for image in images],
        [_find_mask(marked, image.file.removeprefix(f"{below}/")) for image in images],
        [image.file for image in images],
        [image.label for image in images],
        classes=wanted,
        groups=[image.group or image.file for image in images],
        negatives=negatives,
        window=None if window is None else check_center_width(window),
    )


def _list_volumes(place: Path, *, nifti: bool) -> tuple[str, list[ImageEntry]]:
    """Return the subfolder of the images, and the files: those in class folders, otherwise those directly inside."""
    below = find_subfolder(place, IMAGE_FOLDERS)
    below = below if (place / below).is_dir() else "."
    root = place / below
    if not root.is_dir():
        return below, []
    suffixes = VALUE_SUFFIXES if nifti else _ARRAYS
    folders = [one for one in root.iterdir() if one.is_dir() and one.name not in MASK_FOLDERS]
    found: list[ImageEntry] = []
    for folder, label in (*((one, one.name) for one in sorted(folders)), (root, UNLABELED)):
        if found and label == UNLABELED:
            break
        files = sorted(one for one in folder.iterdir() if one.is_file() and one.name.lower().endswith(suffixes))
        found += [ImageEntry(file.relative_to(place).as_posix(), label) for file in files if file.name[0] != "."]
    return below, found


def _find_mask(folder: Path, name: str) -> Path | None:
    stem = next(name[: -len(suffix)] for suffix in (*_NIFTI[::-1], *_ARRAYS) if name.lower().endswith(suffix))
    return next((file for end in (*_ARRAYS, *_NIFTI) if (file := folder / f"{stem}{end}").is_file()), None)


def read_image(file: Path, window: tuple[float, float] | None = None) -> Tensor:
    """Read a volume ``[C, D, H, W]`` float32.

    Args:
        file: An array or a NIfTI file.
        window: As in :class:`FolderVolumes`.

    Raises:
        DataFileError: If the file cannot be read, has another number of axes, or values that are not finite.
    """
    values = _read_values(file)
    if values.dtype == np.uint8 and window is None:
        values = values / np.float32(255)
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataFileError(f"{file} has NaN or infinite values; expected finite ones.")
    if window is None and _is_nifti(file):
        window = float(values.min()), float(values.max())
    if window is not None:
        values = np.clip((values - window[0]) / ((window[1] - window[0]) or 1.0), 0, 1)
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _read_shape(file: Path) -> tuple[int, ...]:
    if _is_nifti(file):
        shape: tuple[int, ...] = read_volume_header(file).shape
    elif file.name.lower().endswith(".npy"):
        with wrap_file_errors(file):
            shape = np.load(file, allow_pickle=False, mmap_mode="r").shape
    else:
        shape = _read_values(file).shape
    return (1, *shape) if len(shape) == 3 else shape


def _is_nifti(file: Path) -> bool:
    return file.name.lower().endswith(_NIFTI)


def _read_values(file: Path) -> NDArray[Any]:
    values = read_values(file)
    if values.ndim not in (3, 4) or 0 in values.shape or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"{file} has {values.dtype} values of the shape {list(values.shape)}; expected numbers [D, H, W] or "
            "[C, D, H, W]."
        )
    return values if values.ndim == 4 else values[None]


def read_values(file: Path) -> NDArray[Any]:
    """Read the array in an ``.npy`` file, in an ``.npz`` file with one array, or in a NIfTI file ``[D, H, W]``.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file cannot be read.
    """
    if _is_nifti(file):
        return read_volume(file).values
    with wrap_file_errors(file):
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            if len(found.files) != 1:
                raise ValueError(f"it has the arrays {', '.join(found.files)}; expected a single one")
            array: NDArray[Any] = found[found.files[0]]
            return array
