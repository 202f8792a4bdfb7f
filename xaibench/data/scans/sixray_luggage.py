"""SIXray: X-ray images of luggage, a million of them, with boxes around prohibited items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, Progress
from xaibench.data.disk.file_readers import DataFileError
from xaibench.data.disk.image_files import image_size, open_image
from xaibench.data.disk.image_lists import warn_of
from xaibench.data.disk.source import Source
from xaibench.data.scans.sixray_index import ITEMS, PARTS, Index, is_indexed, locate_images, open_index

NEGATIVE, POSITIVE = "negative", "positive"


class Sixray(AnnotatedSet):
    """Prohibited item detection: ``negative`` or ``positive``, all items merged, as in the paper.

    The mask is the union of the boxes of the prohibited items. A positive whose annotation file is missing, or holds no
    box, is not annotated; it is not a negative.

    Single items can be asked for instead of ``positive``: ``classes="negative,gun,knife"``. An image is of class
    ``gun`` where the lists or its boxes say so; its mask is the union of the boxes of that item, and it is not
    annotated if there is none. An image with two wanted items is two samples, which stay in one split. The lists have
    no column for hammers, so that those are known from boxes alone.

    Boxes are VOC's: from pixel ``xmin`` to ``xmax``, both included, counted from 1; what reaches over the image's edge
    is cut off.

    ``splits="official"`` takes ``train.csv`` and ``test.csv`` of a subset, which must be named: the three subsets
    overlap, and the whole set has no split of its own. An image in both lists of a subset is a test image.
    """

    info = DatasetInfo(
        "sixray",
        classes=(NEGATIVE, POSITIVE, *ITEMS),
        image_shape=(3, 224, 224),
        citation=(
            "Miao et al.: SIXray: A Large-scale Security Inspection X-ray Benchmark for Prohibited Item Discovery in "
            "Overlapping Images, CVPR 2019"
        ),
        licence=(
            "The images and the corresponding annotation results can only be used for ACADEMIC PURPOSES. NO COMERCIAL "
            "USE is allowed. Copyright University of Chinese Academy of Sciences (UCAS-PRISDL)"
        ),
        address="[MeioJane/SIXray](https://github.com/MeioJane/SIXray)",
        download_size="18 archives",
        by_hand=(
            "no account for the addresses of its `data_list.txt`; Baidu Cloud needs one. Users report that "
            "these archives hold 548,167 negatives and no positive "
            "([16](https://github.com/MeioJane/SIXray/issues/16), "
            "[19](https://github.com/MeioJane/SIXray/issues/19)), and that the positives are in "
            "`dataset.part10.rar` of the folder `SIXray-rar` beside them "
            "([11](https://github.com/MeioJane/SIXray/issues/11)): they belong into `JPEGImage`"
        ),
        how_to_get=(
            "Follow DOWNLOAD in the README of github.com/MeioJane/SIXray: fetch JPEGImage.tar.gz00 to 17, ImageSet.zip "
            "and Annotation.zip (their addresses are in its data_list.txt), join the images' parts (cat "
            "JPEGImage.tar.gz* | tar -xz) and unpack all, so that there are DIR/SIXray/JPEGImage/*.jpg (or folders of "
            "them in JPEGImage), DIR/SIXray/ImageSet/{10,100,1000}/{train,test}.csv and DIR/SIXray/Annotation/*.xml "
            "(or positive-Annotation/Annotation/*.xml). The positive images are reported to be in dataset.part10.rar "
            "of the folder SIXray-rar beside these archives (issue 11 of that repository); put them into JPEGImage too."
        ),
        published=(("images", 1_059_231), ("prohibited items", 8_929)),
        benchmark_size=17_654,
    )
    folders = ("SIXray", "sixray", "")
    marker = "ImageSet"
    default_classes = (NEGATIVE, POSITIVE)

    def open(
        self, folder: Path, *, classes: tuple[str, ...], seed: int, subset: str | int = "all", balance: bool = True
    ) -> Source:
        """The images that the lists name.

        Args:
            folder: The folder of the set.
            classes: The wanted classes.
            seed: Of the draw of ``balance``.
            subset: ``"all"``, or the subset ``10``, ``100`` or ``1000`` (some so many negatives to a positive).
            balance: Of the negatives, a hundred times as many, draw as many as there are annotated samples of the other
                classes, as the later version of the benchmark does. False takes all.

        Raises:
            MissingDataError: If there is no list.
            DataFileError: If a list has other columns.
            ValueError: For a subset that is not there, or ``positive`` beside single items, which it contains.
        """
        if POSITIVE in classes and set(classes) & set(ITEMS):
            raise ValueError(f"classes={','.join(classes)!r}: {POSITIVE!r} holds all items; take it or single ones.")
        return _SixraySource(folder, open_index(folder), classes, str(subset), seed if balance else None)

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Build the index of the lists and the annotations."""
        open_index(folder, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Whether an image that is there has a box."""
        return super().is_ready(folder) if is_indexed(folder) else None


class _SixraySource(Source):
    def __init__(self, folder: Path, index: Index, classes: tuple[str, ...], subset: str, seed: int | None) -> None:
        self.classes = classes
        self._folder = folder
        self._index = index
        boxed = _items_of_boxes(index)
        taken, in_train, in_test = _subset(index, subset)
        members, known = [], []
        for label in classes:
            member, annotated = _members(index, boxed, label)
            members.append(np.flatnonzero(member & taken))
            known.append(annotated[members[-1]])
        self._images, self.annotated = np.concatenate(members), np.concatenate(known)
        self.targets = np.repeat(np.arange(len(classes)), [len(member) for member in members]).astype(np.int64)
        self._places, where = locate_images(folder, index.names)
        self._where = where[self._images]
        if seed is not None and NEGATIVE in classes and len(classes) > 1:
            self._balance(classes.index(NEGATIVE), seed)
        self.missing = self._where < 0
        self._single_items = bool(set(classes) & set(ITEMS))
        self.groups = self._images if self._single_items else None
        if in_train is not None and in_test is not None:
            both = self._images[(in_train & in_test)[self._images]]
            warn_of(f"sixray: images in both lists of subset {subset}, tested on", (self._name(one) for one in both))
            self.official = {
                "train": np.flatnonzero((in_train & ~in_test)[self._images]),
                "test": np.flatnonzero(in_test[self._images]),
            }

    def _balance(self, negative: int, seed: int) -> None:
        """Leave out negatives that are there, but for as many as there are annotated samples of the other classes."""
        there = self._where >= 0
        negatives = np.flatnonzero(there & (self.targets == negative))
        count = np.count_nonzero(there & self.annotated & (self.targets != negative))
        if 0 < count < len(negatives):
            drawn = np.random.default_rng([seed, 0x51C4A7]).choice(negatives, count, replace=False)
            kept = np.ones(len(self.targets), dtype=np.bool_)
            kept[np.setdiff1d(negatives, drawn)] = False
            self._images, self._where = self._images[kept], self._where[kept]
            self.targets, self.annotated = self.targets[kept], self.annotated[kept]

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
        return self._draw(wanted, self._index.sizes[number], self._folder / self._file(index))

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
        place = self._places[self._where[index]] if self._where[index] >= 0 else "JPEGImage"
        return f"{place}/{self._name(self._images[index])}.jpg"

    def _draw(self, boxes: NDArray[np.int32], said: NDArray[np.int32], image: Path) -> NDArray[np.bool_]:
        height, width = image_size(image)
        if said.all() and tuple(said) != (height, width):
            raise DataFileError(
                f"{image} is {height}×{width} (height×width), but its annotation {image.stem}.xml says "
                f"{said[0]}×{said[1]}; one of them is of another version."
            )
        mask = np.zeros((height, width), dtype=np.bool_)
        for left, top, right, bottom in boxes.tolist():
            mask[max(top - 1, 0) : max(bottom, 0), max(left - 1, 0) : max(right, 0)] = True
        if not mask.any():
            raise DataFileError(f"The boxes in {image.stem}.xml lie outside of {image}; get both files anew.")
        return mask


def _items_of_boxes(index: Index) -> NDArray[np.uint8]:
    """``[N]``: the kinds of each image's boxes as bits."""
    found = np.zeros(len(index.names), dtype=np.uint8)
    owners = np.repeat(index.positives, np.diff(index.starts))
    np.bitwise_or.at(found, owners, np.left_shift(1, index.kinds).astype(np.uint8))
    return found


def _members(index: Index, boxed: NDArray[np.uint8], label: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """``[N]``: which images are of a class, and which of those are annotated."""
    positive = np.zeros(len(index.names), dtype=np.bool_)
    positive[index.positives] = True
    if label == NEGATIVE:
        return ~positive, ~positive
    if label == POSITIVE:
        return positive, boxed > 0
    bit = 1 << ITEMS.index(label)
    return (index.items | boxed) & bit > 0, boxed & bit > 0


def _subset(index: Index, subset: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """``[N]``: which images are in the subset, in its training list and in its test list."""
    if subset == "all":
        return np.ones(len(index.names), dtype=np.bool_), None, None
    there = index.subsets.tolist()
    if subset not in there:
        raise ValueError(f"subset={subset!r}: expected 'all' or one of those in ImageSet: {', '.join(there)}.")
    train, test = (index.parts >> (2 * there.index(subset) + part) & 1 > 0 for part in range(len(PARTS)))
    return train | test, train, test


sixray = Sixray()
