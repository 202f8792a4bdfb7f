"""Folders of volumes: NumPy arrays, and NIfTI files that are read whole instead of slice by slice."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from xaibench.data.base import Sample, Split
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.disk.groups import assign_groups
from xaibench.data.disk.image_lists import UNLABELED, ImageEntry
from xaibench.data.photographs.image_folder import IMAGE_FOLDERS, MASK_FOLDERS, find_subfolder
from xaibench.data.scans.ct_reading import check_center_width
from xaibench.data.scans.nifti_volumes import read_volume

_ARRAYS, _NIFTI = (".npy", ".npz"), (".nii", ".nii.gz")


class VolumeFolderSplit(Split):
    """Volumes that are read from files on access.

    Args:
        files: ``[N]`` files of the volumes.
        masks: ``[N]`` files of their masks; None = an empty mask.
        targets: ``[N]`` int64 class indices.
        window: Ends of the range of values that becomes [0, 1]; None: arrays are taken as they are (8-bit integers
            divided by 255), NIfTI files are scaled from their smallest to their largest value.
        ids: ``[N]`` unique names.
        groups: ``[N]`` integers.
    """

    def __init__(
        self,
        files: Sequence[Path],
        masks: Sequence[Path | None],
        targets: Tensor,
        *,
        window: tuple[float, float] | None,
        ids: Sequence[str],
        groups: ArrayLike,
    ) -> None:
        empty = torch.zeros(len(files), 1, 1, 1)
        super().__init__(empty, empty[:, 0] != 0, targets, ids=ids, groups=groups)
        self._files = files
        self._mask_files = masks
        self._window = window

    @property
    def in_memory(self) -> bool:
        """False: every access reads from disk."""
        return False

    @property
    def images(self) -> Tensor:
        """``[N, C, D, H, W]`` float32."""
        return self[:][0]

    @property
    def masks(self) -> Tensor:
        """``[N, D, H, W]`` bool."""
        return self[:][1]

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Sample:
        """Read one volume, or a batch of them.

        Raises:
            DataFileError: If a file cannot be read, or has another shape than the first one.
        """
        if isinstance(index, int):
            return self._read(index)
        numbers = np.arange(len(self))[np.asarray(index) if not isinstance(index, slice) else index].tolist()
        images, masks, targets = zip(*map(self._read, numbers), strict=True)
        for number, image in zip(numbers, images, strict=True):
            if image.shape != images[0].shape:
                raise DataFileError(
                    f"{self._files[number]} has the shape {list(image.shape)}, {self._files[numbers[0]]} "
                    f"{list(images[0].shape)}; crop or resample all volumes to the shape that the network takes."
                )
        return torch.stack(images), torch.stack(masks), torch.stack(targets)

    def _read(self, number: int) -> Sample:
        image = read_image(self._files[number], self._window)
        file = self._mask_files[number]
        mask = torch.zeros(image.shape[1:], dtype=torch.bool) if file is None else _read_mask(file, image)
        return image, mask, self.targets[number]


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
    window: str | Sequence[float] | None = None,
) -> tuple[VolumeFolderSplit, tuple[str, ...] | None, NDArray[np.bool_]]:
    """Open a folder of volumes.

    The files are in the folder or in its subfolder ``image``, in subfolders of classes or without, and
    ``groups.csv`` lists groups such as patients, as in folders of images. Arrays (``.npy``, or ``.npz`` with one array)
    are ``[D, H, W]`` or ``[C, D, H, W]``; NIfTI files (``.nii``, ``.nii.gz``) are oriented as slices are.

    Args:
        folder: The folder.
        masks: Folder of masks with the names of their volumes, 0 = not important; None: the subfolder ``mask``.
        window: ``(center, width)`` of the values that become [0, 1]; None: arrays are taken as they are (8-bit integers
            divided by 255), NIfTI files are scaled from their smallest to their largest value.

    Returns:
        The volumes, the class names (None without classes), and which have a mask, ``[N]``.

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
    marked = Path(masks).expanduser() if masks is not None else place / find_subfolder(place, MASK_FOLDERS)
    labels = tuple(sorted({image.label for image in images}))
    found = [_find_mask(marked, image.file.removeprefix(f"{below}/")) for image in images]
    names = [image.group or image.file for image in images]
    split = VolumeFolderSplit(
        [place / image.file for image in images],
        found,
        torch.tensor([labels.index(image.label) for image in images]),
        window=None if window is None else check_center_width(window),
        ids=[image.file for image in images],
        groups=np.unique(names, return_inverse=True)[1],
    )
    return split, None if labels == (UNLABELED,) else labels, np.array([file is not None for file in found])


def _list_volumes(place: Path, *, nifti: bool) -> tuple[str, list[ImageEntry]]:
    """Return the subfolder of the images, and the files: those in class folders, otherwise those directly inside."""
    below = find_subfolder(place, IMAGE_FOLDERS)
    below = below if (place / below).is_dir() else "."
    root = place / below
    if not root.is_dir():
        return below, []
    suffixes = _ARRAYS + _NIFTI if nifti else _ARRAYS
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
        window: As in :class:`VolumeFolderSplit`.

    Raises:
        DataFileError: If the file cannot be read, has another number of axes, or values that are not finite.
    """
    values = _read_values(file)
    if values.dtype == np.uint8 and window is None:
        values = values / np.float32(255)
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataFileError(f"{file} has NaN or infinite values; expected finite ones.")
    if window is None and not file.name.lower().endswith(_ARRAYS):
        window = float(values.min()), float(values.max())
    if window is not None:
        values = np.clip((values - window[0]) / ((window[1] - window[0]) or 1.0), 0, 1)
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _read_mask(file: Path, image: Tensor) -> Tensor:
    mask = torch.from_numpy(np.ascontiguousarray(_read_values(file) != 0)).any(0)
    if mask.shape != image.shape[1:]:
        raise DataFileError(
            f"{file} has the shape {list(mask.shape)}, expected that of its volume {list(image.shape[1:])}."
        )
    return mask


def _read_values(file: Path) -> NDArray[Any]:
    read: Callable[[Path], NDArray[Any]] = _read_array if file.name.lower().endswith(_ARRAYS) else _read_nifti
    values = read(file)
    if values.ndim not in (3, 4) or 0 in values.shape or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"{file} has {values.dtype} values of the shape {list(values.shape)}; expected numbers [D, H, W] or "
            "[C, D, H, W]."
        )
    return values if values.ndim == 4 else values[None]


def _read_array(file: Path) -> NDArray[Any]:
    with wrap_file_errors(file):
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            if len(found.files) != 1:
                raise ValueError(f"it has the arrays {', '.join(found.files)}; expected a single one")
            array: NDArray[Any] = found[found.files[0]]
            return array


def _read_nifti(file: Path) -> NDArray[Any]:
    return read_volume(file).values
