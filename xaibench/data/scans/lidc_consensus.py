"""From the outlines of LIDC-IDRI's readers to nodules on which they agree.

Which marks of different readers mean the same nodule stands nowhere: readers name their nodules as they please. Like
pylidc, this puts marks together that lie together. A nodule keeps, for each pixel, how many of its readers marked it;
where a share of them did is its consensus mask.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from xaibench.data.scans.lidc_xml import Contour, Mark

#: A CT scan was read by four.
_READERS = 4
#: How the tolerance shrinks, and where that stops (mm); as in pylidc.
_SHRINK, _SMALLEST = 0.9, 0.1
#: Shares are compared with the level but for rounding: two of four is a half.
_EPSILON = 1e-9


@dataclass(frozen=True, eq=False)
class Votes:
    """How many readers marked each pixel of a rectangle in one slice.

    Attributes:
        slice: Number of the slice in its scan, from the lowest up.
        top: Row of the rectangle in the slice.
        left: Its column.
        inner: ``[h, w]`` uint8, the outlines' own pixels left out.
        whole: ``[h, w]`` uint8, counted in.
    """

    slice: int
    top: int
    left: int
    inner: NDArray[np.uint8]
    whole: NDArray[np.uint8]

    def consensus(self, readers: int, level: float, contour: bool) -> NDArray[np.bool_]:
        """``[h, w]``: where at least the share ``level`` of the nodule's ``readers`` marked."""
        return np.asarray((self.whole if contour else self.inner) >= level * readers - _EPSILON) & (self.whole > 0)


@dataclass(frozen=True, eq=False)
class Nodule:
    """One nodule: how many readers marked it, and where; its slices from the lowest up."""

    readers: int
    slices: tuple[Votes, ...]


def find_nodules(
    marks: Sequence[Mark], slice_of: Mapping[str, int], spacing: tuple[float, float], thickness: float
) -> list[Nodule]:
    """The nodules of a scan, from the lowest up.

    Marks belong to one nodule if a chain of marks links them, each of which overlaps the next in a slice or comes
    within ``thickness`` of it, outline to outline. Where that joins more than four marks, more than there are readers,
    the distance is shortened by tenths within that group, until no part of it has more than four or only marks that
    overlap, or all but touch (0.1 mm), are left together. pylidc (``cluster_annotations``) does the same but for two
    things: it does not see overlap where the outlines lie apart, one within the other; and it shortens the distance for
    the whole scan when one group is too large.

    A reader who drew one nodule in two parts counts once, with the union of both.

    Args:
        marks: Of all readers.
        slice_of: ``SOPInstanceUID`` to the number of the slice, from the lowest up.
        spacing: Distance of rows and of columns in mm.
        thickness: Distance of slices in mm.
    """
    if not marks:
        return []
    drawn = [_draw(mark, slice_of) for mark in marks]
    outlines = [_outline(mark, spacing) for mark in marks]
    distances = np.zeros((len(marks), len(marks)))
    for one in range(len(marks)):
        for other in range(one):
            overlap = any(_overlap(drawn[one][at], drawn[other][at]) for at in drawn[one].keys() & drawn[other].keys())
            distances[one, other] = distances[other, one] = 0 if overlap else _nearest(outlines[one], outlines[other])
    groups = _groups(distances, np.arange(len(marks)), thickness)
    nodules = [_count([marks[one] for one in group], [drawn[one] for one in group]) for group in groups]
    return sorted(nodules, key=lambda nodule: [(part.slice, part.top, part.left) for part in nodule.slices])


def _groups(distances: NDArray[np.float64], members: NDArray[np.int64], tolerance: float) -> list[NDArray[np.int64]]:
    near = distances[np.ix_(members, members)] <= tolerance
    count, label = connected_components(coo_array(near), directed=False)
    found = []
    for group in (members[label == number] for number in range(count)):
        tighter = tolerance * _SHRINK
        if len(group) > _READERS and tighter >= _SMALLEST:
            found += _groups(distances, group, tighter)
        else:
            found.append(group)
    return found


class Drawn(NamedTuple):
    """What outlines in one slice mark, in the smallest rectangle that holds them.

    Attributes:
        top: Row of the rectangle in the slice.
        left: Its column.
        inner: ``[h, w]`` bool: the pixels strictly inside.
        whole: ``[h, w]`` bool: those on the outlines too.
    """

    top: int
    left: int
    inner: NDArray[np.bool_]
    whole: NDArray[np.bool_]


