"""Data sets of image files with one class per image, whose masks are matched to the images by file name."""

from __future__ import annotations

import csv
import dataclasses
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.messages import listed
from xaibench.data.disk.cache_folders import hash_contents
from xaibench.data.disk.file_readers import (
    DataFileError,
    MissingDataError,
    legible,
    text_encoding,
    to_nfc,
    wrap_file_errors,
)
from xaibench.data.disk.image_files import IMAGE_SUFFIXES, MEDICAL_SUFFIXES, is_image, is_medical, open_image
from xaibench.data.disk.source import Source
from xaibench.data.disk.splits import choose_classes

_LOGGER = logging.getLogger("xaibench")
_SPLITS = ("train", "val", "test")
#: Start of the names of groups that are the patients of DICOM files.
PATIENT = "patient "
#: The only class of a folder of images without class folders.
UNLABELED = "unlabeled"


class FrameReader(Protocol):
    """Reads images of files that may have several, such as :class:`~.photographs.image_folder.ImageReader`."""

    def __call__(self, file: Path, size: int, frame: int | None = None) -> Image.Image:
        """Read an image."""

    def frames(self, file: Path) -> Sequence[int] | None:
        """Return the numbers of the images in a file; None for a file with a single image."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """An image file of a data set.

    Attributes:
        file: Path below the folder of the set, with ``/``.
        label: Class name.
        split: The official split of the image; None = none.
        group: Images of one group stay in one split. None = images whose files are identical are a group.
    """

    file: str
    label: str
    split: str | None = None
    group: str | None = None

    @property
    def name(self) -> str:
        """File name with suffix."""
        return self.file.rpartition("/")[2]


class MaskRow(NamedTuple):
    """Metadata of a mask.

    Attributes:
        name: File name of its image, with or without suffix.
        label: Class of its image; None = not stated.
        where: Location of the mask (a file, or a file and a line), for error messages.
    """

    name: str
    label: str | None
    where: str


class Masks(Protocol):
    """A picklable collection of masks that are identified by the names of their images."""

    @property
    def rows(self) -> Sequence[MaskRow]:
        """Metadata of each mask."""

    def read(self, row: int, image: Path, frame: int | None = None) -> NDArray[np.bool_]:
        """Read the mask of ``rows[row]``, which belongs to the file ``image``: ``[h, w]``, True = important.

        ``frame`` is the number of the image in a file with several images.
        """


class ListedSource(Source):
    """Image files and their masks. An image without a mask is not annotated.

    The ``id`` of a sample is the path of its file, with ``#`` and the number of the image if a file has several. Such
    images form a group.

    Args:
        name: Name of the set, for the log.
        folder: The folder of the set.
        images: All images of the set, including unwanted classes, which are needed to match the masks correctly.
        masks: The masks; None = no image has one.
        classes: The wanted classes, in the order of their index.
        negatives: Classes whose images show nothing important: such an image without a mask is a true negative.
        notes: Entries to add to the ``meta`` of every sample.
        reader: Reads an image of a file, which may have several
            (:class:`~xaibench.data.photographs.image_folder.ImageReader`); None =
            :func:`~xaibench.data.disk.image_files.open_image`, which ignores the EXIF orientation.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        images: Sequence[ImageEntry],
        masks: Masks | None,
        classes: tuple[str, ...],
        *,
        negatives: Collection[str] = (),
        notes: Mapping[str, object] | None = None,
        reader: FrameReader | None = None,
    ) -> None:
        rows = match_masks(name, images, masks.rows) if masks is not None else np.full(len(images), -1)
        chosen = [number for number, image in enumerate(images) if image.label in classes]
        self.classes = classes
        self._folder = folder
        self._masks = masks
        self._reader: Callable[..., Image.Image] = reader or open_image
        files = [images[number] for number in chosen]
        groups = _number_groups(folder, files)
        numbers = [None if reader is None else reader.frames(folder / image.file) for image in files]
        counts = [1 if pages is None else len(pages) for pages in numbers]
        empty = [image.file for image, count in zip(files, counts, strict=True) if count == 0]
        warn_about(f"{name}: files without an image, left out", empty)
        self._rows = np.repeat(rows[chosen], counts)
        self._images = [image for image, count in zip(files, counts, strict=True) for _ in range(count)]
        self._frames = [frame for pages in numbers for frame in ((None,) if pages is None else pages)]
        self._notes = dict(notes or {})
        self.targets = np.array([classes.index(image.label) for image in self._images], dtype=np.int64)
        self.annotated = (self._rows >= 0) | np.array([image.label in negatives for image in self._images], dtype=bool)
        self.groups = np.repeat(groups, counts)
        own = [image.group for image in files]
        kinds = {
            "groups.csv": any(name is not None and not name.startswith(PATIENT) for name in own),
            "patients": any(name is not None and name.startswith(PATIENT) for name in own),
            "identical images": None in own,
            "files": any(count > 1 for count in counts),
        }
        self.groups_by = " and ".join(kind for kind, is_used in kinds.items() if is_used)
        splits = {image.split for image in self._images} - {None}
        if "train" in splits and len(splits) > 1:
            self.official = {
                split: np.array([n for n, image in enumerate(self._images) if image.split == split], dtype=np.int64)
                for split in _SPLITS
                if split in splits
            }

    def image(self, index: int, size: int) -> Image.Image:  # noqa: D102  # as in Source
        file, frame = self._folder / self._images[index].file, self._frames[index]
        return self._reader(file, size) if frame is None else self._reader(file, size, frame)

    def mask(self, index: int) -> NDArray[np.bool_] | None:  # noqa: D102
        row = int(self._rows[index])
        if row < 0 or self._masks is None:
            return None
        return self._masks.read(row, self._folder / self._images[index].file, self._frames[index])

    def files(self) -> set[Path]:
        """Return the files of the images."""
        return {self._folder / image.file for image in self._images}

    def meta(self, index: int) -> dict[str, object]:  # noqa: D102
        file, frame = self._images[index].file, self._frames[index]
        name = legible(file)
        return {
            "id": name if frame is None else f"{name}#{frame}",
            "file": name,
            "annotated": bool(self.annotated[index]),
            **self._notes,
        }


