"""Your own images and masks."""

from __future__ import annotations

import csv
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from xaibench.core.messages import listed
from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, Progress
from xaibench.data.disk.file_readers import BoundedFile, DataFileError, MissingDataError, composed, naming
from xaibench.data.disk.image_files import check_same_size, open_image
from xaibench.data.disk.image_lists import (
    Listed,
    ListedSource,
    MaskRow,
    Masks,
    class_folders,
    known_classes,
    list_classes,
    list_images,
    require_images,
    stem,
    warn_of,
)
from xaibench.data.disk.source import Source
from xaibench.data.masks.human_masks import FOLDER, HumanMasks, prepare_masks

_IMAGES, _MASKS, _GROUPS = "image", "mask", "groups.csv"
_LAYOUT = (
    "Expected image/<class>/<name>.jpg (or any other image) and mask/<class>/<name>.png of the same size, in which "
    "every pixel but 0 is important; or, instead of mask, attention_label/*.csv with the columns img_idx and attention "
    "(a JSON list of lists of 0 and 1). A file groups.csv with the columns file and group keeps what belongs together "
    "(the images of a patient) in one split."
)


class Folder(AnnotatedSet):
    """Your own set: ``Folder("~/mine")``, by name ``"folder:~/mine"``.

    ``image/<class>/*`` are the images; the classes are the folders, in sorted order. Their masks are either images,
    ``mask/<class>/*`` with the same name but for the suffix and the same size, every pixel but black important (a JPEG,
    whose values are not exact, from half white up); or the tables ``attention_label/*.csv``
    (:mod:`xaibench.data.masks.human_masks`), of any size. An image without a mask is not annotated; one whose mask
    is all 0 is a true negative.

    Images and masks are turned as the EXIF orientation of each says, as every viewer shows them: a mask belongs to the
    image as it is seen. Grey of more than 8 bits keeps its depth, over the value that is white (``scale``), which does
    not depend on what is in the file. Through transparent pixels of an image ``ground`` is seen.

    ``groups.csv``, with the columns ``file`` (as in ``meta``: ``image/<class>/<file name>``; or ``<class>/<file
    name>``, or the file name alone) and ``group``, names images that must not go to two splits, such as those of one
    patient. A row that names no image is an error: whom it meant might be in two splits unseen. An image that the file
    does not name forms a group with those of its own name in other classes.

    Args:
        directory: The folder; ``~`` is resolved. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If it holds no folder ``image`` with folders of classes in it.
    """

    folders = ("",)
    marker = _IMAGES

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = Path(directory).expanduser()
        if not (self._folder / _IMAGES).is_dir():
            raise MissingDataError(f"folder: there is no folder {self._folder / _IMAGES}. {_LAYOUT}")
        classes = list_classes(self._folder / _IMAGES)
        if not classes:
            raise MissingDataError(f"folder: {self._folder / _IMAGES} holds no folder of a class. {_LAYOUT}")
        self.info = DatasetInfo(
            f"folder:{os.fspath(directory)}",
            classes=classes,
            image_shape=(3, 224, 224),
            citation="your own data",
            licence="yours",
            how_to_get=_LAYOUT,
        )

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
    ) -> Source:
        """The images and their masks.

        Args:
            folder: The folder of the set.
            classes: The wanted classes.
            seed: Not used: nothing is drawn.
            counterfactual: Take the tables with ``counterfactual`` in their name, which mark what must not matter.
            negatives: Classes in whose images nothing is to be found (``"healthy"``): without a mask, such an image
                counts as annotated, with an empty mask.
            scale: The value that is white in images of more than 8 bits, such as 4095 for 12 bits stored in 16. None =
                65,535 for 16 bits, 1 for floating-point numbers.
            ground: The grey, from 0 (black) to 1 (white), behind transparent pixels.

        Raises:
            MissingDataError: If there are masks and tables, or neither, or no image of a class.
            ValueError: If ``counterfactual`` is asked of masks that are images, a class is not known, or ``scale`` or
                ``ground`` is out of its range.
        """
        if scale is not None and not 0 < scale < np.inf:
            raise ValueError(f"scale={scale!r}: expected the value that is white, such as 4095, or None.")
        if not 0 <= ground <= 1:
            raise ValueError(f"ground={ground!r}: expected a grey from 0 (black) to 1 (white).")
        known = self.info.classes
        images = class_folders(folder, _IMAGES, known)
        require_images(folder / _IMAGES, images, classes)
        masks: Masks
        if (folder / _MASKS).is_dir() == (folder / FOLDER).is_dir():
            both = "both" if (folder / FOLDER).is_dir() else "neither"
            raise MissingDataError(f"folder: {folder} has {both} of {_MASKS} and {FOLDER}, expected one. {_LAYOUT}")
        if (folder / FOLDER).is_dir():
            masks = HumanMasks(folder / FOLDER, known, counterfactual=counterfactual)
        elif counterfactual:
            raise ValueError(f"counterfactual=True: only tables in {FOLDER} hold such masks, and {folder} has none.")
        else:
            masks = _MaskFiles(folder)
        images = _grouped(images, folder / _GROUPS)
        empty = known_classes(negatives, known)
        notes = {"counterfactual": counterfactual}
        reader = functools.partial(open_image, upright=True, scale=scale, ground=ground)
        return ListedSource(self.info.name, folder, images, masks, classes, negatives=empty, notes=notes, reader=reader)

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """The folder of the set; ``root`` and ``download`` have no say."""
        return self._folder

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Keep the masks of tables as bits."""
        prepare_masks(folder / FOLDER, workers=workers, progress=progress)


class _MaskFiles:
    """Masks that are images, ``mask/<class>/*``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = [
            (label, file)
            for label in list_classes(folder / _MASKS)
            for file in list_images(folder, f"{_MASKS}/{label}")
        ]
        self.rows = [MaskRow(file.rpartition("/")[2], label, file) for label, file in files]

    def read(self, row: int, image: Path) -> NDArray[np.bool_]:
        """``[h, w]``, True = important.

        Raises:
            MissingDataError: If a file is not there.
            DataFileError: If it cannot be read, or has another size than its image.
        """
        path = self._folder / self.rows[row].where
        with naming(path), BoundedFile(path) as stream, Image.open(stream) as opened:
            exact = opened.format != "JPEG"
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            # A palette's indices are the labels, but where the first is not black, it is just a way to store colours.
            # Of colours all but black count, unless they are transparent.
            palette = (opened.getpalette() if opened.mode == "P" else None) or []
            coloured = any(palette[:3]) or opened.mode not in ("1", "L", "P", "I", "I;16", "F")
            values = np.asarray(opened.convert("RGBA") if coloured else opened)
        if not np.isfinite(values).all():
            raise DataFileError(f"{path} is a mask that holds NaN or infinite values; expected 0 where nothing is.")
        marked: NDArray[np.bool_] = values != 0 if exact else values >= 128
        if coloured:
            marked = marked[..., :3].any(axis=2) & marked[..., 3]
        check_same_size(marked, path, image, upright=True)
        return marked


def _grouped(images: list[Listed], file: Path) -> list[Listed]:
    """The images with the groups that the file names; as they are, if there is none.

    Raises:
        DataFileError: If it lacks a column, names an image that is not there, or gives one two groups.
    """
    if not file.exists():
        return images
    groups = _read_groups(file)
    used: set[str] = set()
    grouped = []
    for image in images:
        path = composed(image.file)
        below = path.removeprefix(f"{_IMAGES}/")
        name = below.rpartition("/")[2]
        keys = [key for key in (path, below, name, stem(path), stem(below), stem(name)) if key in groups]
        used.update(keys)
        # A name and a group may be spelt the same; the slash keeps them apart, for no name has one.
        grouped.append(dataclasses.replace(image, group=f"/{groups[keys[0]]}") if keys else image)
    if strange := sorted(groups.keys() - used):
        raise DataFileError(
            f"{file} names what is no image of the set: {listed(strange, most=5)}; expected names such as "
            f"{images[0].file}. Correct these rows, or remove them."
        )
    return grouped


def _read_groups(file: Path) -> dict[str, str]:
    """The group of each file name."""
    groups: dict[str, str] = {}
    with naming(file), open(file, encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        header = [name.strip().casefold() for name in reader.fieldnames or ()]
        if "file" not in header or "group" not in header:
            raise DataFileError(f"{file} has the columns {', '.join(header) or '(none)'}; expected file and group.")
        reader.fieldnames = header
        broken = []
        for row in reader:
            name, group = ((row[key] or "").strip() for key in ("file", "group"))
            name = composed(name.replace("\\", "/")).removeprefix("./")
            if not name or not group:
                broken.append(f"line {reader.line_num}")
            elif groups.setdefault(name, group) != group:
                raise DataFileError(
                    f"{file}, line {reader.line_num}: {name} is in {groups[name]!r} and in {group!r}; give one group."
                )
    warn_of(f"{file}: rows without a file or a group, left out", broken)
    return groups
