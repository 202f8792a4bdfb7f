"""Volumes of LIDC-IDRI: crops around nodules, matched crops without a mark, and whole scans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.cache_folders import IndexEntry, load_arrays, load_entry
from xaibench.data.disk.source import VolumeSource
from xaibench.data.scans.ct_reading import read_slice, scan_rng, window_values
from xaibench.data.scans.lidc_index import MAX_DISTANCE, Scan, SliceChoice, build_patient, unpack_scans
from xaibench.data.scans.scan_geometry import Box, StackGeometry, Triple, measure_stack, window_air

_LOGGER = logging.getLogger("xaibench")


@dataclass(frozen=True)
class CropChoice:
    """The parameters that select crops or whole scans.

    Attributes:
        choice: The parameters that slices have too.
        crop: Number of slices, rows and columns; None = whole scans.
    """

    choice: SliceChoice
    crop: Triple | None

    def boxes(self, scan: Scan, gaps: NDArray[np.bool_], classes: tuple[str, ...]) -> list[tuple[str, bool, Box]]:
        """Return ``(class, annotated, box)`` of every sample of a scan. Boxes with missing slices are left out."""
        if self.crop is None:
            agreed = any(self._outline(scan, number)[0] for number in range(len(scan.nodules)))
            name = "nodule" if scan.nodules else "no_nodule"
            samples = [(name, agreed or not scan.nodules, Box((0, 0, 0), _shape(scan)))]
        else:
            positives = self._positives(scan, self.crop)
            samples = [("nodule", annotated, box) for box, annotated in positives.items()]
            if "no_nodule" in classes:
                centers = [box for box, annotated in positives.items() if annotated and not box.crosses(gaps)]
                samples += [("no_nodule", True, box) for box in self._negatives(scan, centers, gaps)]
        samples = [sample for sample in samples if sample[0] in classes]
        complete = [sample for sample in samples if not sample[2].crosses(gaps)]
        if len(complete) < len(samples):
            _LOGGER.warning(
                "%s: slices are missing above z = %s mm; %d of %d volumes are left out.",
                Path(scan.files[0]).parent,
                ", ".join(f"{z:g}" for z in scan.z[:-1][gaps]),
                len(samples) - len(complete),
                len(samples),
            )
        return complete

    def _outline(self, scan: Scan, number: int) -> tuple[bool, NDArray[np.int64], NDArray[np.int64]]:
        """Return whether a nodule has consensus, and the bounding box of the consensus, otherwise of all outlines."""
        nodule = scan.nodules[number]
        low, high = [], []
        for outline in nodule.slices:
            rows, columns = np.nonzero(outline.consensus(nodule.readers, self.choice.level, self.choice.contour))
            if len(rows):
                low.append((outline.slice, outline.top + rows.min(), outline.left + columns.min()))
                high.append((outline.slice + 1, outline.top + rows.max() + 1, outline.left + columns.max() + 1))
        if not low:
            corners = _corners(scan, [number])
            return False, corners[0].min(axis=0), corners[1].max(axis=0)
        return True, np.array(low).min(axis=0), np.array(high).max(axis=0)

    def _positives(self, scan: Scan, crop: Triple) -> dict[Box, bool]:
        """Return the crops around nodules, each once, and whether they are annotated: their nodule has consensus."""
        annotated_of: dict[Box, bool] = {}
        for number in range(len(scan.nodules)):
            agreed, low, high = self._outline(scan, number)
            box = Box.around(low.tolist(), high.tolist(), crop)
            # A crop that is smaller than its nodule may show nothing of the consensus.
            annotated_of[box] = annotated_of.get(box, False) or (agreed and self._shows_consensus(scan, box))
        return {box: annotated_of[box] for box in sorted(annotated_of, key=lambda box: box.origin)}

    def _shows_consensus(self, scan: Scan, box: Box) -> bool:
        (first, top, left), (depth, height, width) = box.origin, box.shape
        for nodule in scan.nodules:
            for outline in nodule.slices:
                if first <= outline.slice < first + depth:
                    agreed = outline.consensus(nodule.readers, self.choice.level, self.choice.contour)
                    rows = slice(max(top - outline.top, 0), max(top + height - outline.top, 0))
                    if agreed[rows, max(left - outline.left, 0) : max(left + width - outline.left, 0)].any():
                        return True
        return False

    def _negatives(self, scan: Scan, positives: Sequence[Box], gaps: NDArray[np.bool_]) -> list[Box]:
        """Draw crops without a mark, at the place of the positive ones or its mirror image, higher or lower."""
        rng = scan_rng(self.choice.seed, scan.series)
        low, high = _corners(scan, range(len(scan.nodules)), points=True)
        chosen: dict[Box, None] = {}
        for positive in positives:
            free = [
                box
                for box in _matched(scan, positive)
                if box not in chosen
                and not box.crosses(gaps)
                and not ((np.array(box.origin) < high) & (np.add(box.origin, box.shape) > low)).all(axis=1).any()
            ]
            drawn = rng.choice(len(free), size=min(self.choice.negatives, len(free)), replace=False)
            chosen |= dict.fromkeys(free[number] for number in drawn.tolist())
        return sorted(chosen, key=lambda box: box.origin)


class LidcVolumes(VolumeSource):
    """The volumes of all patients. Nodules and file names are read from a patient's index on access."""

    groups: NDArray[np.int64]

    def __init__(
        self, folder: Path, classes: tuple[str, ...], entries: Sequence[IndexEntry], choice: CropChoice
    ) -> None:
        self.classes = classes
        self._folder = folder
        self._choice = choice.choice
        self._names = [entry.name for entry in entries]
        self._kept = [entry.file for entry in entries]
        rows: list[tuple[int, ...]] = []
        spacing: list[tuple[float, ...]] = []
        for number, entry in enumerate(entries):
            for scan_number, scan in enumerate(unpack_scans(load_entry(entry, build_patient))):
                if (geometry := _measure(scan)) is not None:
                    for name, annotated, box in choice.boxes(scan, geometry.gaps, classes):
                        rows.append((number, scan_number, classes.index(name), annotated, *box.origin, *box.shape))
                        spacing.append(geometry.spacing)
        table = np.array(rows, dtype=np.int64).reshape(-1, 10)
        self.groups, self._scans, self.targets = (table[:, column].copy() for column in range(3))
        self.groups_by = "patients"
        self.annotated = table[:, 3].astype(np.bool_)
        self._boxes = table[:, 4:]
        self.spacing = np.array(spacing, dtype=np.float64).reshape(-1, 3)
        self._are_crops = choice.crop is not None

    def shape(self, index: int) -> Triple:
        """Return the shape of the crop or the scan."""
        return self._box(index).shape

    def volume(self, index: int) -> NDArray[np.float32]:
        """Read the slices of the volume, one after the other."""
        scan, window = self._load_scan(index), self._choice.window

        def read(number: int) -> NDArray[np.float32]:
            return window_values(read_slice(self._folder / scan.files[number]), window)

        return self._box(index).fill(_shape(scan), read, window_air(window))

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Return the consensus masks of the slices of the volume."""
        if not self.annotated[index] or self.classes[self.targets[index]] != "nodule":
            return None
        scan, choice = self._load_scan(index), self._choice

        def read(number: int) -> NDArray[np.bool_]:
            return scan.mask(number, choice.level, choice.contour)

        return self._box(index).fill(_shape(scan), read, np.False_)

    def meta(self, index: int) -> dict[str, object]:
        """Return the metadata; ``id`` is patient/scan, for crops followed by the origin."""
        scan, box = self._load_scan(index), self._box(index)
        geometry = measure_stack(scan.positions, scan.orientation.tolist(), scan.spacing.tolist())
        shape, patient = _shape(scan), self._names[self.groups[index]]
        name = f"{patient}/{self._scans[index]}"
        low, high = np.array(box.origin), np.add(box.origin, box.shape)
        near = [_corners(scan, [number]) for number in range(len(scan.nodules))]
        readers = [
            nodule.readers
            for nodule, (first, last) in zip(scan.nodules, near, strict=True)
            if ((first < high) & (last > low)).all(axis=1).any()
        ]
        points = scan.points
        return {
            "id": f"{name}/{','.join(map(str, box.origin))}" if self._are_crops else name,
            "file": scan.files[box.inside(shape)[0].start],
            "patient": patient,
            "scan": name,
            "series": scan.series,
            "spacing": geometry.spacing,
            "spacing_deviation": geometry.deviation,
            "orientation": geometry.orientation,
            "shape": shape,
            "origin": box.origin,
            "padding": box.padding(shape),
            "readers": readers,
            "other_marks": int(((points >= low) & (points < high)).all(axis=1).sum()),
            "annotated": bool(self.annotated[index]),
        }

    def _box(self, index: int) -> Box:
        d, h, w, depth, height, width = self._boxes[index].tolist()
        return Box((d, h, w), (depth, height, width))

    def _load_scan(self, index: int) -> Scan:
        return unpack_scans(load_arrays(self._kept[self.groups[index]]))[int(self._scans[index])]


def _measure(scan: Scan) -> StackGeometry | None:
    """Return the geometry of a scan; None, with a warning, if its slices are not a volume."""
    directory = Path(scan.files[0]).parent
    try:
        geometry = measure_stack(scan.positions, scan.orientation.tolist(), scan.spacing.tolist())
    except ValueError as error:
        _LOGGER.warning("%s is left out: %s.", directory, error)
        return None
    if not geometry.is_uniform:
        _LOGGER.warning(
            "%s: the distance of its slices is not uniform: %.4g mm, with differences up to %.2g mm.",
            directory,
            geometry.spacing[0],
            geometry.deviation,
        )
    return geometry


def _shape(scan: Scan) -> Triple:
    return (len(scan.files), *scan.shape)


def _corners(
    scan: Scan, numbers: Sequence[int], *, points: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``[M, 3]`` first and last (exclusive) voxels of the outlines of nodules, and of the other marks."""
    outlines = [outline for number in numbers for outline in scan.nodules[number].slices]
    low = np.array([(outline.slice, outline.top, outline.left) for outline in outlines], dtype=np.int64).reshape(-1, 3)
    high = low + np.array([(1, *outline.whole.shape) for outline in outlines], dtype=np.int64).reshape(-1, 3)
    if not points:
        return low, high
    # A mark without coordinates may be anywhere in its slice.
    known = scan.points[:, 1:] >= 0
    first = np.where(known, scan.points[:, 1:], 0)
    last = np.where(known, scan.points[:, 1:] + 1, scan.shape)
    slices = scan.points[:, :1]
    return np.vstack([low, np.hstack([slices, first])]), np.vstack([high, np.hstack([slices + 1, last])])


def _matched(scan: Scan, positive: Box) -> list[Box]:
    """Return the boxes at the place of a positive one or its mirror image, at most 50 mm higher or lower.

    They extend beyond the ends of the scan by no more than the positive one does.
    """
    half, (depth, _, width) = positive.shape[0] // 2, positive.shape
    scan_shape, (first, top, left) = _shape(scan), positive.origin
    allowed = positive.padding(scan_shape)[0]
    near = np.flatnonzero(np.abs(scan.z - scan.z[first + half]) <= MAX_DISTANCE) - half
    lowest, highest = -allowed[0], scan_shape[0] + allowed[1] - depth
    columns = dict.fromkeys((left, scan_shape[2] - width - left))
    return [
        Box((number, top, column), positive.shape)
        for number in near.tolist()
        if lowest <= number <= highest
        for column in columns
    ]
