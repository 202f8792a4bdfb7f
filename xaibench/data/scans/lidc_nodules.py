"""LIDC-IDRI: slices of chest CT with and without lung nodules, outlined by up to four radiologists."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import (
    IndexEntry,
    build_entries,
    cache_folder,
    digest_folder,
    load_arrays,
    load_entry,
)
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.source import Source
from xaibench.data.scans.ct_reading import check_window, import_medical, read_slice, window_image
from xaibench.data.scans.lidc_index import (
    INDEX_REVISION,
    Scan,
    SliceChoice,
    Slices,
    build_patient,
    find_readings,
    unpack_scans,
    xml_files,
)
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

_CLASSES = ("no_nodule", "nodule")
_SUFFIXES = (".dcm", ".xml")
_XML_FOLDERS = ("tcia-lidc-xml", "LIDC-XML-only")


class Lidc(AnnotatedSet):
    """Lung nodules of at least 3 mm in CT slices (Armato et al. 2011).

    Outlines of different readers that are close together are one nodule
    (:func:`~xaibench.data.scans.lidc_index.find_nodules`); an outline of a single reader is a nodule too. The mask
    of a slice is the consensus on all of its nodules: the pixels marked by at least the fraction ``consensus`` of the
    readers *who marked that nodule*. A slice selected for several nodules is one sample, so that no image occurs twice;
    the published data set has one sample per nodule. A nodule without a consensus pixel is not annotated. Nodules under
    3 mm are points without an outline: they are not part of any mask, and slices that show one are not used as
    negatives.

    Negatives are slices of the same scan at most 50 mm from a positive one in which no reader marked anything. They are
    drawn at random without repetition; near the ends of a scan there may be fewer than requested. The published data
    set has about 25 per nodule; the default of 1 balances the classes.

    Slices are used whole, with the pixels as stored. The gray level is (HU − low) / (high − low) of the window, clipped
    to [0, 1].
    """

    info = DatasetInfo(
        "lidc",
        classes=_CLASSES,
        image_shape=(3, 224, 224),
        citation=(
            "Armato et al.: The Lung Image Database Consortium (LIDC) and Image Database Resource Initiative (IDRI): a "
            "completed reference database of lung nodules on CT scans, Medical Physics 2011; data: "
            "doi:10.7937/K9/TCIA.2015.LO9QL9SX"
        ),
        license="CC BY 3.0, and The Cancer Imaging Archive's data usage policy",
        address="[The Cancer Imaging Archive](https://doi.org/10.7937/K9/TCIA.2015.LO9QL9SX)",
        download_size=(
            "[133 GB](https://github.com/aritra-2506/"
            "Reconstruction-of-3D-CT-Volume-from-2D-X-ray-Images-using-Deep-Learning/issues/4); any subset of the "
            "patients works"
        ),
        by_hand="the NBIA Data Retriever, no account",
        how_to_get=(
            "1. On The Cancer Imaging Archive (https://doi.org/10.7937/K9/TCIA.2015.LO9QL9SX), get the manifest of the "
            "images of LIDC-IDRI (133 GB; any subset of the patients works). No account is needed.\n"
            "2. Download it with the NBIA Data Retriever into DIR. The readers' XML files come with the images; if "
            "they do not, unpack LIDC-XML-only.zip of the same page in DIR, so that there is DIR/tcia-lidc-xml."
        ),
        published=(("no_nodule", 65505), ("nodule", 2625)),
        benchmark_size=5250,
    )
    folders = ("LIDC-IDRI", "manifest-*/LIDC-IDRI", "")
    marker = "LIDC-IDRI-*"
    contents: ClassVar = {
        "scans": "LIDC-IDRI-*/*/*/*.dcm",
        "nodules drawn by the readers": "LIDC-IDRI-*/*/*/*.xml or ../tcia-lidc-xml/*/*.xml",
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "non-nodule": "no_nodule",
        "negative": "no_nodule",
        "nodules": "nodule",
        "positive": "nodule",
    }

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        consensus: float = 0.5,
        contour: bool = False,
        slices: Slices = "middle",
        negatives: int = 1,
        window: tuple[float, float] = (-1000.0, 400.0),
    ) -> Source:
        """Return slices with nodules, and slices near them without.

        Args:
            folder: Contains the patients' folders.
            classes: Any of ``"no_nodule"`` and ``"nodule"``.
            seed: Seed of the choice of negatives.
            consensus: Minimum fraction of the readers of a nodule, in (0, 1], who marked a pixel of the mask.
            contour: Whether the pixels of the outlines belong to the nodule. The readers drew them just outside of the
                nodule; pylidc leaves them out.
            slices: Slices to use of a nodule: the ``"middle"`` one of those with consensus (of an even number, the
                upper), the one with the ``"largest"`` consensus area, or ``"all"``.
            negatives: Number of slices without a mark per slice with consensus.
            window: Hounsfield values that become 0 and 1. The default is a common lung window.

        Raises:
            ImportError: If pydicom is not installed.
            DataFileError: If no patient can be read. Otherwise, unreadable patients are left out with a warning.
            MissingDataError: If the folder has no patients.
            ValueError: If a parameter is out of range.
        """
        choice = SliceChoice(consensus, contour, slices, negatives, check_window(window), seed)
        choice.check(classes)
        entries = self._build_index(folder, workers=1, progress=None)
        return _LidcSource(folder, classes, entries, choice)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Build and cache the index of every patient, for all parameters; about 10 minutes on one core."""
        self._build_index(folder, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an indexed patient has a nodule with consensus; None if no patient is indexed."""
        choice = SliceChoice(0.5, False, "middle", 1, (0.0, 1.0), 0)
        files = [entry.file for entry in self._list_entries(folder)[0] if entry.file.exists()]
        scans = (scan for file in files for scan in unpack_scans(load_arrays(file)))
        return any(choice.positives(scan)[0] for scan in scans) if files else None

    def _build_index(self, folder: Path, *, workers: int, progress: ProgressCallback | None) -> list[IndexEntry]:
        import_medical("pydicom")
        entries, xml_folders = self._list_entries(folder)
        others: Mapping[str, Path] = {}
        if missing := sum(not entry.file.exists() for entry in entries):
            _LOGGER.info(
                "%s: indexing %d of %d patients; xaibench prepare uses several processes.",
                self.info.name,
                missing,
                len(entries),
            )
            others = _read_separate_xml(xml_folders)
        entries = [dataclasses.replace(entry, arguments=(*entry.arguments, others)) for entry in entries]
        return build_entries(entries, build_patient, workers=workers, progress=progress)

    def _list_entries(self, folder: Path) -> tuple[list[IndexEntry], list[Path]]:
        """Return the patients, and the separate folders of XML files."""
        patients = sorted(path for path in folder.glob(self.marker) if path.is_dir())
        if not patients:
            raise MissingDataError(f"{folder} has no {self.marker} folder.\n{self.info.how_to_get}")
        candidates = [place / name for place in (folder, *folder.parents[:2]) for name in _XML_FOLDERS]
        xml_folders = [place for place in candidates if place.is_dir()]
        digests = [digest_folder(place, ".xml") for place in xml_folders]
        cache = cache_folder(self.info.name, folder, INDEX_REVISION, digests)
        files = [cache / f"{path.name}-{digest_folder(path, _SUFFIXES)}.npz" for path in patients]
        entries = [IndexEntry(path.name, file, (folder, path)) for path, file in zip(patients, files, strict=True)]
        return entries, xml_folders


class _LidcSource(Source):
    """The samples of all patients. Nodules and file names are read from a patient's index on access."""

    groups: NDArray[np.int64]

    def __init__(
        self, folder: Path, classes: tuple[str, ...], entries: Sequence[IndexEntry], choice: SliceChoice
    ) -> None:
        self.classes = classes
        self._folder = folder
        self._choice = choice
        self._names = [entry.name for entry in entries]
        self._kept = [entry.file for entry in entries]
        rows: list[tuple[int, int, int, int, bool]] = []
        for number, entry in enumerate(entries):
            for scan_number, scan in enumerate(unpack_scans(load_entry(entry, build_patient))):
                agreed, disputed = choice.positives(scan)
                negatives = choice.draw_negatives(scan, agreed) if "no_nodule" in classes else []
                rows += [
                    (number, scan_number, slice_, classes.index(name), annotated)
                    for name, found, annotated in (
                        ("nodule", agreed, True),
                        ("nodule", disputed, False),
                        ("no_nodule", negatives, True),
                    )
                    if name in classes
                    for slice_ in found
                ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        self.groups, self._scans, self._slices, self.targets = (table[:, column].copy() for column in range(4))
        self.groups_by = "patients"
        self.annotated = table[:, 4].astype(np.bool_)

    def image(self, index: int, size: int) -> Image.Image:
        scan, slice_ = self._load_scan(index)
        return window_image(read_slice(self._folder / scan.files[slice_]), self._choice.window)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        if not self.annotated[index] or self.classes[self.targets[index]] != "nodule":
            return None
        scan, slice_ = self._load_scan(index)
        return scan.mask(slice_, self._choice.level, self._choice.contour)

    def meta(self, index: int) -> dict[str, object]:
        """Return the metadata; ``id`` is patient/scan/slice, ``readers`` the number of readers per nodule."""
        scan, slice_ = self._load_scan(index)
        patient = self._names[self.groups[index]]
        readers = [nodule.readers for nodule in scan.nodules if any(part.slice == slice_ for part in nodule.slices)]
        return {
            "id": f"{patient}/{self._scans[index]}/{slice_:04d}",
            "file": scan.files[slice_],
            "patient": patient,
            "series": scan.series,
            "slice": slice_,
            "z": float(scan.z[slice_]),
            "readers": readers,
            "annotated": bool(self.annotated[index]),
        }

    def _load_scan(self, index: int) -> tuple[Scan, int]:
        scans = unpack_scans(load_arrays(self._kept[self.groups[index]]))
        return scans[self._scans[index]], int(self._slices[index])


def _read_separate_xml(folders: Sequence[Path]) -> dict[str, Path]:
    """Return ``{series: XML file}`` from folders of XML files, which may include series that are not on disk."""
    readings: dict[str, Path] = {}
    for file in (file for folder in folders for file in xml_files(folder)):
        try:
            readings |= find_readings([file])
        except DataFileError as error:
            _LOGGER.warning("%s", error)
    return readings


lidc = Lidc()
