"""SIXray: a million X-ray images of luggage, with bounding boxes of prohibited items."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import cache_folder, digest_files, read_cached, write_cached
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, read_xml, wrap_file_errors
from xaibench.data.disk.image_files import image_size, open_image
from xaibench.data.disk.image_lists import warn_about
from xaibench.data.disk.source import Source
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

ITEMS = ("gun", "knife", "wrench", "pliers", "scissors", "hammer")
#: Kind of a box whose name is not in :data:`ITEMS`.
OTHER = len(ITEMS)
LIST_NAMES = ("train", "test")

_ANNOTATIONS = ("Annotation", "positive-Annotation", "Annotations")
#: Part of the cache key; increased when the index is built differently.
_REVISION = 2
#: Number of lines whose names are packed into an array at a time: Python strings would take ten times the memory.
_CHUNK = 100_000
_LONGEST_NAME = 32


@dataclass(frozen=True, eq=False)
class Index:
    """Index of ``N`` images, sorted by name, of which ``P`` are positive, with ``B`` boxes.

    Attributes:
        names: ``[N]`` bytes: file names without suffix.
        items: ``[N]`` uint8: bit ``i`` is set if the lists say that the image shows ``ITEMS[i]``.
        subsets: ``[S]`` names of the subsets, such as ``"10"``.
        parts: ``[N]`` uint32: bits ``2 s`` and ``2 s + 1`` are set if the image is in the training or test list of
            subset ``s``.
        positives: ``[P]`` int64: numbers of the positive images, ascending. An image whose name starts with ``P`` is
            positive even if the lists name no item, because hammers have no column.
        sizes: ``[P, 2]`` int32: height and width stated by the annotation, 0 if not stated.
        starts: ``[P + 1]`` int64: positive ``p`` has the boxes from ``starts[p]`` to ``starts[p + 1]`` (exclusive);
            none if its annotation is missing.
        boxes: ``[B, 4]`` int32: xmin, ymin, xmax, ymax as written.
        kinds: ``[B]`` uint8: index into :data:`ITEMS`, or :data:`OTHER`.
        broken: Malformed rows of the lists, annotations, and objects in annotations.
    """

    names: NDArray[np.bytes_]
    items: NDArray[np.uint8]
    subsets: NDArray[np.str_]
    parts: NDArray[np.uint32]
    positives: NDArray[np.int64]
    sizes: NDArray[np.int32]
    starts: NDArray[np.int64]
    boxes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    broken: NDArray[np.str_]


def open_index(folder: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> Index:
    """Return the index of the data set in ``folder`` from the cache, or build and cache it.

    Args:
        folder: Contains ``ImageSet/*/{train,test}.csv`` and ``Annotation/*.xml``, or
            ``positive-Annotation/Annotation/*.xml``.
        workers: Number of threads that read annotations.
        progress: Called with the number of annotations read so far and their total.

    Raises:
        MissingDataError: If the lists are missing.
        DataFileError: If a list has other columns. Malformed annotations and objects are logged and left out.
    """
    lists, annotations = _list_files(folder)
    cached = _cache_file(folder, lists, annotations)
    index = read_cached(cached, lambda arrays: Index(**{field.name: arrays[field.name] for field in fields(Index)}))
    if index is None:
        _LOGGER.info("Building the index of SIXray; it is cached in %s.", cached.parent)
        index = _build_index(folder, lists, annotations, workers, progress)
        write_cached(cached, "The arrays of the index", vars(index))
    warn_about("sixray: malformed rows, annotations and objects, left out", index.broken.tolist())
    return index


def is_indexed(folder: Path) -> bool:
    """Return whether the index of the data set is cached.

    Raises:
        MissingDataError: If the lists are missing.
    """
    return _cache_file(folder, *_list_files(folder)).exists()


def _list_files(folder: Path) -> tuple[list[Path], dict[bytes, Path]]:
    """Return the lists, and image name to annotation file."""
    lists = sorted(file for part in LIST_NAMES for file in folder.glob(f"ImageSet/*/{part}.csv"))
    if not lists:
        raise MissingDataError(f"{folder / 'ImageSet'} has no */train.csv and */test.csv; unpack ImageSet.zip there.")
    return lists, _list_annotations(folder)


def _cache_file(folder: Path, lists: list[Path], annotations: dict[bytes, Path]) -> Path:
    key = digest_files([*lists, *annotations.values()])
    return cache_folder("sixray", folder) / f"index-{key}-{_REVISION}.npz"


