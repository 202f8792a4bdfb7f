"""The processed Saliency-Bench release, as it lies on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, Progress
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_lists import ListedSource, class_folders, known_classes, list_classes, require_images
from xaibench.data.disk.source import Source
from xaibench.data.masks.human_masks import FOLDER, HumanMasks, prepare_masks

_IMAGES = "image"
_LAYOUT = (
    "Expected Benchmarks/<dataset>/image/<class>/*.jpg|png and Benchmarks/<dataset>/attention_label/*.csv with the "
    "columns img_idx and attention. Get the data set's zip by hand from xaidataset.github.io, unpack it, and give the "
    "folder <dataset>, or one that holds no other."
)


class Published(AnnotatedSet):
    """A set of the processed release: ``Published("~/Benchmarks/pet")``, by name ``"published:~/Benchmarks/pet"``.

    The classes are the folders in ``image``, in sorted order; class indices follow the order of the ``classes`` asked
    for. Masks, 224×224 as published, stretch over the image, which is taken as it is stored. An image without a mask is
    not annotated. A file name that occurs in two classes is taken for one photograph that shows both: it stays in one
    split, and a mask is given to it only where the table or the row says the class.

    Args:
        directory: ``Benchmarks/<dataset>``, or a folder that holds exactly one such; ``~`` is resolved. The parameter
            ``root`` is not used.

    Raises:
        MissingDataError: If there is no such folder, none with ``image`` in it, or several.
    """

    folders = ("",)
    marker = _IMAGES

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = _dataset_folder(Path(directory).expanduser())
        self.info = DatasetInfo(
            f"published:{os.fspath(directory)}",
            classes=list_classes(self._folder / _IMAGES),
            image_shape=(3, 224, 224),
            citation="Zhang et al.: XAI Benchmark for Visual Explanation (Saliency-Bench), arXiv 2310.08537, 2023",
            licence="that of the set which the release processed; see xaibench list datasets",
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
    ) -> Source:
        """The images and their masks.

        Args:
            folder: The folder of the set.
            classes: The wanted classes.
            seed: Not used: nothing is drawn.
            counterfactual: Take the masks of what must not matter (tables with ``counterfactual`` in their name)
                instead of those of what should.
            negatives: Classes in whose images nothing is to be found (``"negative"``): without a mask, such an image
                counts as annotated, with an empty mask.
        """
        images = class_folders(folder, _IMAGES, self.info.classes)
        require_images(folder / _IMAGES, images, classes)
        empty = known_classes(negatives, self.info.classes)
        masks = HumanMasks(folder / FOLDER, self.info.classes, counterfactual=counterfactual)
        notes = {"counterfactual": counterfactual}
        return ListedSource(self.info.name, folder, images, masks, classes, negatives=empty, notes=notes)

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """The folder of the set; ``root`` and ``download`` have no say."""
        return self._folder

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Keep the masks as bits."""
        prepare_masks(folder / FOLDER, workers=workers, progress=progress)


def _dataset_folder(directory: Path) -> Path:
    if not directory.is_dir():
        raise MissingDataError(f"published: {directory} is no folder. {_LAYOUT}")
    if (directory / _IMAGES).is_dir():
        return directory
    found = sorted(place.parent for depth in ("*", "Benchmarks/*") for place in directory.glob(f"{depth}/{_IMAGES}"))
    if not found:
        raise MissingDataError(f"published: {directory} holds no folder {_IMAGES!r}. {_LAYOUT}")
    if len(found) > 1:
        named = ", ".join(f"published:{place}" for place in found)
        raise MissingDataError(f"published: {directory} holds {len(found)} data sets; give one of {named}.")
    return found[0]
