"""Pancreas CT: slices with a tumor from the Medical Segmentation Decathlon, and healthy ones from the NIH."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import (
    Arrays,
    IndexEntry,
    build_entries,
    cache_folder,
    digest_files,
    digest_folder,
    load_arrays,
    load_entry,
)
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.source import Source
from xaibench.data.scans.ct_reading import (
    SliceHeader,
    check_window,
    dicom_files,
    import_medical,
    read_header,
    read_modality,
    read_slice,
    scan_rng,
    window_image,
)
from xaibench.data.scans.nifti_volumes import are_misaligned, read_volume, read_volume_header
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

_CLASSES = ("no_tumor", "tumor")
#: Part of the cache key; increased when scans are prepared differently.
_REVISION = 1
#: Label of the tumor in the Decathlon; label 1 is the pancreas.
_TUMOR_LABEL = 2
#: Folder of the task in the Decathlon.
_DECATHLON = "Task07_Pancreas"
#: Possible folders of the NIH patients, relative to the folder that contains Task07_Pancreas.
_NIH_PLACES = (
    "PANCREAS_*",
    "*/PANCREAS_*",
    "*/Pancreas-CT/PANCREAS_*",
    "*/manifest-*/PANCREAS_*",
    "*/manifest-*/Pancreas-CT/PANCREAS_*",
)


class Tumor(AnnotatedSet):
    """Pancreatic tumors in slices of abdominal CT: one slice per scan, one scan per patient.

    Positives are the training scans of task 7 of the Decathlon (those with labels): a random slice that contains label
    2, which is the mask. Negatives are the scans of the NIH Pancreas-CT: a random slice from the middle half of the
    scan along the body, where the pancreas is. Slices near the ends show lungs or hips, from which a classifier could
    infer the class.

    The two classes come from different hospitals, as the paper says, so a classifier may learn the scanner. To reduce
    the difference, both are in Hounsfield units under the same window, and both have the radiological orientation
    (anterior at the top, the patient's right on the left) regardless of the axes in the files. The field of view and
    the contrast phase still differ.
    """

    info = DatasetInfo(
        "tumor",
        classes=_CLASSES,
        image_shape=(3, 224, 224),
        citation=(
            "Simpson et al.: A large annotated medical image dataset for the development and evaluation of "
            "segmentation algorithms, 2019 (arXiv 1902.09063); Roth et al.: DeepOrgan: Multi-level Deep Convolutional "
            "Networks for Automated Pancreas Segmentation, MICCAI 2015; data: doi:10.7937/K9/TCIA.2016.tNB1kqBU"
        ),
        license="Medical Segmentation Decathlon: CC BY-SA 4.0; Pancreas-CT: CC BY 3.0",
        address=(
            "[medicaldecathlon.com](http://medicaldecathlon.com), [The Cancer Imaging "
            "Archive](https://doi.org/10.7937/K9/TCIA.2016.tNB1kqBU)"
        ),
        download_size=(
            "[12.2 GB](https://huggingface.co/datasets/qicq1c/Pubilcdataset/tree/"
            "eea6a9b1bb7420f76e7fad2164572ca7c980a0f7/10_Decathlon), and the 80 scans of the NIH"
        ),
        by_hand="a download from the Decathlon's Google Drive, and the NBIA Data Retriever; no account",
        how_to_get=(
            "1. Tumors: download Task07_Pancreas.tar (12 GB) from http://medicaldecathlon.com and unpack it in DIR.\n"
            "2. Healthy: on The Cancer Imaging Archive (https://doi.org/10.7937/K9/TCIA.2016.tNB1kqBU), get the "
            "manifest of Pancreas-CT and download it with the NBIA Data Retriever into DIR. No account is needed."
        ),
        published=(("no_tumor", 80), ("tumor", 281)),
        benchmark_size=361,
    )
    folders = ("", "tumor", "msd")
    marker = f"{_DECATHLON}/imagesTr"
    contents: ClassVar = {
        "scans with a tumor": f"{_DECATHLON}/imagesTr/*.nii.gz",
        "their masks": f"{_DECATHLON}/labelsTr/*.nii.gz",
        "scans without a tumor": "PANCREAS_* or */PANCREAS_* or */*/PANCREAS_*",
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "no_tumour": "no_tumor",
        "normal": "no_tumor",
        "healthy": "no_tumor",
        "tumour": "tumor",
        "cancer": "tumor",
    }

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        window: tuple[float, float] = (-160.0, 240.0),
    ) -> Source:
        """Return one slice per scan.

        Args:
            folder: Contains ``Task07_Pancreas`` and, at most two levels down, the ``PANCREAS_*`` folders.
            classes: Any of ``"no_tumor"`` and ``"tumor"``; ``("tumor",)`` does not need the NIH scans.
            seed: Seed of the choice of slices.
            window: Hounsfield values that become 0 and 1. The default is a common window of the abdomen (width 400,
                center 40).

        Raises:
            ImportError: If nibabel or pydicom is not installed.
            DataFileError: If no scan of a class can be read. Otherwise, unreadable scans are left out with a warning.
            MissingDataError: If a class has no scans; the message says how to get them.
            ValueError: If the window is invalid.
        """
        ends = check_window(window)
        entries = [entry for name in classes for entry in self._list_entries(folder, name)]
        if missing := sum(not entry.file.exists() for entry in entries):
            _LOGGER.info(
                "%s: reading %d of %d scans completely, a few seconds each; xaibench prepare uses several processes.",
                self.info.name,
                missing,
                len(entries),
            )
        return _TumorSource(folder, classes, build_entries(entries, _build_scan), ends, seed)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the slices with a tumor (about 2 GB), since single slices cannot be read from a compressed volume.

        The cache is used for every seed and window. For the NIH scans, only the order of the slices is cached; it is a
        warning if they are missing. A worker needs the memory of a volume, up to 1 GB.
        """
        entries = self._list_entries(folder, "tumor")
        try:
            entries += self._list_entries(folder, "no_tumor")
        except MissingDataError as error:
            _LOGGER.warning("%s", error)
        build_entries(entries, _build_scan, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return True if slices with a tumor are cached, and None (unknown) otherwise."""
        return any(entry.file.exists() for entry in self._list_entries(folder, "tumor")) or None

    def _list_entries(self, folder: Path, name: str) -> list[IndexEntry]:
        import_medical("nibabel" if name == "tumor" else "pydicom")
        cache = cache_folder(self.info.name, folder, _REVISION)
        entries = []
        for scan, paths in _list_tumor_scans(folder) if name == "tumor" else _list_healthy_scans(folder):
            # A missing file is reported when the part is built.
            existing = (path for path in paths if path.exists())
            state = digest_files(existing) if name == "tumor" else digest_folder(paths[0], ".dcm")
            entries.append(IndexEntry(scan, cache / f"{scan}-{state}.npz", (name, folder, *paths)))
        if not entries:
            hint = "" if name == "tumor" else "\nLoad only the tumors with classes='tumor'."
            raise MissingDataError(f"{folder} has no scan of the class {name!r}.\n{self.info.how_to_get}{hint}")
        return entries


class _TumorSource(Source):
    def __init__(
        self,
        folder: Path,
        classes: tuple[str, ...],
        entries: Sequence[IndexEntry],
        window: tuple[float, float],
        seed: int,
    ) -> None:
        self.classes = classes
        self._folder = folder
        self._window = window
        self._parts = tuple((entry.name, entry.file) for entry in entries)
        self.targets = np.array([classes.index(entry.arguments[0]) for entry in entries], dtype=np.int64)
        self.annotated = np.ones(len(entries), dtype=np.bool_)
        self._slices = []
        self._files = []
        for entry in entries:
            facts = load_entry(entry, _build_scan, "slices", "files")
            drawn = int(scan_rng(seed, entry.name).integers(len(facts["slices"])))
            self._slices.append(int(facts["slices"][drawn]))
            self._files.append(str(facts["files"][drawn]))

    def image(self, index: int, size: int) -> Image.Image:
        if self._shows_tumor(index):
            values = self._load(index, "image")
        else:
            values = read_slice(self._folder / self._files[index], radiological=True)
        return window_image(values, self._window)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        return self._load(index, "mask") if self._shows_tumor(index) else None

    def meta(self, index: int) -> dict[str, object]:
        """Return the metadata; ``id`` is the name of the scan and of the patient, ``slice`` counts from the feet up."""
        name = self._parts[index][0]
        return {"id": name, "file": self._files[index], "patient": name, "slice": self._slices[index]}

    def _shows_tumor(self, index: int) -> bool:
        return self.classes[int(self.targets[index])] == "tumor"

    def _load(self, index: int, what: str) -> NDArray[Any]:
        name = f"{what}_{self._slices[index]}"
        return load_arrays(self._parts[index][1], name)[name]


def _build_scan(name: str, root: Path, *paths: Path) -> Arrays:
    return _build_tumor_scan(root, *paths) if name == "tumor" else _build_healthy_scan(root, *paths)


def _build_tumor_scan(root: Path, image: Path, label: Path) -> Arrays:
    """Return numbers (from the feet up), pixels and masks of the slices with a tumor.

    Raises:
        MissingDataError: If a file is missing.
        DataFileError: If a file cannot be read, the files do not match, or no tumor is marked.
    """
    marks, scan = read_volume_header(label), read_volume_header(image)
    if marks.shape != scan.shape:
        raise DataFileError(
            f"{label} has {list(marks.shape)} voxels (z, y, x), but {image} has {list(scan.shape)}; get both again."
        )
    if are_misaligned(marks, scan):
        raise DataFileError(
            f"{label} is flipped relative to {image}: their axes point to {marks.axes} and {scan.axes}, and they cover "
            "different regions; get both again."
        )
    marked, values = _read_tumor(label), read_volume(image).values
    slices = np.flatnonzero(marked.any(axis=(1, 2)))
    arrays = {"slices": slices, "files": np.full(len(slices), image.relative_to(root).as_posix())}
    if not np.isfinite(values[slices]).all():
        raise DataFileError(f"{image} has NaN or infinite values; get the file again.")
    for number in slices.tolist():
        whole = values[number].astype(np.int16)  # Hounsfield units are whole numbers, except in resampled scans
        arrays[f"image_{number}"] = whole if (whole == values[number]).all() else values[number].astype(np.float32)
        arrays[f"mask_{number}"] = marked[number]
    return arrays


def _build_healthy_scan(root: Path, patient: Path) -> Arrays:
    """Return numbers (from the feet up) and files of the slices in the middle half of a scan.

    Raises:
        MissingDataError: If the folder has no CT scan.
        DataFileError: If a file is damaged.
    """
    heads = _read_healthy_headers(patient)
    count = len(heads)
    slices = np.arange(count // 4, count - count // 4)
    files = [heads[number].path.relative_to(root).as_posix() for number in slices.tolist()]
    return {"slices": slices, "files": np.array(files)}


def _list_tumor_scans(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Return name, image file and label file of every scan, even if one of the files is missing."""
    places = [folder / _DECATHLON / name for name in ("imagesTr", "labelsTr")]
    # The archive was packed on a Mac and has a "._" file next to each file, which the pattern does not match.
    names = sorted({path.name for place in places for path in place.glob("pancreas_*.nii.gz")})
    return [(name.removesuffix(".nii.gz"), tuple(place / name for place in places)) for name in names]


def _list_healthy_scans(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Return name and folder of every NIH patient."""
    folders = {path.name: path for pattern in reversed(_NIH_PLACES) for path in folder.glob(pattern) if path.is_dir()}
    return [(name, (folders[name],)) for name in sorted(folders)]


def _read_tumor(label: Path) -> NDArray[np.bool_]:
    """Read the voxels of the tumor, ``[slices, rows, columns]``, oriented as in :func:`read_volume`.

    Raises:
        MissingDataError: If the file is missing.
        DataFileError: If the file cannot be read, has other labels than 0, 1 and 2, or marks no tumor.
    """
    labels = read_volume(label).values
    with np.errstate(invalid="ignore"):
        known = (labels == labels.astype(np.uint8)) & (labels <= _TUMOR_LABEL)
    if not known.all():
        strange = np.unique(labels[~known])[:5].tolist()
        raise DataFileError(
            f"{label} has the labels {strange}, expected 0, 1 (pancreas) and 2 (tumor); get the file again."
        )
    marked: NDArray[np.bool_] = labels == _TUMOR_LABEL
    if not marked.any():
        raise DataFileError(f"{label} has no tumor (label 2); get the file again, or remove the scan.")
    return marked


def _read_healthy_headers(patient: Path) -> list[SliceHeader]:
    """Return the headers of the slices of a patient's largest CT series, from the feet up.

    Raises:
        MissingDataError: If the folder has no CT scan.
        DataFileError: If a file is damaged.
    """
    scans = [files for files in dicom_files(patient).values() if read_modality(files[0]) == "CT"]
    if not scans:
        raise MissingDataError(f"{patient} has no CT slices (*.dcm); download them, or remove the folder.")
    return sorted((read_header(file) for file in max(scans, key=len)), key=lambda head: (head.z, head.number))


tumor = Tumor()
