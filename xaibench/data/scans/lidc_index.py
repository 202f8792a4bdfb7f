"""Index of a patient of LIDC-IDRI: the ordered slices of the CT scans, and the readers' votes per pixel.

A scan has about 240 files, whose order is only known from their headers. The readers' outlines are converted to votes
per pixel in a few milliseconds per nodule. Both fit into a cache file of a few kB per patient. Pixels are not cached,
because reading a DICOM slice is as fast as reading a copy. The index can be used for every consensus level, with and
without contour pixels.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.cache_folders import Arrays
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.scans.ct_reading import SliceHeader, dicom_files, read_header, read_modality, scan_rng
from xaibench.data.scans.lidc_readings import Nodule, Reading, Votes, find_nodules, read_reading

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
    _check_contours(reading, xml, slice_of, shape, heads[0].path.parent)
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


def _check_contours(
    reading: Reading, xml: Path, slice_of: Mapping[str, int], shape: tuple[int, int], directory: Path
) -> None:
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
