"""Volumes of the pancreas scans: crops around tumors, crops at the same places of healthy scans, and whole scans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects, label

from xaibench.data.disk.cache_folders import Arrays, IndexEntry, load_arrays, load_entry
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.source import VolumeSource
from xaibench.data.scans.ct_reading import (
    SliceHeader,
    dicom_files,
    is_transposed,
    read_header,
    read_modality,
    read_slice,
    scan_rng,
    window_values,
)
from xaibench.data.scans.nifti_volumes import VolumeHeader, are_misaligned, read_volume, read_volume_header
from xaibench.data.scans.scan_geometry import AIR, Box, Triple, common_value, measure_stack, window_air

_LOGGER = logging.getLogger("xaibench")


def build_volume(name: str, root: Path, *arguments: Any) -> Arrays:
    """Return the geometry of a scan, and voxels and mask of the crop around its tumor.

    Args:
        name: ``"tumor"`` or ``"no_tumor"``.
        root: The folder of the data set.
        *arguments: Image file, label file and shape of the crop (None = whole scans), or the folder of a healthy
            patient.

    Raises:
        MissingDataError: If a file is missing.
        DataFileError: If a file cannot be read, files do not match, or slices are not a volume.
    """
    return _build_tumor(root, *arguments) if name == "tumor" else _build_healthy(root, *arguments)


def _build_tumor(root: Path, image: Path, labels: Path, crop: Triple | None) -> Arrays:
    head = match_headers(image, labels)
    arrays: dict[str, NDArray[Any]] = {
        "shape": np.array(head.shape),
        "spacing": np.array(head.spacing),
        "files": np.array([image.relative_to(root).as_posix(), labels.relative_to(root).as_posix()]),
    }
    if crop is None:
        return arrays
    marked, values = read_tumor(labels), read_volume(image).values
    components, _ = label(marked)
    # The bounding box of the largest connected component, or of the first of equals.
    bounds = find_objects(components)[int(np.bincount(components.ravel())[1:].argmax())]
    low, high = np.array([side.start for side in bounds]), np.array([side.stop for side in bounds])
    box = Box.around(low.tolist(), high.tolist(), crop)
    inside = values[tuple(slice(one.start, one.stop) for one in box.inside(head.shape))]
    check_finite(image, inside)
    kept, mask = compact(inside), box.fill(head.shape, lambda number: marked[number], np.False_)
    padding = box.padding(head.shape)
    arrays |= {
        "origin": np.array(box.origin),
        "image": np.pad(kept, padding, constant_values=kept.dtype.type(AIR)),
        "mask": mask,
        "annotated": np.array(mask.any()),  # a crop that is smaller than its tumor may show nothing of it
        # Distance of the center of the tumor from the center of its slice, in mm.
        "offset": ((low + high)[1:] - np.array(head.shape[1:])) / 2 * np.array(head.spacing[1:]),
    }
    return arrays


def _build_healthy(root: Path, patient: Path) -> Arrays:
    heads = read_healthy_headers(patient)
    orientation = common_value([head.orientation for head in heads])
    spacing = common_value([head.spacing for head in heads])
    try:
        stack = measure_stack(np.array([head.position for head in heads]), orientation.tolist(), spacing.tolist())
        # Slices are read in the radiological orientation.
        order = [0, 2, 1] if is_transposed(orientation.tolist()) else [0, 1, 2]
    except ValueError as error:
        raise DataFileError(f"{patient} is not a volume ({error}); get its slices again.") from error
    return {
        "shape": np.array([len(heads), heads[0].rows, heads[0].columns])[order],
        "spacing": np.array(stack.spacing)[order],
        "files": np.array([head.path.relative_to(root).as_posix() for head in heads]),
        "gaps": stack.gaps,
        "deviation": np.array(stack.deviation),
    }


class TumorVolumes(VolumeSource):
    """One volume per scan."""

    def __init__(
        self,
        folder: Path,
        classes: tuple[str, ...],
        entries: Sequence[IndexEntry],
        window: tuple[float, float],
        seed: int,
        crop: Triple | None,
    ) -> None:
        self.classes = classes
        self._folder = folder
        self._window = window
        self._are_crops = crop is not None
        facts_of = [(entry, _load_facts(entry, crop)) for entry in entries]
        offsets = [facts["offset"] for entry, facts in facts_of if "offset" in facts]
        if crop and not offsets:
            raise DataFileError(
                f"{folder} has no readable scan with a tumor, from which crops of healthy scans take their place; get "
                "Task07_Pancreas again, or load whole scans with crop=None."
            )
        boxes, used = [], []
        for entry, facts in facts_of:
            if entry.arguments[0] in classes:
                box = _find_box(entry.name, facts, crop, offsets, seed)
                if box is None:
                    _LOGGER.warning("%s is left out: slices are missing in it, or in its middle half.", entry.name)
                else:
                    boxes.append(box)
                    used.append((entry, facts))
        self._boxes = tuple(boxes)
        self._parts = tuple((entry.name, entry.file) for entry, _ in used)
        self.targets = np.array([classes.index(entry.arguments[0]) for entry, _ in used], dtype=np.int64)
        self.annotated = np.array([facts.get("annotated", True) for _, facts in used], dtype=np.bool_)
        self.groups, self.groups_by = np.arange(len(used)), "patients"
        self.spacing = np.array([facts["spacing"] for _, facts in used], dtype=np.float64).reshape(-1, 3)

    def shape(self, index: int) -> Triple:
        """Return the shape of the crop or the scan."""
        return self._boxes[index].shape

    def volume(self, index: int) -> NDArray[np.float32]:
        """Read the volume: a crop of a tumor from the cache, slices of a healthy scan one after the other."""
        if not self._shows_tumor(index):
            files, shape = self._load(index, "files"), self._scan_shape(index)

            def read(number: int) -> NDArray[np.float32]:
                return window_values(read_slice(self._folder / files[number], radiological=True), self._window)

            return self._boxes[index].fill(shape, read, window_air(self._window))
        if self._are_crops:
            return window_values(self._load(index, "image"), self._window)
        image = self._folder / self._load(index, "files")[0]
        values = read_volume(image).values
        check_finite(image, values)
        whole = self._boxes[index]
        return whole.fill(whole.shape, lambda number: window_values(values[number], self._window), np.float32(0))

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Read the mask of the tumor."""
        if not self._shows_tumor(index):
            return None
        if self._are_crops:
            return self._load(index, "mask")
        return np.ascontiguousarray(read_tumor(self._folder / self._load(index, "files")[1]))

    def meta(self, index: int) -> dict[str, object]:
        """Return the metadata; ``id`` is the name of the scan and of the patient."""
        (name, file), box, shape = self._parts[index], self._boxes[index], self._scan_shape(index)
        facts = load_arrays(file, "files") if self._shows_tumor(index) else load_arrays(file, "files", "deviation")
        first = 0 if self._shows_tumor(index) else box.inside(shape)[0].start
        return {
            "id": name,
            "file": str(facts["files"][first]),
            "patient": name,
            "scan": name,
            "spacing": tuple(self.spacing[index].tolist()),
            "spacing_deviation": float(facts.get("deviation", 0.0)),
            "orientation": "SPL",
            "shape": shape,
            "origin": box.origin,
            "padding": box.padding(shape),
            "annotated": bool(self.annotated[index]),
        }

    def _scan_shape(self, index: int) -> Triple:
        slices, rows, columns = self._load(index, "shape").tolist()
        return slices, rows, columns

    def _shows_tumor(self, index: int) -> bool:
        return self.classes[int(self.targets[index])] == "tumor"

    def _load(self, index: int, what: str) -> NDArray[Any]:
        return load_arrays(self._parts[index][1], what)[what]


