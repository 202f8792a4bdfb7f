"""SIXray: a million X-ray images of luggage, with bounding boxes of prohibited items."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.component.info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.file_readers import DataFileError
from xaibench.data.disk.image_files import image_size, open_image
from xaibench.data.disk.image_lists import warn_about
from xaibench.data.disk.source import Source
from xaibench.data.scans.sixray_index import ITEMS, LIST_NAMES, Index, is_indexed, locate_images, open_index

NEGATIVE, POSITIVE = "negative", "positive"


class Sixray(AnnotatedSet):
    """Detection of prohibited items: ``negative`` or ``positive``, with all items merged, as in the paper.

    The mask is the union of the boxes of the prohibited items. A positive image without an annotation file or without a
    box is not annotated; it is not a negative.

    Single items can be loaded instead of ``positive``: ``classes="negative,gun,knife"``. An image belongs to the class
    ``gun`` if the lists or its boxes say so. Its mask is the union of the boxes of that item; without such a box, it is
    not annotated. An image with two wanted items gives two samples, which stay in one split. The lists have no column
    for hammers, so these are only known from boxes.

    Boxes are in VOC format: from pixel ``xmin`` to ``xmax`` inclusive, counted from 1. They are clipped to the image.

    ``splits="official"`` uses ``train.csv`` and ``test.csv`` of a subset, which must be given: the three subsets
    overlap, and the whole data set has no official split. An image in both lists of a subset is a test image.
    """

    info = DatasetInfo(
        "sixray",
        classes=(NEGATIVE, POSITIVE, *ITEMS),
        image_shape=(3, 224, 224),
        citation=(
            "Miao et al.: SIXray: A Large-scale Security Inspection X-ray Benchmark for Prohibited Item Discovery in "
            "Overlapping Images, CVPR 2019"
        ),
        license=(
            "The images and the corresponding annotation results can only be used for ACADEMIC PURPOSES. NO COMERCIAL "
            "USE is allowed. Copyright University of Chinese Academy of Sciences (UCAS-PRISDL)"
        ),
        address="[MeioJane/SIXray](https://github.com/MeioJane/SIXray)",
        download_size="18 archives",
        by_hand=(
            "no account for the addresses in its `data_list.txt`; Baidu Cloud requires one. Users report that "
            "these archives contain 548,167 negatives and no positives "
            "([16](https://github.com/MeioJane/SIXray/issues/16), "
            "[19](https://github.com/MeioJane/SIXray/issues/19)), and that the positives are in "
            "`dataset.part10.rar` of the folder `SIXray-rar` next to them "
            "([11](https://github.com/MeioJane/SIXray/issues/11)); put them into `JPEGImage`"
        ),
        how_to_get=(
            "1. As DOWNLOAD in the README of https://github.com/MeioJane/SIXray says, download JPEGImage.tar.gz00 to "
            "17, ImageSet.zip and Annotation.zip (addresses in its data_list.txt) into DIR/SIXray.\n"
            "2. Join and unpack the images there (cat JPEGImage.tar.gz* | tar -xz), and unpack the other two.\n"
            "3. The positive images are reported to be in dataset.part10.rar of the folder SIXray-rar next to these "
            "archives (issue 11 of that repository); put them into JPEGImage too."
        ),
        published=(("images", 1_059_231), ("prohibited items", 8_929)),
        benchmark_size=17_654,
    )
    folders = ("SIXray", "sixray", "")
    marker = "ImageSet"
    contents: ClassVar = {
        "images": "JPEGImage/*.jpg or JPEGImage/*/*.jpg",
        "lists": "ImageSet/*/train.csv",
        "boxes": "Annotation/*.xml or positive-Annotation/Annotation/*.xml",
    }
    default_classes = (NEGATIVE, POSITIVE)

    def open(
        self, folder: Path, *, classes: tuple[str, ...], seed: int, subset: str | int = "all", balance: bool = True
    ) -> Source:
        """Return the images in the lists.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Seed of the random choice of ``balance``.
            subset: ``"all"``, or the subset ``10``, ``100`` or ``1000`` (about that many negatives per positive).
            balance: Draw as many negatives as there are annotated samples of the other classes, as the later version of
                the benchmark does; there are a hundred times as many. False = all negatives.

        Raises:
            MissingDataError: If the lists are missing.
            DataFileError: If a list has other columns.
            ValueError: If the subset does not exist, or ``positive`` is combined with single items.
        """
        if POSITIVE in classes and set(classes) & set(ITEMS):
            raise ValueError(
                f"classes={','.join(classes)!r}: {POSITIVE!r} includes all items; give it or single items."
            )
        return _SixraySource(folder, open_index(folder), classes, str(subset), seed if balance else None)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Build and cache the index of the lists and the annotations."""
        open_index(folder, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an image on disk has a box; None if the index is not built."""
        return super().is_ready(folder) if is_indexed(folder) else None


class _SixraySource(Source):
    def __init__(self, folder: Path, index: Index, classes: tuple[str, ...], subset: str, seed: int | None) -> None:
        self.classes = classes
        self._folder = folder
        self._index = index
        boxed = _find_boxed_items(index)
        taken, in_train, in_test = _select_subset(index, subset)
        members, known = [], []
        for label in classes:
            member, annotated = _select_class(index, boxed, label)
            members.append(np.flatnonzero(member & taken))
            known.append(annotated[members[-1]])
        self._images, self.annotated = np.concatenate(members), np.concatenate(known)
        self.targets = np.repeat(np.arange(len(classes)), [len(member) for member in members]).astype(np.int64)
        self._places, where = locate_images(folder, index.names)
        self._where = where[self._images]
        if seed is not None and NEGATIVE in classes and len(classes) > 1:
            self._balance_classes(classes.index(NEGATIVE), seed)
        self.missing = self._where < 0
        self._single_items = bool(set(classes) & set(ITEMS))
        self.groups = self._images if self._single_items else None
        self.groups_by = "images"
        if in_train is not None and in_test is not None:
            both = self._images[(in_train & in_test)[self._images]]
            warn_about(
                f"sixray: images in both lists of subset {subset}, used as test images",
                (self._name(one) for one in both),
            )
            self.official = {
                "train": np.flatnonzero((in_train & ~in_test)[self._images]),
                "test": np.flatnonzero(in_test[self._images]),
            }

    def _balance_classes(self, negative: int, seed: int) -> None:
        """Keep as many negatives on disk as there are annotated samples of the other classes."""
        on_disk = self._where >= 0
        negatives = np.flatnonzero(on_disk & (self.targets == negative))
        count = np.count_nonzero(on_disk & self.annotated & (self.targets != negative))
        if 0 < count < len(negatives):
            drawn = np.random.default_rng([seed, 0x51C4A7]).choice(negatives, count, replace=False)
            selected = np.ones(len(self.targets), dtype=np.bool_)
            selected[np.setdiff1d(negatives, drawn)] = False
            self._images, self._where = self._images[selected], self._where[selected]
            self.targets, self.annotated = self.targets[selected], self.annotated[selected]

    def image(self, index: int, size: int) -> Image.Image:
        return open_image(self._folder / self._file(index), size)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        label = self.classes[self.targets[index]]
        if label == NEGATIVE or not self.annotated[index]:
            return None
        number = int(np.searchsorted(self._index.positives, self._images[index]))
        boxes = slice(self._index.starts[number], self._index.starts[number + 1])
        wanted = self._index.boxes[boxes]
        if label != POSITIVE:
            wanted = wanted[self._index.kinds[boxes] == ITEMS.index(label)]
        return self._draw_boxes(wanted, self._index.sizes[number], self._folder / self._file(index))

    def meta(self, index: int) -> dict[str, object]:
        name, label = self._name(self._images[index]), self.classes[self.targets[index]]
        listed = int(self._index.items[self._images[index]])
        return {
            "id": f"{name}/{label}" if self._single_items else name,
            "file": self._file(index),
            "annotated": bool(self.annotated[index]),
            "listed_items": [item for bit, item in enumerate(ITEMS) if listed >> bit & 1],
        }

    def _name(self, image: np.int64) -> str:
        return str(self._index.names[image].decode())

    def _file(self, index: int) -> str:
        directory = self._places[self._where[index]] if self._where[index] >= 0 else "JPEGImage"
        return f"{directory}/{self._name(self._images[index])}.jpg"

    def _draw_boxes(self, boxes: NDArray[np.int32], stated: NDArray[np.int32], image: Path) -> NDArray[np.bool_]:
        height, width = image_size(image)
        if stated.all() and tuple(stated) != (height, width):
            raise DataFileError(
                f"{image} is {height}×{width} (height×width), but its annotation {image.stem}.xml states "
                f"{stated[0]}×{stated[1]}; they are of different versions."
            )
        mask = np.zeros((height, width), dtype=np.bool_)
        for left, top, right, bottom in boxes.tolist():
            mask[max(top - 1, 0) : max(bottom, 0), max(left - 1, 0) : max(right, 0)] = True
        if not mask.any():
            raise DataFileError(f"The boxes in {image.stem}.xml are outside of {image}; get both files again.")
        return mask


def _find_boxed_items(index: Index) -> NDArray[np.uint8]:
    """Return ``[N]`` the items with a box in each image, as bits."""
    items = np.zeros(len(index.names), dtype=np.uint8)
    owners = np.repeat(index.positives, np.diff(index.starts))
    np.bitwise_or.at(items, owners, np.left_shift(1, index.kinds).astype(np.uint8))
    return items


def _select_class(index: Index, boxed: NDArray[np.uint8], label: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return ``[N]`` whether each image belongs to a class, and whether it is annotated."""
    positive = np.zeros(len(index.names), dtype=np.bool_)
    positive[index.positives] = True
    if label == NEGATIVE:
        return ~positive, ~positive
    if label == POSITIVE:
        return positive, boxed > 0
    bit = 1 << ITEMS.index(label)
    return (index.items | boxed) & bit > 0, boxed & bit > 0


def _select_subset(
    index: Index, subset: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Return ``[N]`` whether each image is in the subset, in its training list and in its test list."""
    if subset == "all":
        return np.ones(len(index.names), dtype=np.bool_), None, None
    known = index.subsets.tolist()
    if subset not in known:
        raise ValueError(f"subset={subset!r}: expected 'all' or a subset in ImageSet: {', '.join(known)}.")
    train, test = (index.parts >> (2 * known.index(subset) + part) & 1 > 0 for part in range(len(LIST_NAMES)))
    return train | test, train, test


sixray = Sixray()