def _draw(mark: Mark, slice_of: Mapping[str, int]) -> dict[int, Drawn]:
    """The mark's pixels in each of its slices."""
    slices: dict[int, list[Contour]] = {}
    for contour in mark.contours:
        slices.setdefault(slice_of[contour.image], []).append(contour)
    return {number: draw_contours(contours) for number, contours in sorted(slices.items())}


def draw_contours(contours: Sequence[Contour]) -> Drawn:
    """The pixels of outlines in one slice.

    Inside is where a ray crosses the outline an odd number of times. What a hole's outline touches or encloses is
    neither inner nor whole.
    """
    points = np.concatenate([contour.points for contour in contours])
    low, high = points.min(axis=0), points.max(axis=0)
    inner = np.zeros(high - low + 1, dtype=np.bool_)
    whole = inner.copy()
    for contour in sorted(contours, key=lambda contour: not contour.inclusion):
        edge = np.zeros_like(inner)
        edge[tuple(_closed(contour.points - low).T)] = True
        enclosed = _enclosed(contour.points - low, inner.shape)
        if contour.inclusion:
            inner |= enclosed & ~edge
            whole |= enclosed | edge
        else:
            inner &= ~(enclosed | edge)
            whole &= ~(enclosed | edge)
    return Drawn(int(low[0]), int(low[1]), inner, whole)


def _closed(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """The points and all pixels that lie exactly on the straight lines between them; readers' points mostly touch."""
    steps = np.roll(points, -1, axis=0) - points
    parts = np.maximum(np.gcd(steps[:, 0], steps[:, 1]), 1)
    start = np.repeat(np.arange(len(points)), parts)
    part = np.arange(len(start)) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.asarray(points[start] + steps[start] // parts[start, None] * part[:, None])


def _enclosed(points: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """``shape`` bool: the pixels inside the polygon; those on its outline may come out either way."""
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


def _overlap(one: Drawn, other: Drawn) -> bool:
    top, left, bottom, right = _frame([one, other], np.maximum, np.minimum)
    if bottom <= top or right <= left:
        return False
    seen = [
        part.whole[top - part.top : bottom - part.top, left - part.left : right - part.left] for part in (one, other)
    ]
    return bool((seen[0] & seen[1]).any())


def _frame(drawn: Sequence[Drawn], low: np.ufunc, high: np.ufunc) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of what rectangles have in common (maximum, minimum) or of all of them (reversed)."""
    corners = np.array([(part.top, part.left) for part in drawn])
    ends = corners + np.array([part.whole.shape for part in drawn])
    (top, left), (bottom, right) = low.reduce(corners).tolist(), high.reduce(ends).tolist()
    return top, left, bottom, right


def _outline(mark: Mark, spacing: tuple[float, float]) -> NDArray[np.float64]:
    """``[n, 3]`` mm: all its outlines' points."""
    return np.concatenate(
        [
            np.column_stack([contour.points * spacing, np.full(len(contour.points), contour.z)])
            for contour in mark.contours
        ]
    )


def _nearest(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    gap = np.maximum(one.min(axis=0) - other.max(axis=0), other.min(axis=0) - one.max(axis=0))
    apart = math.hypot(*np.maximum(gap, 0))
    # Most marks are far apart; then a lower bound says as much as the distance.
    return apart if apart > 50 else float(np.min(KDTree(one).query(other)[0]))


def _count(marks: Sequence[Mark], drawn: Sequence[Mapping[int, Drawn]]) -> Nodule:
    parts = []
    for number in sorted({number for one in drawn for number in one}):
        here = [(mark.reader, one[number]) for mark, one in zip(marks, drawn, strict=True) if number in one]
        top, left, bottom, right = _frame([one for _, one in here], np.minimum, np.maximum)
        votes = np.zeros((2, bottom - top, right - left), dtype=np.uint8)
        for reader in sorted({reader for reader, _ in here}):
            seen = np.zeros(votes.shape, dtype=np.bool_)
            for one in (one for name, one in here if name == reader):
                row, column, (height, width) = one.top - top, one.left - left, one.whole.shape
                seen[:, row : row + height, column : column + width] |= np.stack([one.inner, one.whole])
            votes += seen
        parts.append(Votes(number, top, left, votes[0], votes[1]))
    return Nodule(len({mark.reader for mark in marks}), tuple(parts))
