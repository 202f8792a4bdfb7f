"""The XML in which the readers of LIDC-IDRI marked what they saw: one file for each CT series, up to four readers.

Each reader (``readingSession``) marked nodules of 3 mm and more by outlines and ratings, smaller ones by one point, and
things that are no nodule by one point too. The files of chest films (``IdriReadMessage``) lie among those of CT.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import DataFileError, naming, read_xml


@dataclass(frozen=True, eq=False)
class Contour:
    """An outline that a reader drew in one slice.

    Attributes:
        image: ``SOPInstanceUID`` of the slice.
        z: Its position along the body in mm.
        inclusion: False = the outline of a hole: what it encloses does not belong to the nodule.
        points: ``[n, 2]`` int64 (row, column) of its pixels, in the order drawn; the first is not repeated at the end.
    """

    image: str
    z: float
    inclusion: bool
    points: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mark:
    """A nodule of 3 mm or more, as one reader outlined it.

    Attributes:
        reader: Which of the readers, from 0. The numbers of two files are not the same people.
        name: That reader's name of the nodule; another reader has another name for it.
        contours: Its outlines, from the lowest slice to the highest, in whatever order they were drawn.
    """

    reader: int
    name: str
    contours: tuple[Contour, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """What the readers marked in one CT series.

    Attributes:
        series: Its ``SeriesInstanceUID``.
        marks: The nodules of 3 mm and more.
        touched: ``SOPInstanceUID`` of every slice with a mark of any kind, the small ones included.
    """

    series: str
    marks: tuple[Mark, ...]
    touched: frozenset[str]


def read_reading(path: str | os.PathLike[str]) -> Reading | None:
    """Read one XML file of the readers; None for that of a chest film.

    A mark without ratings (``characteristics`` missing, empty, or with a value that is blank or 0) is a nodule under
    3 mm, and an outline of one point is a stray click: both count as touched, not as nodules. The two rules are
    pylidc's.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no XML, declares entities, or is not built as LIDC-IDRI's are.
    """
    root = read_xml(path)
    if _name(root) == "IdriReadMessage":
        return None
    if _name(root) != "LidcReadMessage":
        raise DataFileError(f"{os.fspath(path)} is a {_name(root)!r}, expected a LidcReadMessage; get the file anew.")
    with naming(path):
        series = _text(_child(root, "ResponseHeader"), "SeriesInstanceUid", "SeriesInstanceUID")
        marks: list[Mark] = []
        touched: set[str] = set()
        for reader, session in enumerate(_children(root, "readingSession")):
            for thing in (*_children(session, "unblindedReadNodule"), *_children(session, "nonNodule")):
                touched |= {_text(place, "imageSOP_UID") for place in (thing, *_children(thing, "roi"))} - {""}
            for nodule in _children(session, "unblindedReadNodule"):
                contours = [_contour(roi) for roi in _children(nodule, "roi")] if _is_rated(nodule) else []
                contours = [contour for contour in contours if len(contour.points) > 1]
                if contours:
                    contours.sort(key=lambda contour: contour.z)
                    marks.append(Mark(reader, _text(nodule, "noduleID"), tuple(contours)))
        if not series:
            raise ValueError("its ResponseHeader names no SeriesInstanceUid")
    return Reading(series, tuple(marks), frozenset(touched))


def _contour(roi: Element) -> Contour:
    inclusion = _text(roi, "inclusion").upper()
    if inclusion not in ("TRUE", "FALSE"):
        raise ValueError(f"inclusion is {inclusion!r}, expected TRUE or FALSE")
    image, z = _text(roi, "imageSOP_UID"), _text(roi, "imageZposition")
    if not image:
        raise ValueError("an outline (roi) names no imageSOP_UID")
    points = [(int(_text(edge, "yCoord")), int(_text(edge, "xCoord"))) for edge in _children(roi, "edgeMap")]
    if len(points) > 1 and points[0] == points[-1]:
        points.pop()
    return Contour(image, float(z), inclusion == "TRUE", np.array(points, dtype=np.int64).reshape(-1, 2))


def _is_rated(nodule: Element) -> bool:
    ratings = [(rating.text or "").strip() for part in _children(nodule, "characteristics") for rating in part]
    return bool(ratings) and all(rating not in ("", "0") for rating in ratings)


def _name(element: Element) -> str:
    """The tag without its namespace: chest films have another one, and some tools drop it."""
    return str(element.tag).rpartition("}")[2]


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if _name(child) == name)


def _child(element: Element, name: str) -> Element:
    for child in _children(element, name):
        return child
    raise ValueError(f"{_name(element)} has no {name}")


def _text(element: Element, *names: str) -> str:
    """The text of the first child with one of the names; empty if there is none."""
    return next(((child.text or "").strip() for name in names for child in _children(element, name)), "")
