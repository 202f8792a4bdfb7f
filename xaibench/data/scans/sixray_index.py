"""Index of SIXray: the images and the boxes of the prohibited items, as arrays of a few megabytes."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.cache_folders import cache_folder, digest_files, read_cached, write_cached
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, read_xml, wrap_file_errors
from xaibench.data.disk.image_lists import warn_about

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
        columns = _parse_header(stream.readline(), file)
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


def _parse_header(header: bytes, file: Path) -> list[int]:
    """Return the item of each column after the name."""
    titles = [title.strip(' "\r\n').casefold() for title in header.decode("utf-8-sig", errors="replace").split(",")]
    if titles[0] != "name" or len(titles) < 2 or not set(titles[1:]) <= set(ITEMS):
        raise DataFileError(
            f"{file} begins with {', '.join(titles)!r}; expected name,Gun,Knife,Wrench,Pliers,Scissors."
        )
    return [ITEMS.index(title) for title in titles[1:]]


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
