"""Index of a patient of LIDC-IDRI: the ordered slices of the CT scans, and the readers' votes per pixel.

A scan has about 240 files, whose order is only known from their headers. The readers' outlines are converted to votes
per pixel in a few milliseconds per nodule. Both fit into a cache file of a few kB per patient. Pixels are not cached,
because reading a DICOM slice is as fast as reading a copy. The index can be used for every consensus level, with and
without contour pixels.

There is one XML file of annotations per CT series, with up to four readers. Every reader (``readingSession``) marked
nodules of at least 3 mm by outlines and ratings, and smaller nodules and non-nodules by one point each. The files of
chest radiographs (``IdriReadMessage``) are in the same folders. The annotations do not say which marks of different
readers are the same nodule, because readers name nodules independently. As in pylidc, marks that are close together are
grouped. A nodule has the number of readers who marked each pixel; its consensus mask are the pixels marked by at least
a given fraction of its readers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from xaibench.data.disk.cache_folders import Arrays
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, read_xml, wrap_file_errors
from xaibench.data.scans.ct_reading import SliceHeader, dicom_files, read_header, read_modality, scan_rng

#: Part of the cache key; increased when the index is built differently.
INDEX_REVISION = 3
#: Slices of a scan whose positions differ by less (in mm) are duplicates, which occur in a few scans.
_DUPLICATE_DISTANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Scan:
    """A CT scan, with its slices sorted from the lowest up.

    Attributes:
        series: ``SeriesInstanceUID``.
        files: ``[S]`` paths of the slices, relative to the folder of the data set.
        z: ``[S]`` positions of the slices in mm.
        touched: ``[S]`` bool: whether any reader marked anything in the slice.
        shape: Rows and columns of the slices.
        nodules: The nodules, sorted from the lowest up.
    """

    series: str
    files: tuple[str, ...]
    z: NDArray[np.float64]
    touched: NDArray[np.bool_]
    shape: tuple[int, int]
    nodules: tuple[Nodule, ...]

    def mask(self, slice_: int, level: float, contour: bool) -> NDArray[np.bool_]:
        """Return the union of the consensus masks of all nodules in the slice, ``[rows, columns]``."""
        mask = np.zeros(self.shape, dtype=np.bool_)
        for nodule in self.nodules:
            for outline in nodule.slices:
                if outline.slice == slice_:
                    agreed = outline.consensus(nodule.readers, level, contour)
                    height, width = agreed.shape
                    mask[outline.top : outline.top + height, outline.left : outline.left + width] |= agreed
        return mask


def build_patient(root: Path, patient: Path, others: Mapping[str, Path]) -> Arrays:
    """Build the index of one patient.

    Args:
        root: The folder of the data set.
        patient: The folder of the patient, with the slices and usually the readers' XML files.
        others: Further XML files by ``SeriesInstanceUID``, used if the patient's folder has none for a series.

    Raises:
        MissingDataError: If the folder has no scans, or a scan has no XML.
        DataFileError: If a file is damaged, or XML and slices do not match.
    """
    readings = dict(find_readings(xml_files(patient)))
    scans: dict[str, list[SliceHeader]] = {}
    for files in dicom_files(patient).values():
        if read_modality(files[0]) == "CT":  # the folder also has chest radiographs
            for file in files:
                head = read_header(file)
                scans.setdefault(head.series, []).append(head)
    for series, path in readings.items():
        if series not in scans:
            raise DataFileError(f"{path} marks the CT series {series}, which is not in {patient}; download it too.")
    if not scans:
        raise MissingDataError(f"{patient} has no CT slices (*.dcm); download them, or remove the folder.")
    return _scans_to_arrays(
        [_build_scan(root, heads, readings.get(name) or others.get(name)) for name, heads in sorted(scans.items())]
    )


def xml_files(folder: Path) -> list[Path]:
    """Return the XML files below a folder, without hidden ones. If a series has two, the one to use comes last.

    That is the corrected file, which has ``resubmitted`` in its name.
    """
    files = [
        Path(directory, name)
        for directory, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(".xml") and name[0] != "."
    ]
    return sorted(files, key=lambda file: ("resubmitted" in file.name.lower(), file))


def find_readings(files: Iterable[Path]) -> Iterable[tuple[str, Path]]:
    """Yield ``(SeriesInstanceUID, file)`` of the XML files that annotate a CT scan.

    Raises:
        DataFileError: If a file is damaged.
    """
    for file in files:
        if (reading := read_reading(file)) is not None:
            yield reading.series, file


def _build_scan(root: Path, heads: list[SliceHeader], xml: Path | None) -> Scan:
    series = heads[0].series
    if xml is None:
        raise MissingDataError(
            f"{heads[0].path.parent} has the CT series {series}, but its annotation (XML) is missing; get "
            "LIDC-XML-only.zip and unpack it, so that there is tcia-lidc-xml next to the patients' folders."
        )
    reading = read_reading(xml)
    if reading is None:
        raise DataFileError(f"{xml} is no longer the XML of a CT scan; get the file again.")
    slices, slice_of = _sort_slices(heads)
    shape = (slices[0].rows, slices[0].columns)
    directory = heads[0].path.parent
    for mark in reading.marks:
        for contour in mark.contours:
            if contour.image not in slice_of:
                raise DataFileError(
                    f"{xml} outlines {mark.name!r} in the slice {contour.image} (z = {contour.z}), which is not in "
                    f"{directory}; download the series again."
                )
            if (contour.points < 0).any() or (contour.points >= shape).any():
                raise DataFileError(
                    f"{xml} outlines {mark.name!r} outside of slices of {shape[0]}×{shape[1]} pixels; get both again."
                )
    z = np.array([head.z for head in slices])
    thickness = float(np.median(np.diff(z))) if len(z) > 1 else 1.0
    touched = np.zeros(len(z), dtype=np.bool_)
    touched[[slice_of[image] for image in reading.touched if image in slice_of]] = True
    return Scan(
        series=series,
        files=tuple(head.path.relative_to(root).as_posix() for head in slices),
        z=z,
        touched=touched,
        shape=shape,
        nodules=tuple(find_nodules(reading.marks, slice_of, slices[0].spacing, thickness)),
    )


def _sort_slices(heads: list[SliceHeader]) -> tuple[list[SliceHeader], dict[str, int]]:
    """Return the slices from the lowest up without duplicates, and image UID to number of the slice."""
    shapes = {(head.rows, head.columns) for head in heads}
    if len(shapes) > 1:
        raise DataFileError(
            f"{heads[0].path.parent} has slices of several sizes in one series, {sorted(shapes)}; download it again."
        )
    slices: list[SliceHeader] = []
    slice_of: dict[str, int] = {}
    for head in sorted(heads, key=lambda head: (head.z, head.number, head.image)):
        if not slices or head.z - slices[-1].z >= _DUPLICATE_DISTANCE:
            slices.append(head)
        slice_of[head.image] = len(slices) - 1
    return slices, slice_of


def _scans_to_arrays(scans: list[Scan]) -> Arrays:
    """Convert the scans of a patient to arrays with one row per scan, per slice, and per nodule in a slice."""
    slices = [(number, file) for number, scan in enumerate(scans) for file in scan.files]
    votes = [
        (number, count, nodule.readers, outline.slice, outline.top, outline.left, *outline.inner.shape)
        for number, scan in enumerate(scans)
        for count, nodule in enumerate(scan.nodules)
        for outline in nodule.slices
    ]
    outlines = [outline for scan in scans for nodule in scan.nodules for outline in nodule.slices]
    nothing = np.empty(0, dtype=np.uint8)
    return {
        "series": np.array([scan.series for scan in scans]),
        "shape": np.array([scan.shape for scan in scans], dtype=np.int64),
        "slice_scan": np.array([number for number, _ in slices], dtype=np.int64),
        "files": np.array([file for _, file in slices]),
        "z": np.concatenate([scan.z for scan in scans]),
        "touched": np.concatenate([scan.touched for scan in scans]),
        "votes": np.array(votes, dtype=np.int64).reshape(-1, 8),
        "inner": np.concatenate([nothing, *(outline.inner.ravel() for outline in outlines)]),
        "whole": np.concatenate([nothing, *(outline.whole.ravel() for outline in outlines)]),
    }


def unpack_scans(arrays: Mapping[str, NDArray[Any]]) -> list[Scan]:
    """Return the scans of a patient from the arrays of :func:`build_patient`."""
    rows = arrays["votes"].tolist()
    ends = np.concatenate([[0], np.cumsum(arrays["votes"][:, 6] * arrays["votes"][:, 7])]).tolist()
    nodules: dict[tuple[int, int], tuple[int, list[Votes]]] = {}
    for (scan, nodule, readers, slice_, top, left, height, width), (start, end) in zip(
        rows, pairwise(ends), strict=True
    ):
        inner, whole = (arrays[name][start:end].reshape(height, width) for name in ("inner", "whole"))
        nodules.setdefault((scan, nodule), (readers, []))[1].append(Votes(slice_, top, left, inner, whole))
    scans = []
    for number, series in enumerate(arrays["series"].tolist()):
        here = arrays["slice_scan"] == number
        scans.append(
            Scan(
                series=series,
                files=tuple(arrays["files"][here].tolist()),
                z=arrays["z"][here],
                touched=arrays["touched"][here],
                shape=(int(arrays["shape"][number, 0]), int(arrays["shape"][number, 1])),
                nodules=tuple(
                    Nodule(readers, tuple(outlines))
                    for (scan, _), (readers, outlines) in nodules.items()
                    if scan == number
                ),
            )
        )
    return scans


#: Which slices of a nodule become samples.
Slices: TypeAlias = Literal["middle", "largest", "all"]

#: Maximum distance (in mm) of a negative sample from a positive one along the body.
MAX_DISTANCE = 50.0


@dataclass(frozen=True)
class SliceChoice:
    """The parameters of ``Lidc.open`` that select and mark slices."""

    level: float
    contour: bool
    slices: Slices
    negatives: int
    window: tuple[float, float]
    seed: int

    def check(self, classes: tuple[str, ...]) -> None:
        """Raise an error if a parameter is out of range, or leaves one of the classes empty."""
        if not 0 < self.level <= 1:
            raise ValueError(f"consensus={self.level!r}: expected a fraction in (0, 1], such as 0.5.")
        if self.slices not in get_args(Slices):
            raise ValueError(f"slices={self.slices!r}: expected one of {', '.join(map(repr, get_args(Slices)))}.")
        if self.negatives < 0:
            raise ValueError(f"negatives={self.negatives!r}: expected 0 or more per slice with a nodule.")
        if self.negatives == 0 and "no_nodule" in classes:
            raise ValueError("negatives=0 leaves 'no_nodule' empty; give classes='nodule', or negatives=1 or more.")

    def positives(self, scan: Scan) -> tuple[list[int], list[int]]:
        """Return the slices with consensus, and the slices of nodules without a consensus pixel; every slice once."""
        agreed: set[int] = set()
        disputed: set[int] = set()
        for nodule in scan.nodules:
            areas = [
                int(outline.consensus(nodule.readers, self.level, self.contour).sum()) for outline in nodule.slices
            ]
            there = [number for number, area in enumerate(areas) if area]
            if not there:
                disputed.add(nodule.slices[len(areas) // 2].slice)
                continue
            if self.slices == "middle":
                there = [there[len(there) // 2]]
            elif self.slices == "largest":
                there = [int(np.argmax(areas))]
            agreed |= {nodule.slices[number].slice for number in there}
        return sorted(agreed), sorted(disputed - agreed)

    def draw_negatives(self, scan: Scan, positives: Sequence[int]) -> list[int]:
        """Draw slices near the positive ones in which no reader marked anything."""
        rng = scan_rng(self.seed, scan.series)
        free = ~scan.touched
        chosen: list[int] = []
        for positive in positives:
            near = np.flatnonzero(free & (np.abs(scan.z - scan.z[positive]) <= MAX_DISTANCE))
            taken = rng.choice(near, size=min(self.negatives, len(near)), replace=False)
            free[taken] = False
            chosen += taken.tolist()
        return sorted(chosen)


@dataclass(frozen=True, eq=False)
class Contour:
    """An outline drawn by a reader in one slice.

    Attributes:
        image: ``SOPInstanceUID`` of the slice.
        z: Position of the slice along the body axis in mm.
        inclusion: False = the outline of a hole, whose interior does not belong to the nodule.
        points: ``[n, 2]`` int64 (row, column) of its pixels, in drawing order; the first is not repeated at the end.
    """

    image: str
    z: float
    inclusion: bool
    points: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mark:
    """A nodule of at least 3 mm, as outlined by one reader.

    Attributes:
        reader: Number of the reader, from 0. Readers with the same number in two files are not the same person.
        name: The reader's name of the nodule; other readers name it differently.
        contours: The outlines, sorted from the lowest slice to the highest.
    """

    reader: int
    name: str
    contours: tuple[Contour, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """The marks of all readers in one CT series.

    Attributes:
        series: ``SeriesInstanceUID``.
        marks: Nodules of at least 3 mm.
        touched: ``SOPInstanceUID`` of every slice with a mark of any kind, including small nodules.
    """

    series: str
    marks: tuple[Mark, ...]
    touched: frozenset[str]


def read_reading(path: str | os.PathLike[str]) -> Reading | None:
    """Read one XML file of the readers; None for the file of a chest radiograph.

    A mark without ratings (``characteristics`` missing, empty, or with a value that is blank or 0) is a nodule under
    3 mm, and an outline of one point is an accidental click. Both count as touched, but not as nodules. pylidc has
    the same rules.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is not XML, declares entities, or does not have the structure of LIDC-IDRI.
    """
    root = read_xml(path)
    if _tag_name(root) == "IdriReadMessage":
        return None
    if _tag_name(root) != "LidcReadMessage":
        raise DataFileError(
            f"{os.fspath(path)} is a {_tag_name(root)!r}, expected a LidcReadMessage; get the file again."
        )
    with wrap_file_errors(path):
        header = next(_children(root, "ResponseHeader"), None)
        if header is None:
            raise ValueError("it has no ResponseHeader")
        series = _child_text(header, "SeriesInstanceUid", "SeriesInstanceUID")
        marks: list[Mark] = []
        touched: set[str] = set()
        for reader, session in enumerate(_children(root, "readingSession")):
            for thing in (*_children(session, "unblindedReadNodule"), *_children(session, "nonNodule")):
                touched |= {_child_text(place, "imageSOP_UID") for place in (thing, *_children(thing, "roi"))} - {""}
            for nodule in _children(session, "unblindedReadNodule"):
                rois = _children(nodule, "roi") if _is_rated(nodule) else ()
                contours = [contour for contour in map(_parse_contour, rois) if len(contour.points) > 1]
                if contours:
                    contours.sort(key=lambda contour: contour.z)
                    marks.append(Mark(reader, _child_text(nodule, "noduleID"), tuple(contours)))
        if not series:
            raise ValueError("its ResponseHeader has no SeriesInstanceUid")
    return Reading(series, tuple(marks), frozenset(touched))


def _parse_contour(roi: Element) -> Contour:
    inclusion = _child_text(roi, "inclusion").upper()
    if inclusion not in ("TRUE", "FALSE"):
        raise ValueError(f"inclusion is {inclusion!r}, expected TRUE or FALSE")
    image, z = _child_text(roi, "imageSOP_UID"), _child_text(roi, "imageZposition")
    if not image:
        raise ValueError("an outline (roi) has no imageSOP_UID")
    points = [
        (int(_child_text(edge, "yCoord")), int(_child_text(edge, "xCoord"))) for edge in _children(roi, "edgeMap")
    ]
    if len(points) > 1 and points[0] == points[-1]:
        points.pop()
    return Contour(image, float(z), inclusion == "TRUE", np.array(points, dtype=np.int64).reshape(-1, 2))


def _is_rated(nodule: Element) -> bool:
    ratings = [(rating.text or "").strip() for part in _children(nodule, "characteristics") for rating in part]
    return bool(ratings) and all(rating not in ("", "0") for rating in ratings)


def _tag_name(element: Element) -> str:
    """Return the tag without its namespace, which differs between file types and is dropped by some tools."""
    return str(element.tag).rpartition("}")[2]


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if _tag_name(child) == name)


def _child_text(element: Element, *names: str) -> str:
    """Return the text of the first child with one of the names; empty if there is none."""
    return next(((child.text or "").strip() for name in names for child in _children(element, name)), "")


#: Number of readers of a CT scan.
_READERS = 4
#: Factor by which the tolerance is reduced, and its minimum in mm; as in pylidc.
_SHRINK, _MIN_TOLERANCE = 0.9, 0.1
#: Tolerance for rounding when votes are compared with the consensus level.
_EPSILON = 1e-9


@dataclass(frozen=True, eq=False)
class Votes:
    """Number of readers who marked each pixel of a rectangle in one slice.

    Attributes:
        slice: Number of the slice in its scan, from the lowest up.
        top: First row of the rectangle.
        left: First column of the rectangle.
        inner: ``[h, w]`` uint8 votes without the pixels of the outlines.
        whole: ``[h, w]`` uint8 votes including the pixels of the outlines.
    """

    slice: int
    top: int
    left: int
    inner: NDArray[np.uint8]
    whole: NDArray[np.uint8]

    def consensus(self, readers: int, level: float, contour: bool) -> NDArray[np.bool_]:
        """Return ``[h, w]`` the pixels marked by at least the fraction ``level`` of the ``readers``."""
        return np.asarray((self.whole if contour else self.inner) >= level * readers - _EPSILON) & (self.whole > 0)


@dataclass(frozen=True, eq=False)
class Nodule:
    """A nodule: the number of readers who marked it, and their votes per slice from the lowest up."""

    readers: int
    slices: tuple[Votes, ...]


def find_nodules(
    marks: Sequence[Mark], slice_of: Mapping[str, int], spacing: tuple[float, float], thickness: float
) -> list[Nodule]:
    """Return the nodules of a scan, from the lowest up.

    Nodules are the connected components of the marks: two marks are linked if they overlap in a slice, or if their
    outlines are within ``thickness`` of each other. If a component has more than four marks, the number of readers, the
    distance is reduced by 10 % within that component until no part has more than four marks, or until it is below
    0.1 mm. pylidc (``cluster_annotations``) does the same with two differences: it does not detect overlap if one
    outline is inside the other, and it reduces the distance for the whole scan if one component is too large.

    A reader who outlined a nodule in two parts counts once, with the union of both.

    Args:
        marks: The marks of all readers.
        slice_of: ``SOPInstanceUID`` to the number of the slice, from the lowest up.
        spacing: Row and column spacing in mm.
        thickness: Slice spacing in mm.
    """
    if not marks:
        return []
    drawn = [_draw_mark(mark, slice_of) for mark in marks]
    outlines = [_outline_points(mark, spacing) for mark in marks]
    distances = np.zeros((len(marks), len(marks)))
    for one in range(len(marks)):
        for other in range(one):
            overlap = any(_overlaps(drawn[one][at], drawn[other][at]) for at in drawn[one].keys() & drawn[other].keys())
            distances[one, other] = distances[other, one] = 0 if overlap else _distance(outlines[one], outlines[other])
    groups = _group_marks(distances, np.arange(len(marks)), thickness)
    nodules = [_count_votes([marks[one] for one in group], [drawn[one] for one in group]) for group in groups]
    return sorted(nodules, key=lambda nodule: [(part.slice, part.top, part.left) for part in nodule.slices])


def _group_marks(
    distances: NDArray[np.float64], members: NDArray[np.int64], tolerance: float
) -> list[NDArray[np.int64]]:
    near = distances[np.ix_(members, members)] <= tolerance
    count, label = connected_components(coo_array(near), directed=False)
    groups = []
    for group in (members[label == number] for number in range(count)):
        tighter = tolerance * _SHRINK
        if len(group) > _READERS and tighter >= _MIN_TOLERANCE:
            groups += _group_marks(distances, group, tighter)
        else:
            groups.append(group)
    return groups


class MarkedPixels(NamedTuple):
    """The pixels marked by the outlines in one slice, in their bounding rectangle.

    Attributes:
        top: First row of the rectangle.
        left: First column of the rectangle.
        inner: ``[h, w]`` bool: pixels strictly inside.
        whole: ``[h, w]`` bool: pixels inside or on the outlines.
    """

    top: int
    left: int
    inner: NDArray[np.bool_]
    whole: NDArray[np.bool_]


def _draw_mark(mark: Mark, slice_of: Mapping[str, int]) -> dict[int, MarkedPixels]:
    slices: dict[int, list[Contour]] = {}
    for contour in mark.contours:
        slices.setdefault(slice_of[contour.image], []).append(contour)
    return {number: draw_contours(contours) for number, contours in sorted(slices.items())}


def draw_contours(contours: Sequence[Contour]) -> MarkedPixels:
    """Return the pixels marked by the outlines in one slice, by the even-odd rule.

    Pixels on or inside the outline of a hole are neither in ``inner`` (inside an outline) nor in ``whole`` (inside or
    on it).
    """
    points = np.concatenate([contour.points for contour in contours])
    low, high = points.min(axis=0), points.max(axis=0)
    inner = np.zeros(high - low + 1, dtype=np.bool_)
    whole = inner.copy()
    for contour in sorted(contours, key=lambda contour: not contour.inclusion):
        edge = np.zeros_like(inner)
        edge[tuple(_interpolate_outline(contour.points - low).T)] = True
        enclosed = _fill_polygon(contour.points - low, inner.shape)
        if contour.inclusion:
            inner |= enclosed & ~edge
            whole |= enclosed | edge
        else:
            inner &= ~(enclosed | edge)
            whole &= ~(enclosed | edge)
    return MarkedPixels(int(low[0]), int(low[1]), inner, whole)


def _interpolate_outline(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the points and all pixels exactly on the lines between them; most points of readers are adjacent."""
    steps = np.roll(points, -1, axis=0) - points
    parts = np.maximum(np.gcd(steps[:, 0], steps[:, 1]), 1)
    start = np.repeat(np.arange(len(points)), parts)
    part = np.arange(len(start)) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.asarray(points[start] + steps[start] // parts[start, None] * part[:, None])


def _fill_polygon(points: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return ``shape`` bool, the pixels inside a polygon. Pixels on its outline are undefined."""
    after = np.roll(points, -1, axis=0)
    down = points[:, :1] <= after[:, :1]
    first, last = np.where(down, points, after), np.where(down, after, points)
    heights = last[:, 0] - first[:, 0]
    edge = np.repeat(np.arange(len(points)), heights)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(heights) - heights, heights)
    rows = first[edge, 0] + step
    columns = first[edge, 1] + step * (last[edge, 1] - first[edge, 1]) / heights[edge]
    crossings = np.zeros((shape[0], shape[1] + 1), dtype=np.int64)
    np.add.at(crossings, (rows, np.ceil(columns).astype(np.int64)), 1)
    return np.asarray(crossings.cumsum(axis=1)[:, :-1] % 2 == 1)


def _overlaps(one: MarkedPixels, other: MarkedPixels) -> bool:
    top, left, bottom, right = _combine_rectangles([one, other], np.maximum, np.minimum)
    if bottom <= top or right <= left:
        return False
    seen = [
        part.whole[top - part.top : bottom - part.top, left - part.left : right - part.left] for part in (one, other)
    ]
    return bool((seen[0] & seen[1]).any())


def _combine_rectangles(drawn: Sequence[MarkedPixels], low: np.ufunc, high: np.ufunc) -> tuple[int, int, int, int]:
    """Return top, left, bottom, right of the intersection (maximum, minimum) or the union (minimum, maximum)."""
    corners = np.array([(part.top, part.left) for part in drawn])
    ends = corners + np.array([part.whole.shape for part in drawn])
    (top, left), (bottom, right) = low.reduce(corners).tolist(), high.reduce(ends).tolist()
    return top, left, bottom, right


def _outline_points(mark: Mark, spacing: tuple[float, float]) -> NDArray[np.float64]:
    """Return the points of all outlines in mm, ``[n, 3]``."""
    return np.concatenate(
        [
            np.column_stack([contour.points * spacing, np.full(len(contour.points), contour.z)])
            for contour in mark.contours
        ]
    )


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    gap = np.maximum(one.min(axis=0) - other.max(axis=0), other.min(axis=0) - one.max(axis=0))
    apart = math.hypot(*np.maximum(gap, 0))
    # Most marks are far apart; a lower bound of the distance is then enough.
    return apart if apart > 50 else float(np.min(KDTree(one).query(other)[0]))


def _count_votes(marks: Sequence[Mark], drawn: Sequence[Mapping[int, MarkedPixels]]) -> Nodule:
    parts = []
    for number in sorted({number for one in drawn for number in one}):
        here = [(mark.reader, one[number]) for mark, one in zip(marks, drawn, strict=True) if number in one]
        top, left, bottom, right = _combine_rectangles([one for _, one in here], np.minimum, np.maximum)
        votes = np.zeros((2, bottom - top, right - left), dtype=np.uint8)
        for reader in sorted({reader for reader, _ in here}):
            seen = np.zeros(votes.shape, dtype=np.bool_)
            for one in (one for name, one in here if name == reader):
                row, column, (height, width) = one.top - top, one.left - left, one.whole.shape
                seen[:, row : row + height, column : column + width] |= np.stack([one.inner, one.whole])
            votes += seen
        parts.append(Votes(number, top, left, votes[0], votes[1]))
    return Nodule(len({mark.reader for mark in marks}), tuple(parts))
