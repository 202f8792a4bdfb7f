"""Files of the pancreas scans: NIfTI of the Medical Segmentation Decathlon (tumors), DICOM of the NIH (healthy)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.scans.ct_reading import SliceHeader, dicom_files, read_header, read_modality
from xaibench.data.scans.nifti_volumes import VolumeHeader, are_misaligned, read_volume, read_volume_header

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
    found = {path.name: path for pattern in reversed(_NIH_PLACES) for path in folder.glob(pattern) if path.is_dir()}
    return [(name, (found[name],)) for name in sorted(found)]


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