def _load_facts(entry: IndexEntry, crop: Triple | None) -> Arrays:
    names = ("gaps",) if entry.arguments[0] != "tumor" else ("origin", "offset", "annotated") if crop else ()
    return load_entry(entry, build_volume, "shape", "spacing", *names)


def _find_box(
    name: str, facts: Arrays, crop: Triple | None, offsets: Sequence[NDArray[np.float64]], seed: int
) -> Box | None:
    """Return the place of a sample in its scan; None if slices are missing there."""
    depth, height, width = facts["shape"].tolist()
    if "origin" in facts and crop:
        d, h, w = facts["origin"].tolist()
        return Box((d, h, w), crop)
    gaps = facts.get("gaps", np.zeros(0, dtype=np.bool_))
    if crop is None:
        whole = Box((0, 0, 0), (depth, height, width))
        return None if whole.crosses(gaps) else whole
    rng = scan_rng(seed, name)
    offset = offsets[int(rng.integers(len(offsets)))]
    row, column = np.rint((np.array([height, width]) - 1) / 2 + offset / facts["spacing"][1:]).astype(int).tolist()
    centers = range(depth // 4, depth - depth // 4)
    boxes = [Box.around((one, row, column), (one + 1, row + 1, column + 1), crop) for one in centers]
    boxes = [box for box in boxes if not box.crosses(gaps)]
    return boxes[int(rng.integers(len(boxes)))] if boxes else None


#: Label of the tumor in the Decathlon; label 1 is the pancreas.
_TUMOR_LABEL = 2
#: Folder of the task in the Decathlon.
DECATHLON = "Task07_Pancreas"
#: Possible folders of the NIH patients, relative to the folder that contains Task07_Pancreas.
_NIH_PLACES = (
    "PANCREAS_*",
    "*/PANCREAS_*",
    "*/Pancreas-CT/PANCREAS_*",
    "*/manifest-*/PANCREAS_*",
    "*/manifest-*/Pancreas-CT/PANCREAS_*",
)


def list_tumor_scans(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Return name, image file and label file of every scan, even if one of the files is missing."""
    places = [folder / DECATHLON / name for name in ("imagesTr", "labelsTr")]
    # The archive was packed on a Mac and has a "._" file next to each file, which the pattern does not match.
    names = sorted({path.name for place in places for path in place.glob("pancreas_*.nii.gz")})
    return [(name.removesuffix(".nii.gz"), tuple(place / name for place in places)) for name in names]


def list_healthy_scans(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Return name and folder of every NIH patient."""
    folders = {path.name: path for pattern in reversed(_NIH_PLACES) for path in folder.glob(pattern) if path.is_dir()}
    return [(name, (folders[name],)) for name in sorted(folders)]


def match_headers(image: Path, label: Path) -> VolumeHeader:
    """Return the header of a scan, after comparing it with that of its labels.

    Raises:
        MissingDataError: If a file is missing.
        DataFileError: If a header cannot be read, or the files do not match.
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
    return scan


def read_tumor(label: Path) -> NDArray[np.bool_]:
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


def check_finite(image: Path, values: NDArray[Any]) -> None:
    """Raise an error if values of a scan are not finite.

    Raises:
        DataFileError: Names the file.
    """
    if not np.isfinite(values).all():
        raise DataFileError(f"{image} has NaN or infinite values; get the file again.")


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return Hounsfield units as int16 if they are whole numbers, otherwise as float32."""
    whole = values.astype(np.int16)
    return whole if (whole == values).all() else values.astype(np.float32)


def read_healthy_headers(patient: Path) -> list[SliceHeader]:
    """Return the headers of the slices of a patient's largest CT series, from the feet up.

    Raises:
        MissingDataError: If the folder has no CT scan.
        DataFileError: If a file is damaged.
    """
    scans = [files for files in dicom_files(patient).values() if read_modality(files[0]) == "CT"]
    if not scans:
        raise MissingDataError(f"{patient} has no CT slices (*.dcm); download them, or remove the folder.")
    return sorted((read_header(file) for file in max(scans, key=len)), key=lambda head: (head.z, head.number))