def locate_images(folder: Path, names: NDArray[np.bytes_]) -> tuple[list[str], NDArray[np.int16]]:
    """Find the folder of each image: ``JPEGImage``, a subfolder of it, or a numbered folder next to it.

    Args:
        folder: The folder of the data set.
        names: ``[N]`` sorted image names without suffix.

    Returns:
        The folders, and ``[N]`` the number of the folder of each image, -1 if the image is missing.
    """
    found = {path for pattern in ("JPEGImage*", "JPEGImage*/*") for path in folder.glob(pattern) if path.is_dir()}
    places = [path.relative_to(folder).as_posix() for path in sorted(found)]
    where = np.full(len(names), -1, dtype=np.int16)
    for number, place in enumerate(places):
        with wrap_file_errors(folder / place), os.scandir(folder / place) as entries:
            files = (os.fsencode(entry.name[:-4]) for entry in entries if entry.name.endswith(".jpg"))
            while chunk := list(itertools.islice(files, _CHUNK)):
                stems = np.array(chunk)
                at = np.minimum(np.searchsorted(names, stems), len(names) - 1)
                where[at[names[at] == stems]] = number
    return places, where


def _list_annotations(folder: Path) -> dict[bytes, Path]:
    """Return image name to annotation file."""
    for place in (place for name in _ANNOTATIONS for place in (folder / name, *sorted((folder / name).glob("*/")))):
        if place.is_dir():
            with wrap_file_errors(place), os.scandir(place) as entries:
                names = sorted(entry.name for entry in entries)
            files = [name for name in names if name.lower().endswith(".xml") and not name.startswith(".")]
            if files:
                return {os.fsencode(name[:-4]): place / name for name in files}
    return {}


