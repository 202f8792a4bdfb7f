"""The XML annotations of LIDC-IDRI: one file per CT series, with up to four readers.

Every reader (``readingSession``) marked nodules of at least 3 mm by outlines and ratings, and smaller nodules and
non-nodules by one point each. The files of chest radiographs (``IdriReadMessage``) are in the same folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import DataFileError, read_xml, wrap_file_errors


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
        series = _child_text(_find_child(root, "ResponseHeader"), "SeriesInstanceUid", "SeriesInstanceUID")
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


def _find_child(element: Element, name: str) -> Element:
    for child in _children(element, name):
        return child
    raise ValueError(f"{_tag_name(element)} has no {name}")


def _child_text(element: Element, *names: str) -> str:
    """Return the text of the first child with one of the names; empty if there is none."""
    return next(((child.text or "").strip() for name in names for child in _children(element, name)), "")
