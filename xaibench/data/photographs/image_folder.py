"""Your own images and masks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ImageOps

from xaibench.component.info import describe_own_data
from xaibench.data.disk.annotated_set import DirectorySet, ProgressCallback
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, opened_image
from xaibench.data.disk.image_files import check_same_size, is_image
from xaibench.data.disk.image_lists import (
    ListedSource,
    MaskRow,
    Masks,
    assign_groups,
    choose_optional_classes,
    list_classes,
    list_images,
    own_classes,
    own_images,
    require_images,
)
from xaibench.data.disk.mask_values import read_mask_picture
from xaibench.data.disk.source import Source
from xaibench.data.photographs.human_masks import TABLE_FOLDER, HumanMasks, prepare_masks
from xaibench.data.photographs.image_reader import ImageReader
from xaibench.data.scans.medical_images import read_medical_mask

IMAGE_FOLDERS, MASK_FOLDERS = ("image", "images"), ("mask", "masks")
_LAYOUT = (
    "Expected image/<class>/<name>.jpg (or any other image, DICOM or NIfTI file) and mask/<class>/<name>.png of the "
    "same size, in which every pixel other than 0 is important; or, instead of mask, attention_label/*.csv with the "
    "columns img_idx and attention (a JSON list of lists of 0 and 1). Without classes, the files are directly in image "
    "and mask. A file groups.csv with the columns file and group keeps related images (of one patient) in one "
    "split. Images without any mask are loaded with photographs:DIR."
)


class OwnFolder(DirectorySet):
    """Your own images and masks: ``OwnFolder("~/mine")``, by name ``"folder:~/mine"``.

    The images are ``image/<class>/*``; the classes are the subfolders, sorted. Without subfolders, the images in
    ``image`` are a set of one class, ``unlabeled``. The masks are either image files or tables. Image files are
    ``mask/<class>/*`` with the same name (without suffix) and the same size; every pixel other than black or
    transparent is important. Two exceptions are logged once per folder. If the values vary like those of a lossy or
    resized picture (JPEG, WebP, soft edges, also if saved again as PNG) or a heat map, the pixels of at least half of
    the largest value are important. The value 255 next to labels below 64 marks pixels that belong to no class, and is
    not important. A mask that is empty although its pixels are not all equal is logged, too. Tables are
    ``attention_label/*.csv`` (:mod:`xaibench.data.photographs.human_masks`), with masks of any size. An image without a
    mask is not annotated; an image whose mask is all 0 is a true negative. The folders may also be called ``images``
    and ``masks``.

    DICOM files (with any name; each frame is an image) and NIfTI volumes (``.nii``, ``.nii.gz``; each axial slice is an
    image) are read with ``pip install "xaibench[medical]"``. Their masks are DICOM or NIfTI files with the same number
    of frames or slices; for a file with a single image, also pictures. Images of one file form a group, as do DICOM
    files with the same ``PatientID``. ``window`` sets the range of values shown from black to white
    (:class:`~xaibench.data.photographs.image_reader.ImageReader`).

    The EXIF orientation of images and masks is applied, as in image viewers, so draw a mask on the image as displayed.
    Gray images with more than 8 bits keep their depth and are divided by the value of white (``scale``), which does not
    depend on the values in the file. ``ground`` is the gray level behind transparent pixels.

    ``groups.csv`` lists images that must stay in one split, such as all of one patient. It has the columns ``file``
    (as in ``meta``: ``image/<class>/<file name>``; or ``<class>/<file name>``, or only the file name) and ``group``. A
    row that matches no image is an error, since its group might be divided between splits unnoticed. An image that is
    not listed forms a group with the images whose files are identical, byte for byte. Equal file names mean nothing.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder ``image`` is missing, or has neither images nor subfolders of classes.
    """

    marker = "*"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        images = self._folder / find_subfolder(self._folder, IMAGE_FOLDERS)
        if not images.is_dir():
            raise MissingDataError(f"folder: {images} is not a folder. {_LAYOUT}")
        classes = own_classes(images)
        if not classes:
            raise MissingDataError(f"folder: {images} has neither images nor a subfolder of a class. {_LAYOUT}")
        self.info = describe_own_data(f"folder:{os.fspath(directory)}", classes, (3, 224, 224), _LAYOUT)

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        counterfactual: bool = False,
        negatives: str | Sequence[str] = (),
        scale: float | None = None,
        ground: float = 1.0,
        window: str | Sequence[float] | None = None,
        slices: str | Sequence[int] | None = None,
    ) -> Source:
        """Return the images and their masks.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Not used.
            counterfactual: Use the tables with ``counterfactual`` in their name, which mark pixels that must not
                matter.
            negatives: Classes whose images show nothing important (``"healthy"``): without a mask, such an image counts
                as annotated with an empty mask.
            scale: The value of white in images with more than 8 bits, such as 4095 for 12 bits stored in 16. None =
                65,535 for 16 bits, 1 for floating-point numbers.
            ground: Gray level behind transparent pixels, from 0 (black) to 1 (white).
            window: ``(center, width)`` of the values shown from black to white, such as ``(40, 400)``, in DICOM and
                NIfTI files and in gray images with more than 8 bits. None = the window of the file, otherwise its full
                range.
            slices: Numbers of the slices of NIfTI volumes (0 = nearest to the feet) and of the frames of DICOM files
                that are images. None = all.

        Raises:
            MissingDataError: If there are both mask files and tables, or no image of a class.
            ValueError: If ``counterfactual`` is used without tables, a class is unknown, or an option is out of range.
        """
        reader = ImageReader(scale, ground, window, slices)
        known, below = self.info.classes, find_subfolder(folder, IMAGE_FOLDERS)
        images = own_images(folder, below, known)
        require_images(folder / below, images, classes)
        images = reader.group_patients(folder, assign_groups(folder, images, below))
        return ListedSource(
            self.info.name,
            folder,
            images,
            find_masks(folder, known, reader, counterfactual=counterfactual),
            classes,
            negatives=choose_optional_classes(negatives, known),
            notes={"counterfactual": counterfactual},
            reader=reader,
            frames=reader.frames,
        )

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks of tables."""
        prepare_masks(folder / TABLE_FOLDER, workers=workers, progress=progress)

    def _advise_unannotated(self, label: str, *, any_annotated: bool) -> str:
        """Return how to load a class without masks, for an error message."""
        if not any_annotated:
            images = self._folder / find_subfolder(self._folder, IMAGE_FOLDERS)
            return (
                f"no image has a mask. Load images without masks with photographs:{images}, or add masks to "
                f"{self._folder / MASK_FOLDERS[0]}; include_unannotated=True loads them with empty masks."
            )
        return (
            f"none has a mask. If there is nothing to mark in them, give negatives={label!r} (--negatives {label!r} on "
            "the command line); include_unannotated=True loads them as they are."
        )


def find_subfolder(folder: Path, names: Sequence[str]) -> str:
    """Return the first of ``names`` that is a folder in ``folder``; the first name if there is none."""
    return next((name for name in names if (folder / name).is_dir()), names[0])


def find_masks(
    folder: Path, classes: Sequence[str], reader: ImageReader, *, counterfactual: bool = False
) -> Masks | None:
    """Return the masks of a folder, from mask files or tables; None if it has none.

    Args:
        folder: Contains ``mask`` or ``attention_label``.
        classes: All classes of the data set.
        reader: Reader of the images.
        counterfactual: Use the tables of pixels that must not matter.

    Raises:
        MissingDataError: If there are both mask files and tables.
        ValueError: If ``counterfactual`` is used without tables.
    """
    mask_folder = folder / find_subfolder(folder, MASK_FOLDERS)
    if (folder / TABLE_FOLDER).is_dir():
        if mask_folder.is_dir():
            raise MissingDataError(
                f"folder: {folder} has both {mask_folder.name} and {TABLE_FOLDER}, expected one. {_LAYOUT}"
            )
        return HumanMasks(folder / TABLE_FOLDER, classes, counterfactual=counterfactual)
    if counterfactual:
        raise ValueError(f"counterfactual=True needs tables in {TABLE_FOLDER}, but {folder} has none.")
    return MaskFiles(mask_folder, reader) if mask_folder.is_dir() else None


class MaskFiles:
    """Mask files ``<class>/*`` in a folder, or directly in it (implements ``Masks``).

    Args:
        folder: The folder of the masks.
        reader: Reader of the images.

    Attributes:
        rows: Metadata of each mask.

    Raises:
        MissingDataError: If the folder does not exist.
    """

    def __init__(self, folder: Path, reader: ImageReader) -> None:
        self._folder = folder
        self._reader = reader
        labels: tuple[str | None, ...] = list_classes(folder) or (None,)
        files = [(label, file) for label in labels for file in list_images(folder, label or ".", medical=True)]
        places = [(label, file.removeprefix("./")) for label, file in files]
        self.rows = [MaskRow(file.rpartition("/")[2], label, f"{folder.name}/{file}") for label, file in places]

    def read(self, row: int, image: Path, frame: int | None = None) -> NDArray[np.bool_]:
        """Read a mask ``[h, w]``, True = important.

        Raises:
            MissingDataError: If the file does not exist.
            DataFileError: If the file cannot be read, or differs in size or in the number of frames from its image.
        """
        path = self._folder.parent / self.rows[row].where
        if not is_image(path.name):
            marked = read_medical_mask(path, frame, image)
        elif frame is None:
            marked = _read_picture(path, str(self._folder))
        else:
            raise DataFileError(
                f"{path} is a single mask, but its image {image.name} has several frames or slices; give a DICOM or "
                "NIfTI file with as many masks."
            )
        if is_image(image.name):
            check_same_size(marked, path, image, upright=True)
        elif marked.shape != (expected := self._reader.size_of(image)):
            raise DataFileError(
                f"{path} is {marked.shape[0]}×{marked.shape[1]}, but its image {image.name} is "
                f"{expected[0]}×{expected[1]} (height×width); they are of different versions."
            )
        return marked


def _read_picture(path: Path, source: str) -> NDArray[np.bool_]:
    with opened_image(path) as opened:
        opened.load()
        ImageOps.exif_transpose(opened, in_place=True)
        return read_mask_picture(opened, str(path), source)
