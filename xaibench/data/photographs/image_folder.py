"""Your own images and masks."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import DirectorySet, ProgressCallback
from xaibench.data.disk.file_readers import BoundedFile, DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.disk.groups import assign_groups
from xaibench.data.disk.image_files import check_same_size, open_image
from xaibench.data.disk.image_lists import (
    ListedSource,
    MaskRow,
    Masks,
    choose_optional_classes,
    class_folders,
    list_classes,
    list_images,
    require_images,
)
from xaibench.data.disk.source import Source
from xaibench.data.masks.human_masks import TABLE_FOLDER, HumanMasks, prepare_masks

_IMAGES, _MASKS = "image", "mask"
_LAYOUT = (
    "Expected image/<class>/<name>.jpg (or any other image) and mask/<class>/<name>.png of the same size, in which "
    "every pixel other than 0 is important; or, instead of mask, attention_label/*.csv with the columns img_idx and "
    "attention (a JSON list of lists of 0 and 1). A file groups.csv with the columns file and group keeps related "
    "images (of one patient) in one split."
)


class OwnFolder(DirectorySet):
    """Your own images and masks: ``OwnFolder("~/mine")``, by name ``"folder:~/mine"``.

    The images are ``image/<class>/*``; the classes are the subfolders, sorted. The masks are either image files or
    tables. Image files are ``mask/<class>/*`` with the same name (without suffix) and the same size; every pixel other
    than black is important, or in a JPEG, whose values are not exact, every pixel of at least half white. Tables are
    ``attention_label/*.csv`` (:mod:`xaibench.data.masks.human_masks`), with masks of any size. An image without a mask
    is not annotated; an image whose mask is all 0 is a true negative.

    The EXIF orientation of images and masks is applied, as in image viewers, so draw a mask on the image as displayed.
    Gray images with more than 8 bits keep their depth and are divided by the value of white (``scale``), which does not
    depend on the values in the file. ``ground`` is the gray level behind transparent pixels.

    ``groups.csv`` lists images that must stay in one split, such as those of one patient. It has the columns ``file``
    (as in ``meta``: ``image/<class>/<file name>``; or ``<class>/<file name>``, or only the file name) and ``group``. A
    row that matches no image is an error, since its group might be divided between splits unnoticed. An image that is
    not listed forms a group with the images whose files are identical, byte for byte. Equal file names mean nothing.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder ``image`` or its subfolders of classes are missing.
    """

    marker = _IMAGES

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        if not (self._folder / _IMAGES).is_dir():
            raise MissingDataError(f"folder: {self._folder / _IMAGES} is not a folder. {_LAYOUT}")
        classes = list_classes(self._folder / _IMAGES)
        if not classes:
            raise MissingDataError(f"folder: {self._folder / _IMAGES} has no subfolder of a class. {_LAYOUT}")
        self.info = DatasetInfo(
            f"folder:{os.fspath(directory)}",
            classes=classes,
            image_shape=(3, 224, 224),
            citation="your own data",
            license="yours",
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

        Raises:
            MissingDataError: If there are both mask files and tables, or neither, or no image of a class.
            ValueError: If ``counterfactual`` is used without tables, a class is unknown, or ``scale`` or ``ground`` is
                out of range.
        """
        if scale is not None and not 0 < scale < np.inf:
            raise ValueError(f"scale={scale!r}: expected the value of white, such as 4095, or None.")
        if not 0 <= ground <= 1:
            raise ValueError(f"ground={ground!r}: expected a gray level from 0 (black) to 1 (white).")
        known = self.info.classes
        images = class_folders(folder, _IMAGES, known)
        require_images(folder / _IMAGES, images, classes)
        masks: Masks
        if (folder / _MASKS).is_dir() == (folder / TABLE_FOLDER).is_dir():
            both = "both" if (folder / TABLE_FOLDER).is_dir() else "neither"
            raise MissingDataError(
                f"folder: {folder} has {both} of {_MASKS} and {TABLE_FOLDER}, expected one. {_LAYOUT}"
            )
        if (folder / TABLE_FOLDER).is_dir():
            masks = HumanMasks(folder / TABLE_FOLDER, known, counterfactual=counterfactual)
        elif counterfactual:
            raise ValueError(f"counterfactual=True needs tables in {TABLE_FOLDER}, but {folder} has none.")
        else:
            masks = _MaskFiles(folder)
        images = assign_groups(folder, images, _IMAGES)
        empty = choose_optional_classes(negatives, known)
        notes = {"counterfactual": counterfactual}
        reader = functools.partial(open_image, upright=True, scale=scale, ground=ground)
        return ListedSource(self.info.name, folder, images, masks, classes, negatives=empty, notes=notes, reader=reader)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks of tables."""
        prepare_masks(folder / TABLE_FOLDER, workers=workers, progress=progress)


class _MaskFiles:
    """Mask files ``mask/<class>/*``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = [
            (label, file)
            for label in list_classes(folder / _MASKS)
            for file in list_images(folder, f"{_MASKS}/{label}")
        ]
        self.rows = [MaskRow(file.rpartition("/")[2], label, file) for label, file in files]

    def read(self, row: int, image: Path) -> NDArray[np.bool_]:
        """Read a mask ``[h, w]``, True = important.

        Raises:
            MissingDataError: If the file does not exist.
            DataFileError: If the file cannot be read, or differs in size from its image.
        """
        path = self._folder / self.rows[row].where
        with wrap_file_errors(path), BoundedFile(path) as stream, Image.open(stream) as opened:
            exact = opened.format != "JPEG"
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            # Palette indices are labels if the first color is black; otherwise the palette only stores colors. All
            # colors other than black are important, unless they are transparent.
            palette = (opened.getpalette() if opened.mode == "P" else None) or []
            is_colored = any(palette[:3]) or opened.mode not in ("1", "L", "P", "I", "I;16", "F")
            values = np.asarray(opened.convert("RGBA") if is_colored else opened)
        if not np.isfinite(values).all():
            raise DataFileError(f"{path} is a mask with NaN or infinite values; expected 0 for unimportant pixels.")
        marked: NDArray[np.bool_] = values != 0 if exact else values >= 128
        if is_colored:
            marked = marked[..., :3].any(axis=2) & marked[..., 3]
        check_same_size(marked, path, image, upright=True)
        return marked