def _number_groups(folder: Path, images: Sequence[ImageEntry]) -> NDArray[np.int64]:
    """Return ``[N]`` the group number of each image.

    An image without a group of its own belongs to the group of the images whose files are identical, byte for byte.
    If all images have a group, no file is read.
    """
    names = [image.group for image in images]
    if None in names:
        contents = hash_contents([folder / image.file for image in images])
        known = {content: name for content, name in zip(contents, names, strict=True) if name is not None}
        for place, (content, image) in enumerate(zip(contents, images, strict=True)):
            # Groups are numbered by file name. NUL occurs in no name, so that a name is no group in groups.csv.
            own = f"{image_stem(image.name)}\0{image.file}"
            names[place] = image.group or known.setdefault(content, own)
    return np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1].astype(np.int64)


def match_masks(set_name: str, images: Sequence[ImageEntry], rows: Sequence[MaskRow]) -> NDArray[np.int64]:
    """Return ``[N]`` the number of the mask of each image, -1 if it has none.

    A mask belongs to the image with the same file name or, if it does not exist, to the image with the same name
    without suffix. A mask that states its class only matches images of that class. A mask that matches several images
    is ambiguous and not used. If an image has several masks, the first is used, as in the loader of the Saliency-Bench
    release.

    Args:
        set_name: Name of the set, for the log. Masks that are not used are logged.
        images: The images.
        rows: The masks.

    Example:
        >>> images = [ImageEntry("cat/1.jpg", "cat"), ImageEntry("dog/1.jpg", "dog"), ImageEntry("dog/2.jpg", "dog")]
        >>> match_masks("pets", images, [MaskRow("2", None, "a.csv:2"), MaskRow("1.jpg", "dog", "dog.csv:2")]).tolist()
        [-1, 1, 0]
    """
    by_name: dict[str, list[int]] = {}
    by_stem: dict[str, list[int]] = {}
    labels = [to_nfc(image.label) for image in images]
    for number, image in enumerate(images):
        name = to_nfc(image.name)
        by_name.setdefault(name, []).append(number)
        by_stem.setdefault(image_stem(name), []).append(number)
    row_of = np.full(len(images), -1, dtype=np.int64)
    without: list[str] = []
    several: list[str] = []
    twice: list[str] = []
    for number, row in enumerate(rows):
        candidates: list[int] = []
        label = None if row.label is None else to_nfc(row.label)
        for names, key in ((by_name, to_nfc(row.name)), (by_stem, image_stem(to_nfc(row.name)))):
            candidates = [one for one in names.get(key, ()) if label in (None, labels[one])]
            if candidates:
                break
        described = f"{row.where} ({row.name})"
        if len(candidates) != 1:
            (several if candidates else without).append(described)
            continue
        if row_of[candidates[0]] >= 0:
            twice.append(described)
        else:
            row_of[candidates[0]] = number
    warn_about(f"{set_name}: masks without an image", without)
    warn_about(f"{set_name}: masks that match several images, not used", several)
    warn_about(f"{set_name}: further masks of an image, of which only the first is used", twice)
    return row_of


