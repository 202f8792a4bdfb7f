"""Base class of ``gender`` and ``scene``: photographs of a public data set with human annotations for some of them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_lists import ImageEntry, ListedSource, class_folders, official_folders
from xaibench.data.disk.source import Source
from xaibench.data.photographs.human_masks import TABLE_FOLDER, HumanMasks, is_kept, list_tables, prepare_masks

_LOGGER = logging.getLogger("xaibench")


class MarkedPhotographs(AnnotatedSet):
    """Photographs with human annotations of the pixels that show the class, or must not matter (counterfactual).

    The data set is a folder ``{train,val,test}/<class>/``, or ``image/<class>/`` as in the processed release, with the
    masks in ``attention_label/*.csv``. An image without a mask that was checked as good is not annotated.
    ``splits="official"`` uses the split of the folders.

    If only the public data set is on disk, from which the photographs were taken, its images of these classes are
    listed without annotations; load them with ``include_unannotated=True``. Other annotations of the public data set
    are never used as masks, because they do not mark the pixels that show the class. If its folder has
    ``attention_label/*.csv``, those masks are used.

    Attributes:
        raw_folders: Folders below ``root`` in which the public data set may be.
    """

    marker = TABLE_FOLDER
    contents: ClassVar = {
        "human masks": f"{TABLE_FOLDER}/*.csv",
        "photographs": "image/*/* or train/*/*",
    }
    raw_folders: ClassVar[Sequence[str]]

    @abstractmethod
    def is_raw(self, folder: Path) -> bool:
        """Return whether the folder contains the public data set.

        Args:
            folder: The folder to check.

        Returns:
            True if it does.
        """

    @abstractmethod
    def list_raw(self, folder: Path) -> list[ImageEntry]:
        """List the images of the public data set that belong to the classes.

        Args:
            folder: The folder of the public data set.

        Returns:
            One entry per image.

        Raises:
            DataFileError: If a list cannot be read.
        """

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int, counterfactual: bool = False) -> Source:
        """Return the images and their human annotations.

        Args:
            folder: The folder of the data set or of the public data set.
            classes: The wanted classes.
            seed: Not used.
            counterfactual: Use the masks of pixels that must not matter.
        """
        name, known = self.info.name, self.info.classes
        images = official_folders(name, folder, known) or class_folders(folder, "image", known)
        if not images and self.is_raw(folder):
            images = self.list_raw(folder)
        if not images:
            raise MissingDataError(f"{name}: {folder} has none of its images.\n{self.info.how_to_get}")
        masks = None
        if (folder / TABLE_FOLDER).is_dir():
            masks = HumanMasks(folder / TABLE_FOLDER, known, counterfactual=counterfactual)
        else:
            _LOGGER.warning(
                "%s: there is no %s, so no image is annotated.\n%s", name, folder / TABLE_FOLDER, self.info.how_to_get
            )
        return ListedSource(name, folder, images, masks, classes, notes={"counterfactual": counterfactual})

    def look_in(self, base: Path) -> Path | None:
        """Return the folder of the data set or, if it is missing, of the public data set; None if neither is there."""
        raw = (base / name for name in self.raw_folders)
        return super().look_in(base) or next((folder for folder in raw if self.is_raw(folder)), None)

    def list_contents(self, base: Path) -> list[tuple[str, bool]]:  # noqa: D102  # as in AnnotatedSet
        masks, *photographs = super().list_contents(base)
        folder = self.look_in(base)  # the public data set has its photographs elsewhere
        return [masks] if folder is not None and self.is_raw(folder) else [masks, *photographs]

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks."""
        prepare_masks(folder / TABLE_FOLDER, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an image on disk has a checked mask; None if the masks are not cached."""
        tables = list_tables(folder / TABLE_FOLDER, counterfactual=False)
        if not tables:
            return False
        return super().is_ready(folder) if all(map(is_kept, tables)) else None
