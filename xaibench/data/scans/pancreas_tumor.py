"""Pancreas CT: slices with a tumour from the Medical Segmentation Decathlon, and healthy ones from the NIH."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, Progress
from xaibench.data.disk.cache_folders import cache_folder, stamp, stamp_below
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.index_parts import Arrays, Part, build_parts, load_arrays, load_part
from xaibench.data.disk.source import Source
from xaibench.data.scans.ct_reading import (
    check_window,
    dicom_files,
    import_medical,
    read_head,
    read_modality,
    read_slice,
    scan_rng,
    window_image,
)
from xaibench.data.scans.nifti_volumes import lie_apart, read_volume

_LOGGER = logging.getLogger("xaibench")

CLASSES = ("no_tumor", "tumor")
#: Bumped when scans are prepared otherwise, so that no older cache is taken.
_REVISION = 1
#: Of the Decathlon's labels: 1 is the pancreas, 2 the mass in it.
_TUMOUR = 2
_DECATHLON = "Task07_Pancreas"
#: Where the NIH's patients may lie below the folder that holds Task07_Pancreas.
_NIH_PLACES = (
    "PANCREAS_*",
    "*/PANCREAS_*",
    "*/Pancreas-CT/PANCREAS_*",
    "*/manifest-*/PANCREAS_*",
    "*/manifest-*/Pancreas-CT/PANCREAS_*",
)


class Tumor(AnnotatedSet):
    """Tumours of the pancreas in slices of abdominal CT: one slice a scan, one scan a patient.

    Positives are the training scans of the Decathlon's task 7 (those with labels): a slice drawn by ``seed`` among
    those in which label 2 occurs; the mask is label 2 alone. Negatives are the scans of the NIH's Pancreas-CT: a slice
    drawn by ``seed`` from the middle half of the scan along the body, where the pancreas lies; towards the ends are
    lungs and hips, by which a classifier would know the class.

    The two classes come from different hospitals, as the paper says: a classifier may learn the scanner. What can be
    made the same is: both are in Hounsfield units under the same window, and both lie as radiologists look at them,
    front up and the patient's right on the left, whatever the files' axes. The field of view and the contrast phase are
    the scans' own.
    """

    info = DatasetInfo(
        "tumor",
        classes=CLASSES,
        image_shape=(3, 224, 224),
        citation=(
            "Simpson et al.: A large annotated medical image dataset for the development and evaluation of "
            "segmentation algorithms, 2019 (arXiv 1902.09063); Roth et al.: DeepOrgan: Multi-level Deep Convolutional "
            "Networks for Automated Pancreas Segmentation, MICCAI 2015; data: doi:10.7937/K9/TCIA.2016.tNB1kqBU"
        ),
        licence="Medical Segmentation Decathlon: CC BY-SA 4.0; Pancreas-CT: CC BY 3.0",
        address=(
            "[medicaldecathlon.com](http://medicaldecathlon.com), [The Cancer Imaging "
            "Archive](https://doi.org/10.7937/K9/TCIA.2016.tNB1kqBU)"
        ),
        download_size=(
            "[12.2 GB](https://huggingface.co/datasets/qicq1c/Pubilcdataset/tree/"
            "eea6a9b1bb7420f76e7fad2164572ca7c980a0f7/10_Decathlon), and the 80 scans of the NIH"
        ),
        by_hand="a click on the Decathlon's drive; the NBIA Data Retriever; no account",
        how_to_get=(
            "Tumours: fetch Task07_Pancreas.tar (12 GB) from http://medicaldecathlon.com and unpack it, so that there "
            "is DIR/Task07_Pancreas with imagesTr and labelsTr.\n"
            "Healthy: on The Cancer Imaging Archive (doi:10.7937/K9/TCIA.2016.tNB1kqBU), take the manifest of "
            "Pancreas-CT and fetch it with the NBIA Data Retriever into DIR, so that there is "
            "DIR/Pancreas-CT/PANCREAS_0001 or DIR/manifest-.../Pancreas-CT/PANCREAS_0001. No account is needed.\n"
            "Then: xaibench prepare tumor --root DIR"
        ),
        published=(("no_tumor", 80), ("tumor", 281)),
        benchmark_size=361,
    )
    folders = ("", "tumor", "msd")
    marker = f"{_DECATHLON}/imagesTr"
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
        """One slice of each scan.

        Args:
            folder: Holds ``Task07_Pancreas`` and, at most two levels down, the ``PANCREAS_*`` folders.
            classes: Of ``("no_tumor", "tumor")``; ``("tumor",)`` needs no NIH scans.
            seed: Chooses the slices.
            window: Hounsfield values that become 0 and 1. The default is a usual window of the abdomen (400 wide,
                centre 40).

        Raises:
            ImportError: Without nibabel or pydicom.
            DataFileError: If no scan of a class can be read; single ones are named in a warning and left out.
            MissingDataError: If there are no scans of a class; says how to get them.
            ValueError: For a window that is none.
        """
        ends = check_window(window)
        parts = [part for name in classes for part in self._parts(folder, name)]
        if missing := sum(not part.kept.exists() for part in parts):
            _LOGGER.info(
                "%s: %d of %d scans are read whole now, some seconds each; xaibench prepare does it with several "
                "processes.",
                self.info.name,
                missing,
                len(parts),
            )
        return _TumorSource(folder, classes, build_parts(parts, _build_scan), ends, seed)

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Keep the slices with a tumour, which cannot be read singly out of a compressed volume (some 2 GB in all).

        They serve every seed and window. Of the NIH's scans, only the order of the slices is kept; where they are not
        there, that is a warning. A worker needs the memory of a volume, up to 1 GB.
        """
        parts = self._parts(folder, "tumor")
        try:
            parts += self._parts(folder, "no_tumor")
        except MissingDataError as error:
            _LOGGER.warning("%s", error)
        build_parts(parts, _build_scan, workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Whether the slices of a tumour are kept: each shows one."""
        return any(part.kept.exists() for part in self._parts(folder, "tumor")) or None

    def _parts(self, folder: Path, name: str) -> list[Part]:
        import_medical("nibabel" if name == "tumor" else "pydicom")
        cache = cache_folder(self.info.name, folder, _REVISION)
        parts = []
        for scan, paths in _tumours(folder) if name == "tumor" else _healthy(folder):
            # A missing file is said by the building, which names it and goes on with the others.
            there = (path for path in paths if path.exists())
            state = stamp(there) if name == "tumor" else stamp_below(paths[0], ".dcm")
            parts.append(Part(scan, cache / f"{scan}-{state}.npz", (name, folder, *paths)))
        if not parts:
            hint = "" if name == "tumor" else "\nWith classes='tumor', the tumours can be had alone."
            raise MissingDataError(f"{folder} holds no scan of the class {name!r}.\n{self.info.how_to_get}{hint}")
        return parts


class _TumorSource(Source):
    """One slice of every scan."""

    def __init__(
        self, folder: Path, classes: tuple[str, ...], parts: Sequence[Part], window: tuple[float, float], seed: int
    ) -> None:
        self.classes = classes
        self._folder = folder
        self._window = window
        self._parts = tuple((part.name, part.kept) for part in parts)
        self.targets = np.array([classes.index(part.arguments[0]) for part in parts], dtype=np.int64)
        self.annotated = np.ones(len(parts), dtype=np.bool_)
        self._slices = []
        self._files = []
        for part in parts:
            kept = load_part(part, _build_scan, "slices", "files")
            drawn = int(scan_rng(seed, part.name).integers(len(kept["slices"])))
            self._slices.append(int(kept["slices"][drawn]))
            self._files.append(str(kept["files"][drawn]))

    def image(self, index: int, size: int) -> Image.Image:
        if self._shows_tumor(index):
            values = self._load(index, "image")
        else:
            values = read_slice(self._folder / self._files[index], radiological=True)
        return window_image(values, self._window)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        return self._load(index, "mask") if self._shows_tumor(index) else None

    def meta(self, index: int) -> dict[str, object]:
        """``id`` is the scan's, which is the patient's too; ``slice`` counts from the feet up."""
        name = self._parts[index][0]
        return {"id": name, "file": self._files[index], "patient": name, "slice": self._slices[index]}

    def _shows_tumor(self, index: int) -> bool:
        return self.classes[int(self.targets[index])] == "tumor"

    def _load(self, index: int, what: str) -> NDArray[Any]:
        name = f"{what}_{self._slices[index]}"
        return load_arrays(self._parts[index][1], name)[name]


def _tumours(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Name, image and label of every scan of which there is one of the two."""
    places = [folder / _DECATHLON / name for name in ("imagesTr", "labelsTr")]
    # The archive was packed on a Mac: beside each file lies a "._" one, which the pattern passes over.
    names = sorted({path.name for place in places for path in place.glob("pancreas_*.nii.gz")})
    return [(name.removesuffix(".nii.gz"), tuple(place / name for place in places)) for name in names]


def _healthy(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Name and folder of every patient of the NIH."""
    found = {path.name: path for pattern in reversed(_NIH_PLACES) for path in folder.glob(pattern) if path.is_dir()}
    return [(name, (found[name],)) for name in sorted(found)]


def _build_scan(name: str, root: Path, *paths: Path) -> Arrays:
    return _build_tumour(root, *paths) if name == "tumor" else _build_healthy(root, *paths)


def _build_tumour(root: Path, image: Path, label: Path) -> Arrays:
    """The slices of a scan that show a tumour: their numbers from the feet up, pixels and masks.

    Raises:
        MissingDataError: If one of the files is not there.
        DataFileError: If one cannot be read, they do not fit together, or no tumour is marked.
    """
    marks, scan = read_volume(label), read_volume(image)
    labels, values = marks.values, scan.values
    if labels.shape != values.shape:
        raise DataFileError(
            f"{label} has {list(labels.shape)} voxels (z, y, x), but {image} has {list(values.shape)}; get both anew."
        )
    if lie_apart(marks, scan):
        raise DataFileError(
            f"{label} is flipped against {image}: by their affines the axes of one point to {marks.axes}, those of the "
            f"other to {scan.axes}, and the two do not lie on each other; get both anew."
        )
    with np.errstate(invalid="ignore"):
        known = (labels == labels.astype(np.uint8)) & (labels <= _TUMOUR)
    if not known.all():
        strange = np.unique(labels[~known])[:5].tolist()
        raise DataFileError(
            f"{label} holds the labels {strange}; expected 0, 1 (pancreas) and 2 (tumour). Get the file anew."
        )
    marked = labels == _TUMOUR
    slices = np.flatnonzero(marked.any(axis=(1, 2)))
    if not len(slices):
        raise DataFileError(f"{label} marks no tumour (label 2); get the file anew, or remove the scan.")
    arrays = {"slices": slices, "files": np.full(len(slices), image.relative_to(root).as_posix())}
    if not np.isfinite(values[slices]).all():
        raise DataFileError(f"{image} holds NaN or infinite values; get the file anew.")
    for number in slices.tolist():
        whole = values[number].astype(np.int16)
        arrays[f"image_{number}"] = whole if (whole == values[number]).all() else values[number].astype(np.float32)
        arrays[f"mask_{number}"] = marked[number]
    return arrays


def _build_healthy(root: Path, patient: Path) -> Arrays:
    """The middle half of a scan: the numbers of the slices from the feet up, and their files.

    Raises:
        MissingDataError: If there is no CT scan.
        DataFileError: If a file is broken.
    """
    scans = [files for files in dicom_files(patient).values() if read_modality(files[0]) == "CT"]
    if not scans:
        raise MissingDataError(f"{patient} holds no CT slices (*.dcm); fetch them, or remove the folder.")
    heads = sorted((read_head(file) for file in max(scans, key=len)), key=lambda head: (head.z, head.number))
    count = len(heads)
    slices = np.arange(count // 4, count - count // 4)
    files = [heads[number].path.relative_to(root).as_posix() for number in slices.tolist()]
    return {"slices": slices, "files": np.array(files)}


tumor = Tumor()
