"""Your own images: with masks (``folder:DIR``), or labeled photographs without (``photographs:DIR``)."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from xaibench.data.disk.annotated_set import DirectorySet, ProgressCallback
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, opened_image
from xaibench.data.disk.image_files import check_same_size, image_size, is_image, list_pages, open_image
from xaibench.data.disk.image_lists import (
    PATIENT,
    UNLABELED,
    ImageEntry,
    ListedSource,
    MaskRow,
    Masks,
    assign_groups,
    choose_optional_classes,
    class_folders,
    image_stem,
    list_classes,
    list_images,
    own_classes,
    require_images,
)
from xaibench.data.disk.mask_values import read_mask_picture
from xaibench.data.disk.source import Source
from xaibench.data.photographs.human_masks import TABLE_FOLDER, HumanMasks, prepare_masks
from xaibench.data.scans.ct_reading import check_center_width
from xaibench.data.scans.medical_images import (
    MedicalHeader,
    file_version,
    open_medical,
    read_medical_header,
    read_medical_mask,
)
from xaibench.registry.info import describe_own_data

IMAGE_FOLDERS, MASK_FOLDERS = ("image", "images"), ("mask", "masks")
_LAYOUT = (
    "Expected image/<class>/<name>.jpg (or any other image, DICOM or NIfTI file) and mask/<class>/<name>.png of the "
    "same size, in which every pixel other than 0 is important; or, instead of mask, attention_label/*.csv with the "
    "columns img_idx and attention (a JSON list of lists of 0 and 1). Without classes, the files are directly in image "
    "and mask. A file groups.csv with the columns file and group keeps related images (of one patient) in one "
    "split. Images without any mask are loaded with photographs:DIR."
)
_LABELED_LAYOUT = (
    "Expected <class>/<any name>.jpg (or any other image, DICOM or NIfTI file), or files named by their class: "
    "n01440764.jpg, n01440764_10026.jpg, cat_1.jpg, cat.2.jpg, or any images without classes."
)

_SYNSET = re.compile(r"n\d{8}(?!\d)")
#: Numbers after the class in a file name, each with a separator before it.
_NUMBERS = re.compile(r"(?:[-_. ]+\d+)+$")


@dataclass(frozen=True)
class ImageReader:
    """A picklable reader of image files, with the options of the user.

    Attributes:
        scale: The value of white in pictures with more than 8 bits, such as 4095. None = 65,535 for 16 bits, 1 for
            floating-point numbers.
        ground: Gray level behind transparent pixels, from 0 (black) to 1 (white).
        window: ``(center, width)`` of the values shown from black to white, in DICOM and NIfTI files and in gray
            pictures with more than 8 bits; a string ``"40,400"`` is accepted. None = the window of the file; without
            one, the range of values that the file can store (for NIfTI: the range of values of the volume).
        slices: Numbers of the slices of a NIfTI volume, the frames of a DICOM file and the pages of a TIFF file that
            are images, from 0; a string ``"10,11"`` is accepted. None = all.

    Raises:
        ValueError: If an option is out of range.
    """

    scale: float | None = None
    ground: float = 1.0
    window: str | Sequence[float] | None = None
    slices: str | Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < np.inf:
            raise ValueError(f"scale={self.scale!r}: expected the value of white, such as 4095, or None.")
        if not 0 <= self.ground <= 1:
            raise ValueError(f"ground={self.ground!r}: expected a gray level from 0 (black) to 1 (white).")
        _ = self._ends, self._chosen

    def __call__(self, file: Path, size: int, frame: int | None = None) -> Image.Image:
        """Read an image, in mode ``RGB``, or ``F`` (gray in [0, 1]). The EXIF orientation is applied.

        Args:
            file: The file.
            size: Height and width to which the caller will resize the image.
            frame: Number of the image in a file with several images.

        Raises:
            MissingDataError: If the file does not exist.
            DataFileError: If it cannot be read.
            ImportError: If it is a DICOM or NIfTI file, and the package that reads it is missing.
        """
        if is_image(file.name):
            return open_image(
                file, size, upright=True, scale=self.scale, ground=self.ground, window=self._ends, page=frame or 0
            )
        return open_medical(file, frame, self._ends)

    def frames(self, file: Path) -> Sequence[int] | None:
        """Return the numbers of the images in a file; None for a file with a single image, empty for one without.

        Raises:
            DataFileError: If the header cannot be read, or the file lacks one of ``slices``.
        """
        known = self._list_frames(file)
        if self._chosen is None or not known:
            return known
        if outside := [number for number in self._chosen if number not in known]:
            raise DataFileError(
                f"{file} has the slices 0 to {known[-1]}, but slices={self.slices!r} names {outside[0]}."
            )
        return self._chosen

    def _list_frames(self, file: Path) -> Sequence[int] | None:
        """Return the numbers of all images in a file; None for a file with a single image."""
        if is_image(file.name):
            pages = list_pages(file) if file.suffix.lower() in (".tif", ".tiff") else []
            return pages if len(pages) > 1 else None
        count = _header(file).frames
        return None if count is None else range(count)

    def size_of(self, file: Path) -> tuple[int, int]:
        """Return ``(height, width)`` from the header of a file.

        Raises:
            DataFileError: If the header cannot be read.
        """
        return image_size(file, upright=True) if is_image(file.name) else _header(file).size

    def group_patients(self, folder: Path, images: Sequence[ImageEntry]) -> list[ImageEntry]:
        """Return the images, with DICOM files grouped by ``PatientID`` where no other group is known.

        Identifiers are not used if all of them are equal, as in data sets from which they were removed.
        """
        of_image = {
            image.file: _header(folder / image.file).patient
            for image in images
            if image.group is None and not is_image(image.file)
        }
        if len(set(of_image.values())) < 2:
            return list(images)
        return [
            dataclasses.replace(image, group=f"{PATIENT}{patient}") if (patient := of_image.get(image.file)) else image
            for image in images
        ]

    @functools.cached_property
    def _ends(self) -> tuple[float, float] | None:
        return None if self.window is None else check_center_width(self.window)

    @functools.cached_property
    def _chosen(self) -> tuple[int, ...] | None:
        if self.slices is None:
            return None
        given = self.slices.split(",") if isinstance(self.slices, str) else self.slices
        try:
            numbers = tuple(int(one) for one in given)
        except (TypeError, ValueError):
            numbers = ()
        if not numbers or len(set(numbers)) != len(numbers):
            raise ValueError(f"slices={self.slices!r}: expected different numbers from 0, such as [40, 41], or None.")
        return numbers


@functools.lru_cache(maxsize=2**14)
def _cached_header(file: Path, version: tuple[int, int]) -> MedicalHeader:
    return read_medical_header(file)


def _header(file: Path) -> MedicalHeader:
    return _cached_header(file, file_version(file))


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
    (:class:`~ImageReader`).

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
        images = list_own_images(folder)
        require_images(folder / find_subfolder(folder, IMAGE_FOLDERS), images, classes)
        masks = find_masks(folder, self.info.classes, reader, counterfactual=counterfactual)
        return ListedSource(
            self.info.name,
            folder,
            reader.group_patients(folder, images),
            masks,
            classes,
            negatives=choose_optional_classes(negatives, self.info.classes),
            notes={"counterfactual": counterfactual},
            reader=reader,
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


def list_own_images(path: Path) -> list[ImageEntry]:
    """Return the file itself, or the images in class folders, otherwise those directly inside, otherwise all."""
    if not path.is_dir():
        return assign_groups(path.parent, [ImageEntry(path.name, UNLABELED)], ".")
    below = find_subfolder(path, IMAGE_FOLDERS)
    below = below if (path / below).is_dir() else "."
    not_classes = {*MASK_FOLDERS, TABLE_FOLDER} if below == "." else set()
    classes = own_classes(path / below, without=not_classes)
    images = class_folders(path, below, classes, medical=True)
    if not images:
        images = [ImageEntry(file, UNLABELED) for file in list_images(path, below, medical=True)]
    if not images:  # DICOM exports have folders for patient, study and series
        places = sorted(os.fspath(place.relative_to(path)) for place in (path / below).rglob("*") if place.is_dir())
        places = [place for place in places if not_classes.isdisjoint(Path(place).parts)]
        images = [ImageEntry(file, UNLABELED) for place in places for file in list_images(path, place, medical=True)]
    return assign_groups(path, [ImageEntry(image.file.removeprefix("./"), image.label) for image in images], below)


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


class Photographs(DirectorySet):
    """Labeled photographs: ``Photographs("~/photographs")``, by name ``"photographs:~/photographs"``.

    The classes are the subfolders of ``directory``. If no subfolder has images, the class is taken from the file name,
    with or without a number after it (``cat_1.jpg``, ``cat.2.jpg``). If no two names share a class, the images are
    a set of one class, ``unlabeled``. The classes are sorted and correspond to the outputs of the network in this
    order. If all of them are ImageNet classes (``n01440764``), the classes are the 1,000
    of ImageNet-1k in their usual order, so that networks trained on ImageNet can be used.

    The photographs have no annotations: masks are empty, and metrics that need masks are undefined. Use them for
    metrics that evaluate the network, and for mosaics
    (:class:`xaibench.benchmarks.mosaics.photo_mosaics.PhotoMosaics`).
    ``groups.csv`` states related photographs, as for :class:`~OwnFolder`.
    The photographs are shuffled with ``seed``, so that the first hundred are of all classes.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder has no such images.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat_1", "cat_2", "dog_1"):
        ...         Image.new("RGB", (8, 8)).save(f"{folder}/{name}.png")
        ...     data = Photographs(folder)(size=8, splits=(0, 0, 1))
        >>> data.classes, sorted(data.test.targets.tolist())
        (('cat', 'dog'), [0, 0, 1])
    """

    marker = "*"
    requires_all_classes = False  # a folder may only have images of ten of the thousand classes

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        classes = ordered_classes({image.label for image in labeled_images(self._folder)})
        name = f"photographs:{os.fspath(directory)}"
        self.info = describe_own_data(name, classes, (3, 224, 224), _LABELED_LAYOUT)

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        scale: float | None = None,
        window: str | Sequence[float] | None = None,
        slices: str | Sequence[int] | None = None,
    ) -> Source:
        """Return the photographs in random order.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Seed of the order.
            scale: As for :meth:`~OwnFolder.open`.
            window: ``(center, width)`` of the values shown from black to white, as there.
            slices: Numbers of the slices and frames of medical files that are images, as there.

        Raises:
            MissingDataError: If the folder has no photographs.
            ValueError: If an option is out of range.
        """
        reader = ImageReader(scale, window=window, slices=slices)
        listed = reader.group_patients(folder, labeled_images(folder))
        images = [listed[number] for number in np.random.default_rng(seed).permutation(len(listed))]
        notes = {"annotated": False}
        # All classes are given as negatives, so that images without a mask are not left out.
        return ListedSource(
            self.info.name,
            folder,
            images,
            None,
            classes,
            negatives=classes,
            notes=notes,
            reader=reader,
        )


def labeled_images(folder: Path) -> list[ImageEntry]:
    """Return the photographs of a folder with their classes, sorted.

    Args:
        folder: Contains one subfolder per class, or files named by their class.

    Returns:
        One entry per photograph, with its group in ``groups.csv``, if that file exists.

    Raises:
        MissingDataError: If the folder does not exist or has no images.
        DataFileError: If it cannot be listed, or ``groups.csv`` is malformed.
    """
    if not folder.is_dir():
        raise MissingDataError(f"photographs: {folder} is not a folder. {_LABELED_LAYOUT}")
    entries = class_folders(folder, ".", list_classes(folder), medical=True)
    if not entries:
        files = list_images(folder, ".", medical=True)
        labels = [class_of(Path(file).name) for file in files]
        if 1 < len(labels) == len(set(labels)) and not all(map(_SYNSET.match, labels)):
            labels = [UNLABELED] * len(files)
        entries = [ImageEntry(file, label) for file, label in zip(files, labels, strict=True)]
    if not entries:
        raise MissingDataError(f"photographs: {folder} has no image. {_LABELED_LAYOUT}")
    return assign_groups(folder, [ImageEntry(one.file.removeprefix("./"), one.label) for one in entries])


def class_of(name: str) -> str:
    """Return the class in a file name.

    Args:
        name: File name with suffix.

    Returns:
        The ImageNet class if the name begins with one, otherwise the name without suffix and trailing numbers.

    Example:
        >>> class_of("n01440764_tench.JPEG"), class_of("great_pyrenees_17.jpg"), class_of("cat.4001.jpg")
        ('n01440764', 'great_pyrenees', 'cat')
    """
    known = _SYNSET.match(name)
    return known.group() if known else _NUMBERS.sub("", image_stem(name))


def ordered_classes(labels: Collection[str]) -> tuple[str, ...]:
    """Return the classes in the order of the network's outputs.

    Args:
        labels: Classes of the photographs.

    Returns:
        The 1,000 classes of ImageNet-1k if all labels are among them, otherwise the sorted labels.

    Example:
        >>> ordered_classes({"n02123045"}).index("n02123045"), ordered_classes({"dog", "cat"})
        (281, ('cat', 'dog'))
    """
    known = imagenet_synsets()
    return known if set(labels) <= set(known) else tuple(sorted(set(labels)))


def imagenet_synsets() -> tuple[str, ...]:
    """Return the ids of the 1,000 classes of ImageNet-1k in the order of a network's outputs, such as n01440764."""
    return tuple(resources.files(__package__).joinpath("imagenet_synsets.txt").read_text(encoding="utf-8").split())
