"""Folders of volumes: NumPy arrays, and NIfTI files that are read whole instead of slice by slice."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.core.checks import check_names
from xaibench.data.base import Dataset
from xaibench.data.disk.annotated_set import DirectorySet
from xaibench.data.disk.file_readers import (
    DataFileError,
    MissingDataError,
    check_size,
    read_array_headers,
    read_arrays,
    wrap_file_errors,
)
from xaibench.data.disk.image_lists import UNLABELED, ImageEntry, assign_groups, choose_optional_classes
from xaibench.data.disk.lazy_split import LazySplit, Normalize, Transform
from xaibench.data.disk.mask_values import mark_values
from xaibench.data.disk.source import SampleSource
from xaibench.data.photographs.image_folder import IMAGE_FOLDERS, MASK_FOLDERS, find_subfolder
from xaibench.data.scans.ct_reading import check_center_width
from xaibench.data.scans.nifti_volumes import are_misaligned, read_volume, read_volume_header
from xaibench.registry.info import describe_own_data

_T = TypeVar("_T")
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
        self._shapes: dict[int, tuple[int, int, int]] = {}

    @cached_property
    def channels(self) -> int:
        """Number of channels of the first volume, which all others must have."""
        return _read_shape(self._files[0])[0]

    def volume(self, index: int) -> NDArray[np.float32]:
        """Read a volume ``[C, D, H, W]``.

        Raises:
            DataFileError: If the file cannot be read, has another number of axes or channels, or values that are not
                finite.
        """
        image: NDArray[np.float32] = read_image(self._files[index], self._window).numpy()
        self._shapes[index] = (image.shape[1], image.shape[2], image.shape[3])
        if len(image) != self.channels:
            raise DataFileError(f"{self._files[index]} has {len(image)} channels, {self._files[0]} {self.channels}.")
        return image

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Read a mask ``[D, H, W]``; None = an empty mask.

        Raises:
            DataFileError: If the file cannot be read, or has another shape than its volume.
        """
        file = self._masks[index]
        if file is None:
            return None
        mask = np.asarray(mark_values(_read_values(file), str(file), str(file.parent)).any(axis=0))
        if mask.shape != (expected := self.shape(index)):
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

    def shape(self, index: int) -> tuple[int, int, int]:
        """Return the shape ``(D, H, W)`` of a volume; only headers of ``.npy`` and NIfTI files are read.

        Raises:
            DataFileError: If the file cannot be read.
        """
        if index not in self._shapes:
            _, depth, height, width = _read_shape(self._files[index])
            self._shapes[index] = depth, height, width
        return self._shapes[index]

    def spacings(self, numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
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


class VolumeSplit(LazySplit):
    """Volumes of one split, read from disk on access: images ``[N, C, D, H, W]``, masks ``[N, D, H, W]``.

    Volumes are not scaled. A batch needs volumes of one shape; others are read one at a time.

    Args:
        source: The samples of the whole set.
        indices: ``[N]`` numbers of the samples of this split, in order.
        normalize: Normalization of the voxels in [0, 1], after ``transform``.
        transform: Transforms a volume ``[C, D, H, W]`` and its mask ``[D, H, W]`` together. The transforms of
            ``torchvision.transforms.v2`` treat all slices of a volume in the same way.

    Raises:
        ValueError: If ``normalize`` does not have one mean and one positive deviation per channel.
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
        super().__init__(source, indices, channels=source.channels, normalize=normalize, transform=transform)

    def metric_inputs(self, index: slice | Tensor) -> Mapping[str, Any]:
        """Return the distance of neighboring voxels, which metrics of distance take as ``spacing``.

        Args:
            index: The samples.

        Returns:
            ``spacing`` ``[n, 3]`` float64 in mm, along the axes D, H and W; nothing if it is not known.
        """
        spacing = self.source.spacings(self.indices[index if isinstance(index, slice) else index.numpy()])
        return {} if spacing is None else {"spacing": spacing}

    def _read_samples(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        if len(numbers) > 1:  # a single volume of any shape is a batch
            self._check_shapes(numbers)
        volumes = [torch.from_numpy(self.source.volume(number)) for number in numbers.tolist()]
        return _stack(volumes, torch.empty((0, self.channels, 0, 0, 0))), self._read_masks(numbers)

    def _read_masks(self, numbers: NDArray[np.int64]) -> Tensor:
        empty = np.zeros(self._check_shapes(numbers), dtype=np.bool_)
        masks = [self.source.mask(number) for number in numbers.tolist()]
        marked = [torch.from_numpy(empty.copy() if mask is None else mask) for mask in masks]
        return _stack(marked, torch.empty((0, 0, 0, 0), dtype=torch.bool))

    def _check_shapes(self, numbers: NDArray[np.int64]) -> tuple[int, int, int]:
        """Return the shape of the volumes of a batch, which must be equal."""
        shapes = {self.source.shape(number): number for number in numbers.tolist()}
        if len(shapes) > 1:
            files = [f"{self.source.meta(number)['file']} {list(shape)}" for shape, number in shapes.items()]
            raise ValueError(
                f"{len(numbers)} volumes have different shapes, such as {' and '.join(files[:2])}; expected one shape "
                "per batch. Read them one at a time (batch_size=1), or crop or resample all volumes to the shape that "
                "the network takes."
            )
        return next(iter(shapes), (0, 0, 0))

    def __repr__(self) -> str:
        return f"VolumeSplit({len(self)} volumes, {self.channels} channel{'s' if self.channels > 1 else ''})"


def _stack(volumes: list[Tensor], empty: Tensor) -> Tensor:
    if len(volumes) == 1:
        return volumes[0][None]  # not copied: a whole scan takes hundreds of megabytes
    return torch.stack(volumes) if volumes else empty


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
    directory = Path(folder).expanduser()
    below, images = _list_volumes(directory, nifti=True)
    if not images:
        raise MissingDataError(
            f"{directory} has no volumes; expected .npy, .npz, .nii or .nii.gz files, directly inside or in class "
            "folders."
        )
    images = assign_groups(directory, images, below)
    wanted = tuple(classes) if classes is not None else tuple(sorted({image.label for image in images}))
    images = [image for image in images if image.label in wanted]
    marked = Path(masks).expanduser() if masks is not None else directory / find_subfolder(directory, MASK_FOLDERS)
    return FolderVolumes(
        [directory / image.file for image in images],
        [_find_mask(marked, image.file.removeprefix(f"{below}/")) for image in images],
        [image.file for image in images],
        [image.label for image in images],
        classes=wanted,
        groups=[image.group or image.file for image in images],
        negatives=negatives,
        window=None if window is None else check_center_width(window),
    )


def _list_volumes(directory: Path, *, nifti: bool) -> tuple[str, list[ImageEntry]]:
    """Return the subfolder of the images, and the files: those in class folders, otherwise those directly inside."""
    below = find_subfolder(directory, IMAGE_FOLDERS)
    below = below if (directory / below).is_dir() else "."
    root = directory / below
    if not root.is_dir():
        return below, []
    suffixes = VALUE_SUFFIXES if nifti else _ARRAYS
    folders = [one for one in root.iterdir() if one.is_dir() and one.name not in MASK_FOLDERS]
    images: list[ImageEntry] = []
    for folder, label in (*((one, one.name) for one in sorted(folders)), (root, UNLABELED)):
        if images and label == UNLABELED:
            break
        files = sorted(one for one in folder.iterdir() if one.is_file() and one.name.lower().endswith(suffixes))
        images += [ImageEntry(file.relative_to(directory).as_posix(), label) for file in files if file.name[0] != "."]
    return below, images


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
        return (1, *read_volume_header(file).shape)
    shape, kind = _single(file, read_array_headers(file))
    return _with_channels(file, np.broadcast_to(np.zeros((), kind), shape)).shape


def _is_nifti(file: Path) -> bool:
    return file.name.lower().endswith(_NIFTI)


def _read_values(file: Path) -> NDArray[Any]:
    return _with_channels(file, read_values(file))


def _with_channels(file: Path, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim not in (3, 4) or 0 in values.shape or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"{file} has {values.dtype} values of the shape {list(values.shape)}; expected numbers [D, H, W] or "
            "[C, D, H, W]."
        )
    with wrap_file_errors(file):
        check_size(4 * values.size, f"{'×'.join(map(str, values.shape))} voxels")  # as float32
    return values if values.ndim == 4 else values[None]


def read_values(file: Path) -> NDArray[Any]:
    """Read the array in an ``.npy`` file, in an ``.npz`` file with one array, or in a NIfTI file ``[D, H, W]``.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file cannot be read.
    """
    if _is_nifti(file):
        return read_volume(file).values
    return _single(file, read_arrays(file))


def _single(file: Path, arrays: Mapping[str, _T]) -> _T:
    if len(arrays) != 1:
        raise DataFileError(f"{file} has the arrays {', '.join(arrays) or 'none'}; expected a single one.")
    return next(iter(arrays.values()))


_LAYOUT = (
    "Expected image/<class>/<name>.nii.gz (or .nii, .npy, .npz) and mask/<class>/<name> of the same shape, in which "
    "every voxel other than 0 is important. Without classes, the files are directly in image and mask. A file "
    "groups.csv with the columns file and group keeps related volumes (of one patient) in one split."
)


class OwnVolumes(DirectorySet):
    """Your own volumes and masks: ``OwnVolumes("~/scans")``, by name ``"volumes:~/scans"``.

    The volumes are ``image/<class>/*``; the classes are the subfolders, sorted. Without subfolders, the volumes in
    ``image`` are a set of one class, ``unlabeled``. The masks are ``mask/<class>/*`` with the same name and shape. The
    folders may also be called ``images`` and ``masks``. NIfTI files (``.nii``, ``.nii.gz``) are read with ``pip install
    "xaibench[medical]"`` and oriented as slices of scans are: D from the feet to the head, H from front to back, W to
    the patient's left; metrics of distance get their voxel size in mm. Arrays (``.npy``, or ``.npz`` with one array)
    are ``[D, H, W]`` or ``[C, D, H, W]``. Volumes are not scaled or cropped: a batch needs volumes of one shape.

    A volume without a mask is not annotated; a volume whose mask is all 0 is a true negative. Masks with many values,
    such as resampled ones, and ``groups.csv``, which states related volumes, are read as for
    :class:`~xaibench.data.photographs.image_folder.OwnFolder`.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder has no volumes.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for kind, values in (("image", np.ones((4, 5, 6))), ("mask", np.eye(6)[None, :5].repeat(4, 0))):
        ...         _ = (Path(folder) / kind).mkdir()
        ...         np.save(f"{folder}/{kind}/a.npy", values)
        ...     images, masks, targets = OwnVolumes(folder)(splits=(0, 0, 1)).test[:]
        >>> list(images.shape), list(masks.shape)
        ([1, 1, 4, 5, 6], [1, 4, 5, 6])
    """

    marker = "*"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        volumes = open_volumes(self._folder)
        name, classes = f"volumes:{os.fspath(directory)}", volumes.classes
        self.info = describe_own_data(name, classes, (volumes.channels, *volumes.shape(0)), _LAYOUT)

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        negatives: str | Sequence[str] = (),
        window: str | Sequence[float] | None = None,
    ) -> FolderVolumes:
        """Return the volumes and their masks.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Not used.
            negatives: Classes whose volumes show nothing important (``"healthy"``): without a mask, such a volume
                counts as annotated with an empty mask.
            window: ``(center, width)`` of the values that become [0, 1], such as ``(40, 400)``. None = arrays are taken
                as they are (8-bit integers divided by 255), NIfTI files are scaled from their smallest to their largest
                value.

        Raises:
            MissingDataError: If there is no volume of a class.
            ValueError: If a class is unknown, or the window has no positive width.
        """
        chosen = choose_optional_classes(negatives, self.info.classes)
        return open_volumes(folder, classes=classes, negatives=chosen, window=window)

    def __call__(self, **options: Any) -> Dataset:
        """Open the set and split it. Voxels are read when a volume is accessed.

        Args:
            **options: Parameters of :meth:`.AnnotatedSet.__call__` without ``size``, ``channels``, ``missing`` and
                ``download``, since volumes are read as they are; and those of :meth:`open`.

        Returns:
            The data set: images ``[C, D, H, W]``, masks ``[D, H, W]``.

        Raises:
            MissingDataError: If there is no annotated volume of a class.
            DataFileError: If the first file cannot be read, or ``groups.csv`` is malformed.
            ValueError: If a parameter is out of range, a class is unknown, or a class has too few volumes.
        """
        check_names(self.info.name, options, self.__signature__.parameters)
        data = super().__call__(**options)
        info = dataclasses.replace(data.info, image_shape=self.info.image_shape)
        parameters = {name: value for name, value in data.parameters.items() if name != "size"}
        return dataclasses.replace(data, info=info, parameters=parameters)

    def _make_split(self, source: SampleSource, indices: NDArray[np.int64], **options: Any) -> LazySplit:
        assert isinstance(source, FolderVolumes)
        return VolumeSplit(source, indices, normalize=options["normalize"], transform=options["transform"])

    @property
    def __signature__(self) -> inspect.Signature:
        known = super().__signature__.parameters.items()
        unused = ("size", "channels", "missing", "download")
        return inspect.Signature([parameter for name, parameter in known if name not in unused])

    def _advise_unannotated(self, label: str, *, any_annotated: bool) -> str:
        """Return how to load a class without masks, for an error message."""
        return (
            f"add masks to {self._folder / 'mask'}; if there is nothing to mark in them, give negatives={label!r} "
            f"(--negatives {label!r} on the command line); include_unannotated=True loads them with empty masks."
        )
