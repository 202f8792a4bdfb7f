"""Sets of image files with a class each, whose masks are kept elsewhere under the images' names."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.class_choice import choose_classes
from xaibench.data.disk.file_readers import MissingDataError, composed, naming
from xaibench.data.disk.image_files import IMAGE_SUFFIXES, is_image, open_image
from xaibench.data.disk.source import Source

_LOGGER = logging.getLogger("xaibench")
_PARTS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Listed:
    """An image file of a set.

    Attributes:
        file: Its path below the set's folder, with ``/``.
        label: Its class.
        part: The official split that it is in; None = none.
        group: Images of one group stay in one split; None = those whose file names are the same but for the suffix.
    """

    file: str
    label: str
    part: str | None = None
    group: str | None = None

    @property
    def name(self) -> str:
        """The file name, with its suffix."""
        return self.file.rpartition("/")[2]


class MaskRow(NamedTuple):
    """What a mask says of itself: the image it is of, that image's class if it says so, and where it stands."""

    name: str
    label: str | None
    where: str


class Masks(Protocol):
    """Masks under the names of their images; picklable."""

    @property
    def rows(self) -> Sequence[MaskRow]:
        """What each mask is of."""

    def read(self, row: int, image: Path) -> NDArray[np.bool_]:
        """``[h, w]``, True = important: the mask of ``rows[row]``, which belongs to the file ``image``."""