def list_classes(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the subfolders of ``folder``, without hidden ones.

    Raises:
        MissingDataError: If the folder does not exist.
        DataFileError: If it cannot be listed.
    """
    with wrap_file_errors(folder), os.scandir(folder) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))


def own_classes(folder: Path, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """Return the class folders in a folder, or (``UNLABELED``,) if it has images instead; empty if it has neither.

    Args:
        folder: The folder.
        without: Names of subfolders that are not classes.

    Raises:
        MissingDataError: If the folder does not exist.
        DataFileError: If it cannot be listed.
    """
    classes = tuple(name for name in list_classes(folder) if name not in without)
    return classes or ((UNLABELED,) if list_images(folder, ".", medical=True) else ())


def require_images(folder: Path, images: Iterable[ImageEntry], classes: Iterable[str]) -> None:
    """Check that every class has an image.

    Raises:
        MissingDataError: If a class has no image; the message names its folder.
    """
    shown = {image.label for image in images}
    for label in classes:
        if label not in shown:
            suffixes = ", ".join([*sorted(IMAGE_SUFFIXES), *MEDICAL_SUFFIXES])
            raise MissingDataError(
                f"{folder / label} has no image ({suffixes}); add images, remove the folder, or leave the class out of "
                "classes=..."
            )


def choose_optional_classes(wanted: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the wanted classes as :func:`~xaibench.data.disk.splits.choose_classes` does; empty for no class.

    Raises:
        ValueError: If a class is unknown.
    """
    return choose_classes(wanted, known) if wanted else ()


def list_images(folder: Path, below: str, *, medical: bool = False) -> list[str]:
    """Return the sorted image files in ``folder/below`` as paths relative to ``folder``, without hidden files.

    With ``medical``, DICOM and NIfTI files are images, too.

    Raises:
        MissingDataError: If the folder does not exist.
        DataFileError: If it cannot be listed.
    """
    with wrap_file_errors(folder / below), os.scandir(folder / below) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.is_file() and (is_image(entry.name) or (medical and is_medical(Path(entry.path))))
        )
    return [f"{below}/{name}" for name in names]


def image_stem(name: str) -> str:
    """Return a file name without its image suffix; other dots belong to the name.

    Example:
        >>> image_stem("a.v2.JPG"), image_stem("a.v2"), image_stem("a.nii.gz")
        ('a.v2', 'a.v2', 'a')
    """
    for suffix in MEDICAL_SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return os.path.splitext(name)[0] if is_image(name) else name


def warn_about(what: str, cases: Iterable[str], *, shown: int = 5) -> None:
    """Log one warning with the number of cases and the first of them; nothing without a case."""
    named = list(cases)
    if named:
        more = f" and {len(named) - shown} more" if len(named) > shown else ""
        _LOGGER.warning("%s: %d: %s%s", what, len(named), "; ".join(named[:shown]), more)