def _build_index(
    folder: Path,
    lists: list[Path],
    annotations: dict[bytes, Path],
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> Index:
    subsets = sorted({file.parent.name for file in lists}, key=lambda name: (len(name), name))
    broken: list[str] = []
    chunks = []
    for file in lists:
        bit = np.uint32(1 << (2 * subsets.index(file.parent.name) + LIST_NAMES.index(file.stem)))
        chunks += [(names, items, np.full(len(names), bit)) for names, items in _read_list(file, folder, broken)]
    names, items, parts = (np.concatenate(column) for column in zip(*chunks, strict=True))
    if not len(names):
        raise DataFileError(f"{lists[0]} and the other lists name no image; get ImageSet.zip again.")
    order = np.argsort(names, kind="stable")
    names, items, parts = names[order], items[order], parts[order]
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    names, items = names[first], np.bitwise_or.reduceat(items, first)
    positives = np.flatnonzero((items > 0) | np.char.startswith(names, b"P"))
    sizes, counts, boxes, kinds = _read_annotations(
        [annotations.get(name) for name in names[positives].tolist()], workers, progress, broken
    )
    return Index(
        names=names,
        items=items,
        subsets=np.array(subsets, dtype=np.str_),
        parts=np.bitwise_or.reduceat(parts, first),
        positives=positives.astype(np.int64),
        sizes=sizes,
        starts=np.append(0, counts.cumsum()).astype(np.int64),
        boxes=boxes,
        kinds=kinds,
        broken=np.array(broken, dtype=np.str_),
    )


def _read_list(file: Path, folder: Path, broken: list[str]) -> Iterator[tuple[NDArray[np.bytes_], NDArray[np.uint8]]]:
    """Yield the names and items of a list in chunks. Malformed rows are added to ``broken``."""
    where = file.relative_to(folder).as_posix()
    with wrap_file_errors(file), open(file, "rb") as stream:
        header = stream.readline()
        titles = [title.strip(' "\r\n').casefold() for title in header.decode("utf-8-sig", errors="replace").split(",")]
        if titles[0] != "name" or len(titles) < 2 or not set(titles[1:]) <= set(ITEMS):
            raise DataFileError(
                f"{file} begins with {', '.join(titles)!r}; expected name,Gun,Knife,Wrench,Pliers,Scissors."
            )
        columns = [ITEMS.index(title) for title in titles[1:]]
        # There are few different rows apart from the names, so each is parsed once.
        known: dict[bytes, int | None] = {}
        names: list[bytes] = []
        codes: list[int] = []
        for number, line in enumerate(stream, start=2):
            name, _, rest = line.strip().partition(b",")
            if rest not in known:
                known[rest] = _encode_items(rest, columns)
            code = known[rest]
            name = _clean_name(name)
            if code is not None and name:
                names.append(name)
                codes.append(code)
            elif line.strip():
                broken.append(f"{where}:{number} ({line[:60].decode(errors='replace').strip()})")
            if len(names) == _CHUNK:
                yield np.array(names), np.array(codes, dtype=np.uint8)
                names, codes = [], []
        yield np.array(names, dtype=np.bytes_), np.array(codes, dtype=np.uint8)


def _encode_items(values: bytes, columns: list[int]) -> int | None:
    """Return the items of a row as bits; None if the values are not ±1."""
    try:
        numbers = [float(value.strip(b' "')) for value in values.split(b",")]
    except ValueError:
        return None
    if len(numbers) != len(columns) or not set(numbers) <= {-1.0, 0.0, 1.0}:
        return None
    return sum(1 << item for item, number in zip(columns, numbers, strict=True) if number > 0)


def _clean_name(name: bytes) -> bytes:
    """Return the name without suffix and quotes; empty if it is not a file name."""
    name = name.strip(b' "')
    if name[-4:].lower() == b".jpg":
        name = name[:-4]
    try:
        name.decode()
    except UnicodeDecodeError:
        return b""
    return b"" if len(name) > _LONGEST_NAME or b"/" in name or b"\\" in name or b"\0" in name else name


def _read_annotations(
    files: list[Path | None], workers: int, progress: Callable[[int, int], None] | None, broken: list[str]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    """Return sizes ``[P, 2]``, numbers of boxes ``[P]``, boxes ``[B, 4]`` and their kinds ``[B]``.

    Malformed annotations are added to ``broken`` and do not raise an error.
    """
    sizes = np.zeros((len(files), 2), dtype=np.int32)
    counts = np.zeros(len(files), dtype=np.int64)
    boxes: list[tuple[int, int, int, int]] = []
    kinds: list[int] = []
    strange: list[str] = []
    with ThreadPoolExecutor(workers) as pool:
        for number, read in enumerate(pool.map(_read_annotation, files)):
            if read is not None:
                broken += read.broken
                sizes[number], counts[number] = read.size, len(read.boxes)
                boxes += [box for _, box in read.boxes]
                kinds += [ITEMS.index(name) if name in ITEMS else OTHER for name, _ in read.boxes]
                strange += [f"{files[number]} ({name})" for name, _ in read.boxes if name not in ITEMS]
            if progress is not None:
                progress(number + 1, len(files))
    warn_about("sixray: boxes of unknown items, which count as prohibited items", strange)
    return sizes, counts, np.array(boxes, dtype=np.int32).reshape(-1, 4), np.array(kinds, dtype=np.uint8)


@dataclass(frozen=True)
class _Annotation:
    size: tuple[int, int]
    boxes: list[tuple[str, tuple[int, int, int, int]]]
    broken: list[str]


def _read_annotation(file: Path | None) -> _Annotation | None:
    """Return size and boxes, and error messages about a malformed file or object."""
    if file is None:
        return None
    try:
        root = read_xml(file)
    except DataFileError as error:
        return _Annotation((0, 0), [], [str(error)])
    boxes, broken = [], []
    for number, item in enumerate(root.iter("object"), start=1):
        try:
            boxes.append(((item.findtext("name") or "").strip().casefold(), _parse_box(item)))
        except ValueError as error:
            broken.append(f"{file}, object {number} ({error})")
    try:
        height, width = (_read_number(root.findtext(f"size/{side}") or "0") for side in ("height", "width"))
    except ValueError:
        height, width = 0, 0
    return _Annotation((height, width), boxes, broken)


def _read_number(text: str) -> int:
    """Return a whole number of at most 32 bits, rounded."""
    number = float(text)
    if not abs(number) < 2**31:
        raise ValueError(f"a coordinate or side of {text[:20]}")
    return round(number)


def _parse_box(item: Element) -> tuple[int, int, int, int]:
    corners = [item.findtext(f"bndbox/{corner}") for corner in ("xmin", "ymin", "xmax", "ymax")]
    if None in corners:
        raise ValueError("no xmin, ymin, xmax and ymax")
    left, top, right, bottom = (_read_number(corner or "") for corner in corners)
    if right < left or bottom < top:
        raise ValueError(f"a box from ({left}, {top}) to ({right}, {bottom})")
    return left, top, right, bottom


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
        items = np.zeros(len(index.names), dtype=np.uint8)
        owners = np.repeat(index.positives, np.diff(index.starts))
        np.bitwise_or.at(items, owners, np.left_shift(1, index.kinds).astype(np.uint8))
        boxed = items
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
