"""The processed Saliency-Bench release."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from xaibench.data.disk.annotated_set import DirectorySet, ProgressCallback
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_lists import (
    ListedSource,
    choose_optional_classes,
    class_folders,
    list_classes,
    require_images,
)
from xaibench.data.disk.source import Source
from xaibench.data.photographs.human_masks import TABLE_FOLDER, HumanMasks, prepare_masks
from xaibench.registry.info import DatasetInfo

_IMAGES = "image"
_LAYOUT = (
    "Expected Benchmarks/<dataset>/image/<class>/*.jpg|png and Benchmarks/<dataset>/attention_label/*.csv with the "
    "columns img_idx and attention. Download the zip of the data set by hand from xaidataset.github.io, unpack it, and "
    "give the folder <dataset>, or a folder with only this data set."
)


class SaliencyBenchRelease(DirectorySet):
    """A data set of the processed Saliency-Bench release, such as ``"published:~/Benchmarks/pet"``.

    The classes are the subfolders of ``image``, sorted; class indices follow the order of ``classes``. Masks (224×224
    as published) are stretched to the image, whose EXIF orientation is ignored. An image without a mask is not
    annotated. A photograph that shows two classes has the same file in both: it stays in one split. A mask for a file
    name that occurs in two classes is assigned only if its table or its row states the class.

    Args:
        directory: ``Benchmarks/<dataset>``, or a folder with exactly one such subfolder; ``~`` is expanded. The
            parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder does not exist, or does not contain exactly one data set.
    """

    marker = _IMAGES

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(_find_dataset_folder(Path(directory).expanduser()))
        self.info = DatasetInfo(
            f"published:{os.fspath(directory)}",
            classes=list_classes(self._folder / _IMAGES),
            image_shape=(3, 224, 224),
            citation="Zhang et al.: XAI Benchmark for Visual Explanation (Saliency-Bench), arXiv 2310.08537, 2023",
            license="the license of the original data set; see xaibench list datasets",
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
        """Return the images and their masks.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Not used.
            counterfactual: Use the masks of pixels that must not matter (tables with ``counterfactual`` in their name).
            negatives: Classes whose images show nothing important (``"negative"``): without a mask, such an image
                counts as annotated with an empty mask.
        """
        images = class_folders(folder, _IMAGES, self.info.classes)
        require_images(folder / _IMAGES, images, classes)
        empty = choose_optional_classes(negatives, self.info.classes)
        masks = HumanMasks(folder / TABLE_FOLDER, self.info.classes, counterfactual=counterfactual)
        notes = {"counterfactual": counterfactual}
        return ListedSource(self.info.name, folder, images, masks, classes, negatives=empty, notes=notes)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks."""
        prepare_masks(folder / TABLE_FOLDER, workers=workers, progress=progress)


def _find_dataset_folder(directory: Path) -> Path:
    if not directory.is_dir():
        raise MissingDataError(f"published: {directory} is not a folder. {_LAYOUT}")
    if (directory / _IMAGES).is_dir():
        return directory
    sets = sorted(path.parent for depth in ("*", "Benchmarks/*") for path in directory.glob(f"{depth}/{_IMAGES}"))
    if not sets:
        raise MissingDataError(f"published: {directory} has no folder {_IMAGES!r}. {_LAYOUT}")
    if len(sets) > 1:
        named = ", ".join(f"published:{path}" for path in sets)
        raise MissingDataError(f"published: {directory} has {len(sets)} data sets; give one of {named}.")
    return sets[0]