def class_folders(folder: Path, below: str, classes: Sequence[str], *, medical: bool = False) -> list[ImageEntry]:
    """Return the images of ``folder/below/<class>/``, class by class. A class without a folder has none.

    With ``medical``, DICOM and NIfTI files are images, too.

    Raises:
        DataFileError: If a folder cannot be listed.
    """
    places = {label: f"{below}/{label}" for label in classes if (folder / below / label).is_dir()}
    return [
        ImageEntry(file, label)
        for label, place in places.items()
        for file in list_images(folder, place, medical=medical)
    ]


def official_folders(name: str, folder: Path, classes: Sequence[str]) -> list[ImageEntry]:
    """Return the images of ``{train,val,test}/<class>/``. A name that occurs in several splits counts in the last one.

    Raises:
        DataFileError: If a folder cannot be listed.
    """
    images: dict[str, list[ImageEntry]] = {}
    for split in _SPLITS:
        for image in class_folders(folder, split, classes):
            images.setdefault(image_stem(image.name), []).append(replace(image, split=split))
    kept: list[ImageEntry] = []
    dropped: list[ImageEntry] = []
    for same in images.values():
        last = max(_SPLITS.index(image.split or "") for image in same)
        for image in same:
            (kept if image.split == _SPLITS[last] else dropped).append(image)
    warn_about(f"{name}: images that are in a later split as well, left out", (one.file for one in dropped))
    return sorted(kept, key=lambda image: image.file)


#: Name of the file in the folder of a data set.
GROUPS_FILE = "groups.csv"


def assign_groups(folder: Path, images: Sequence[ImageEntry], below: str = "") -> list[ImageEntry]:
    """Return the images with the groups in ``groups.csv``; unchanged if the file does not exist.

    The file has the columns ``file`` and ``group``. A file is the path of an image below ``folder`` or below
    ``folder/below``, or only its name, each with or without suffix.

    Args:
        folder: The folder of the data set.
        images: The images of the data set.
        below: Subfolder of the images, which rows may leave out.

    Raises:
        DataFileError: If the file lacks a column, names an image that does not exist, or gives an image two groups.
    """
    file = folder / GROUPS_FILE
    if not file.exists():
        return list(images)
    groups = _read_groups(file)
    used: set[str] = set()
    grouped = []
    for image in images:
        path = to_nfc(image.file)
        names = path, path.removeprefix(f"{below}/"), path.rpartition("/")[2]
        keys = [key for key in (*names, *map(image_stem, names)) if key in groups]
        used.update(keys)
        grouped.append(dataclasses.replace(image, group=f"/{groups[keys[0]]}") if keys else image)
    if strange := sorted(groups.keys() - used):
        raise DataFileError(
            f"{file} names files that are not images of the data set: {listed(strange, most=5)}; expected names such "
            f"as {images[0].file}. Correct these rows, or remove them."
        )
    return grouped


def _read_groups(file: Path) -> dict[str, str]:
    """Return file name to group."""
    groups: dict[str, str] = {}
    with wrap_file_errors(file), open(file, encoding=text_encoding(file), newline="") as stream:
        reader = csv.DictReader(stream)
        header = [name.strip().casefold() for name in reader.fieldnames or ()]
        if "file" not in header or "group" not in header:
            raise DataFileError(f"{file} has the columns {', '.join(header) or '(none)'}; expected file and group.")
        reader.fieldnames = header
        broken = []
        for row in reader:
            name, group = ((row[key] or "").strip() for key in ("file", "group"))
            name = to_nfc(name.replace("\\", "/")).removeprefix("./")
            if not name or not group:
                broken.append(f"line {reader.line_num}")
            elif groups.setdefault(name, group) != group:
                raise DataFileError(
                    f"{file}, line {reader.line_num}: {name} is in {groups[name]!r} and in {group!r}; give one group."
                )
    warn_about(f"{file}: rows without a file or a group, left out", broken)
    return groups
