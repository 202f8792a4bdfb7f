"""What is built once of each patient of LIDC-IDRI: the slices of his CT scans in order, and the readers' votes.

A scan has some 240 files, whose order and names only their heads tell, and the readers' outlines become votes for
pixels in a few milliseconds a nodule. Both fit into a file of a few kB a patient. The pixels of the scans are not
copied: one slice of DICOM is read as quickly as a copy of it would be. The index holds for every level of consensus,
with and without contour pixels.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.index_parts import Arrays
from xaibench.data.scans.ct_reading import Head, dicom_files, read_head, read_modality
from xaibench.data.scans.lidc_consensus import Nodule, Votes, find_nodules
from xaibench.data.scans.lidc_xml import Reading, read_reading

#: Bumped when the index is built otherwise, so that no older one is taken.
REVISION = 1
#: Slices of one scan whose positions differ by less (mm) are the same slice, stored twice; a few scans have such.
_SAME = 1e-3


@dataclass(frozen=True, eq=False)
class Scan:
    """One CT scan, its slices from the lowest up.

    Attributes:
        series: Its ``SeriesInstanceUID``.
        files: ``[S]`` paths of the slices, below the folder of the set.
        z: ``[S]`` their positions in mm.
        touched: ``[S]`` bool: whether any reader marked anything there.
        shape: Rows and columns of the slices.
        nodules: What the readers found, from the lowest up.
    """

    series: str
    files: tuple[str, ...]
    z: NDArray[np.float64]
    touched: NDArray[np.bool_]
    shape: tuple[int, int]
    nodules: tuple[Nodule, ...]

    def mask(self, slice_: int, level: float, contour: bool) -> NDArray[np.bool_]:
        """``[rows, columns]``: the consensus on all nodules that the slice shows."""
        mask = np.zeros(self.shape, dtype=np.bool_)
        for nodule in self.nodules:
            for part in nodule.slices:
                if part.slice == slice_:
                    agreed = part.consensus(nodule.readers, level, contour)
                    height, width = agreed.shape
                    mask[part.top : part.top + height, part.left : part.left + width] |= agreed
        return mask


def build_patient(root: Path, patient: Path, others: Mapping[str, Path]) -> Arrays:
    """The index of one patient.

    Args:
        root: The folder of the set.
        patient: His folder in it, with slices and, as the NBIA Data Retriever puts them, the readers' XML beside.
        others: Further XML files, by ``SeriesInstanceUID``; those of the patient's folder come first.

    Raises:
        MissingDataError: If there are no scans or a scan has no XML.
        DataFileError: If a file is broken, or XML and slices do not belong together.
    """
    found = dict(find_readings(xml_files(patient)))
    scans: dict[str, list[Head]] = {}
    for files in dicom_files(patient).values():
        if read_modality(files[0]) == "CT":  # chest films lie beside
            for file in files:
                head = read_head(file)
                scans.setdefault(head.series, []).append(head)
    for series, path in found.items():
        if series not in scans:
            raise DataFileError(f"{path} marks the CT series {series}, which is not in {patient}; fetch it too.")
    if not scans:
        raise MissingDataError(f"{patient} holds no CT slices (*.dcm); fetch them, or remove the folder.")
    return _pack([_scan(root, heads, found.get(name) or others.get(name)) for name, heads in sorted(scans.items())])


def xml_files(folder: Path) -> list[Path]:
    """The XML files below a folder, hidden ones passed over. Of two for one series, the one to take comes last.

    That is the one that its publishers sent in again (``resubmitted`` in its name).
    """
    files = [
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(".xml") and name[0] != "."
    ]
    return sorted(files, key=lambda file: ("resubmitted" in file.name.lower(), file))


def find_readings(files: Iterable[Path]) -> Iterable[tuple[str, Path]]:
    """``(SeriesInstanceUID, file)`` of those that mark a CT scan.

    Raises:
        DataFileError: If one is broken.
    """
    for file in files:
        if (reading := read_reading(file)) is not None:
            yield reading.series, file


def _scan(root: Path, heads: list[Head], xml: Path | None) -> Scan:
    series = heads[0].series
    if xml is None:
        raise MissingDataError(
            f"{heads[0].path.parent} holds the CT series {series}, but no XML says what readers marked in it; get "
            "LIDC-XML-only.zip and unpack it so that there is tcia-lidc-xml beside the patients' folders."
        )
    reading = read_reading(xml)
    if reading is None:
        raise DataFileError(f"{xml} is no longer the XML of a CT scan; get the file anew.")
    slices, slice_of = _order(heads)
    shape = (slices[0].rows, slices[0].columns)
    _check(reading, xml, slice_of, shape, heads[0].path.parent)
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


def _order(heads: list[Head]) -> tuple[list[Head], dict[str, int]]:
    """The slices from the lowest up, each position once (the first taken), and the number of each image."""
    shapes = {(head.rows, head.columns) for head in heads}
    if len(shapes) > 1:
        raise DataFileError(
            f"{heads[0].path.parent} holds slices of several sizes in one series, {sorted(shapes)}; fetch it anew."
        )
    slices: list[Head] = []
    slice_of: dict[str, int] = {}
    for head in sorted(heads, key=lambda head: (head.z, head.number, head.image)):
        if not slices or head.z - slices[-1].z >= _SAME:
            slices.append(head)
        slice_of[head.image] = len(slices) - 1
    return slices, slice_of


def _check(reading: Reading, xml: Path, slice_of: Mapping[str, int], shape: tuple[int, int], place: Path) -> None:
    for mark in reading.marks:
        for contour in mark.contours:
            if contour.image not in slice_of:
                raise DataFileError(
                    f"{xml} outlines {mark.name!r} in the slice {contour.image} (z = {contour.z}), which is not in "
                    f"{place}; fetch the series anew."
                )
            if (contour.points < 0).any() or (contour.points >= shape).any():
                raise DataFileError(
                    f"{xml} outlines {mark.name!r} outside of slices of {shape[0]}×{shape[1]} pixels; get both anew."
                )


def _pack(scans: list[Scan]) -> Arrays:
    """All scans of a patient as few arrays: one row a scan, one row a slice, one row a nodule in a slice."""
    slices = [(number, file) for number, scan in enumerate(scans) for file in scan.files]
    votes = [
        (number, count, nodule.readers, part.slice, part.top, part.left, *part.inner.shape)
        for number, scan in enumerate(scans)
        for count, nodule in enumerate(scan.nodules)
        for part in nodule.slices
    ]
    parts = [part for scan in scans for nodule in scan.nodules for part in nodule.slices]
    nothing = np.empty(0, dtype=np.uint8)
    return {
        "series": np.array([scan.series for scan in scans]),
        "shape": np.array([scan.shape for scan in scans], dtype=np.int64),
        "slice_scan": np.array([number for number, _ in slices], dtype=np.int64),
        "files": np.array([file for _, file in slices]),
        "z": np.concatenate([scan.z for scan in scans]),
        "touched": np.concatenate([scan.touched for scan in scans]),
        "votes": np.array(votes, dtype=np.int64).reshape(-1, 8),
        "inner": np.concatenate([nothing, *(part.inner.ravel() for part in parts)]),
        "whole": np.concatenate([nothing, *(part.whole.ravel() for part in parts)]),
    }


def unpack(arrays: Mapping[str, NDArray[Any]]) -> list[Scan]:
    """The scans of a patient from what :func:`build_patient` returned."""
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
                    Nodule(readers, tuple(parts)) for (scan, _), (readers, parts) in nodules.items() if scan == number
                ),
            )
        )
    return scans
