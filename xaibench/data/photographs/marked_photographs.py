"""What gender and scene have in common: photographs of a public set, and masks that people drew for some of them."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from xaibench.data.disk.annotated_set import AnnotatedSet, Progress, data_root
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_lists import Listed, ListedSource, class_folders, official_folders
from xaibench.data.disk.source import Source
from xaibench.data.masks.human_masks import FOLDER, HumanMasks, list_tables, prepare_masks
from xaibench.data.masks.mask_tables import is_kept

_LOGGER = logging.getLogger("xaibench")


class MarkedPhotographs(AnnotatedSet):
    """Photographs in which people marked what shows their class, and what does not (the counterfactual masks).

    The set is a folder ``{train,val,test}/<class>/``, or ``image/<class>/`` as in the processed release, with the masks
    in ``attention_label/*.csv``. An image without a mask that was checked as good is not annotated.
    ``splits="official"`` takes the folders' own split.

    Where only the public set that the photographs come from is there, its images of these classes are listed, none of
    them annotated: they are loaded with ``include_unannotated=True``. Whatever else the public set marks in them is not
    what people marked as showing the class, and is never taken for it. If ``attention_label/*.csv`` lies in its folder,
    those masks are used.

    Attributes:
        raw_folders: Where the public set lies below ``root``.
    """

    marker = FOLDER
    raw_folders: ClassVar[Sequence[str]]

    @abstractmethod
    def is_raw(self, folder: Path) -> bool:
        """Whether the public set lies in this folder.

        Args:
            folder: Where to look.

        Returns:
            True if it does.
        """

    @abstractmethod
    def list_raw(self, folder: Path) -> list[Listed]:
        """The public set's images of the classes.

        Args:
            folder: Where the set lies.

        Returns:
            One entry an image.

        Raises:
            DataFileError: If a list cannot be read.
        """

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int, counterfactual: bool = False) -> Source:
        """The images and the masks that people drew.

        Args:
            folder: The folder of the set, or of the public one.
            classes: The wanted classes.
            seed: Not used: nothing is drawn.
            counterfactual: Take the masks of what must not matter instead of those of what shows the class.
        """
        name, known = self.info.name, self.info.classes
        images = official_folders(name, folder, known) or class_folders(folder, "image", known)
        if not images and self.is_raw(folder):
            images = self.list_raw(folder)
        if not images:
            raise MissingDataError(f"{name}: {folder} holds none of its images.\n{self.info.how_to_get}")
        masks = None
        if (folder / FOLDER).is_dir():
            masks = HumanMasks(folder / FOLDER, known, counterfactual=counterfactual)
        else:
            _LOGGER.warning(
                "%s: there is no %s, so no image is annotated.\n%s", name, folder / FOLDER, self.info.how_to_get
            )
        return ListedSource(name, folder, images, masks, classes, notes={"counterfactual": counterfactual})

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """The folder of the set; where there is none, that of the public set.

        Raises:
            MissingDataError: If neither is there, or a download is asked for: the masks cannot be fetched.
        """
        try:
            return super().find(root)
        except MissingDataError:
            base = data_root(root)
            if base is not None:
                for place in self.raw_folders:
                    if self.is_raw(base / place):
                        return base / place
                if download:
                    self.download(base)
            raise

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Keep the masks as bits."""
        prepare_masks(folder / FOLDER, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Whether a mask that was checked is of an image that is there."""
        tables = list_tables(folder / FOLDER, counterfactual=False)
        if not tables:
            return False
        return super().is_ready(folder) if all(map(is_kept, tables)) else None