class ListedSource(Source):
    """Image files and their masks. An image without a mask is not annotated.

    Samples have the path of their file as ``id``.

    Args:
        name: Name of the set, for the log.
        folder: The set's folder.
        images: All its images, of unwanted classes too: their masks must not be taken for those of others.
        masks: Their masks; None = there are none.
        classes: The wanted classes, in their order.
        negatives: Classes in whose images nothing is important: those without a mask are true negatives.
        notes: What ``meta`` adds to every sample.
        reader: ``reader(file, size)`` reads an image; None =
            :func:`~xaibench.data.disk.image_files.open_image`, which takes it as it is stored.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        images: Sequence[Listed],
        masks: Masks | None,
        classes: tuple[str, ...],
        *,
        negatives: Collection[str] = (),
        notes: Mapping[str, object] | None = None,
        reader: Callable[[Path, int], Image.Image] | None = None,
    ) -> None:
        rows = match(name, images, masks.rows) if masks is not None else np.full(len(images), -1)
        kept = [number for number, image in enumerate(images) if image.label in classes]
        self.classes = classes
        self._folder = folder
        self._masks = masks
        self._reader = reader or open_image
        self._rows = rows[kept]
        self._images = [images[number] for number in kept]
        self._notes = dict(notes or {})
        self.targets = np.array([classes.index(image.label) for image in self._images], dtype=np.int64)
        self.annotated = (self._rows >= 0) | np.array([image.label in negatives for image in self._images], dtype=bool)
        groups = [image.group or stem(image.name) for image in self._images]
        self.groups = np.unique(np.array(groups, dtype=np.str_), return_inverse=True)[1].astype(np.int64)
        parts = {image.part for image in self._images} - {None}
        if "train" in parts and len(parts) > 1:
            self.official = {
                part: np.array([n for n, image in enumerate(self._images) if image.part == part], dtype=np.int64)
                for part in _PARTS
                if part in parts
            }

    def image(self, index: int, size: int) -> Image.Image:  # noqa: D102  # as in Source
        return self._reader(self._folder / self._images[index].file, size)

    def mask(self, index: int) -> NDArray[np.bool_] | None:  # noqa: D102
        row = int(self._rows[index])
        return (
            None if row < 0 or self._masks is None else self._masks.read(row, self._folder / self._images[index].file)
        )

    def meta(self, index: int) -> dict[str, object]:  # noqa: D102
        file = self._images[index].file
        return {"id": file, "file": file, "annotated": bool(self.annotated[index]), **self._notes}


def match(set_name: str, images: Sequence[Listed], rows: Sequence[MaskRow]) -> NDArray[np.int64]:
    """``[N]``: the row of each image, -1 where it has none.

    A row belongs to the image of its class with its file name; where there is none such, to the one with its name but
    for the suffix. A row that names its class is never matched with another. What is not certain is not guessed: a row
    that several images answer to is used for none of them. Of several rows of one image the first counts, as in the
    loader of the Saliency-Bench release.

    Args:
        set_name: Name of the set; rows that are not used are logged under it.
        images: The images.
        rows: The masks.

    Example:
        >>> images = [Listed("cat/1.jpg", "cat"), Listed("dog/1.jpg", "dog"), Listed("dog/2.jpg", "dog")]
        >>> match("pets", images, [MaskRow("2", None, "a.csv:2"), MaskRow("1.jpg", "dog", "dog.csv:2")]).tolist()
        [-1, 1, 0]
    """
    by_name: dict[str, list[int]] = {}
    by_stem: dict[str, list[int]] = {}
    labels = [composed(image.label) for image in images]
    for number, image in enumerate(images):
        name = composed(image.name)
        by_name.setdefault(name, []).append(number)
        by_stem.setdefault(stem(name), []).append(number)
    found = np.full(len(images), -1, dtype=np.int64)
    without: list[str] = []
    several: list[str] = []
    twice: list[str] = []
    for number, row in enumerate(rows):
        candidates: list[int] = []
        label = None if row.label is None else composed(row.label)
        for names, key in ((by_name, composed(row.name)), (by_stem, stem(composed(row.name)))):
            candidates = [one for one in names.get(key, ()) if label in (None, labels[one])]
            if candidates:
                break
        said = f"{row.where} ({row.name})"
        if len(candidates) != 1:
            (several if candidates else without).append(said)
            continue
        if found[candidates[0]] >= 0:
            twice.append(said)
        else:
            found[candidates[0]] = number
    warn_of(f"{set_name}: masks of which there is no image", without)
    warn_of(f"{set_name}: masks that several images answer to, used for none", several)
    warn_of(f"{set_name}: images with a further mask, of which the first counts", twice)
    return found


def list_classes(folder: Path) -> tuple[str, ...]:
    """The names of the folders in ``folder`` that are not hidden, sorted.

    Raises:
        MissingDataError: If there is no such folder.
        DataFileError: If it cannot be listed.
    """
    with naming(folder), os.scandir(folder) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))


def require_images(folder: Path, images: Iterable[Listed], classes: Iterable[str]) -> None:
    """Each of the classes has an image.

    Raises:
        MissingDataError: If one has none; names its folder.
    """
    shown = {image.label for image in images}
    for label in classes:
        if label not in shown:
            suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
            raise MissingDataError(
                f"{folder / label} holds no image ({suffixes}); fill it, remove it, or leave the class out of "
                "classes=..."
            )


def known_classes(wanted: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """As :func:`~xaibench.data.disk.class_choice.choose_classes`, but none is none.

    Raises:
        ValueError: For a name that is not known.
    """
    return choose_classes(wanted, known) if wanted else ()


def list_images(folder: Path, below: str) -> list[str]:
    """The image files in ``folder/below``, sorted, as paths from ``folder``; hidden files are passed over.

    Raises:
        MissingDataError: If there is no such folder.
        DataFileError: If it cannot be listed.
    """
    with naming(folder / below), os.scandir(folder / below) as entries:
        names = sorted(entry.name for entry in entries if is_image(entry.name) and entry.is_file())
    return [f"{below}/{name}" for name in names]


def stem(name: str) -> str:
    """A file name without the suffix of an image; other dots belong to the name.

    Example:
        >>> stem("a.v2.JPG"), stem("a.v2")
        ('a.v2', 'a.v2')
    """
    return os.path.splitext(name)[0] if is_image(name) else name


def warn_of(what: str, cases: Iterable[str], *, shown: int = 5) -> None:
    """One warning that counts the cases and names the first of them; none if there is no case."""
    named = list(cases)
    if named:
        more = f" and {len(named) - shown} more" if len(named) > shown else ""
        _LOGGER.warning("%s: %d: %s%s", what, len(named), "; ".join(named[:shown]), more)


def class_folders(folder: Path, below: str, classes: Sequence[str]) -> list[Listed]:
    """The images of ``folder/below/<class>/``, in this order of the classes; a class without a folder has none.

    Raises:
        DataFileError: If a folder cannot be listed.
    """
    places = {label: f"{below}/{label}" for label in classes if (folder / below / label).is_dir()}
    return [Listed(file, label) for label, place in places.items() for file in list_images(folder, place)]


def official_folders(name: str, folder: Path, classes: Sequence[str]) -> list[Listed]:
    """The images of ``{train,val,test}/<class>/``. One whose name is in several parts counts in the last of them only.

    Raises:
        DataFileError: If a folder cannot be listed.
    """
    images: dict[str, list[Listed]] = {}
    for part in _PARTS:
        for image in class_folders(folder, part, classes):
            images.setdefault(stem(image.name), []).append(replace(image, part=part))
    kept: list[Listed] = []
    dropped: list[Listed] = []
    for same in images.values():
        last = max(_PARTS.index(image.part or "") for image in same)
        for image in same:
            (kept if image.part == _PARTS[last] else dropped).append(image)
    warn_of(f"{name}: images that are in another split as well, left out of this one", (one.file for one in dropped))
    return sorted(kept, key=lambda image: image.file)
