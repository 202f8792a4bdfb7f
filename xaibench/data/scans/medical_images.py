"""DICOM and NIfTI files as gray or color images: frames and slices, windows, and masks."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.file_readers import DataFileError, check_size, wrap_file_errors
from xaibench.data.disk.image_files import is_image
from xaibench.data.disk.mask_values import mark_values
from xaibench.data.scans.ct_reading import import_medical, open_dicom, transfer_syntax, window_image
from xaibench.data.scans.nifti_volumes import Volume, are_misaligned, read_volume, read_volume_header

_LOGGER = logging.getLogger("xaibench")
#: Maximum number of pixels of a frame; digital radiographs have about 30 million.
_MAX_PIXELS = 8192 * 8192
#: Smallest range of gray levels without a warning, if the file has no window.
_LEAST_CONTRAST = 1 / 16
_GRAY = ("MONOCHROME1", "MONOCHROME2")
#: Tags that a multi-frame file may state once, for all frames, or frame by frame.
_PER_FRAME = (
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    "VOILUTSequence",
)


class MedicalHeader(NamedTuple):
    """Header of a DICOM or NIfTI file.

    Attributes:
        frames: Number of frames of a multi-frame DICOM file, or of slices of a volume; None = a single image; 0 = a
            DICOM file without an image, such as a report.
        size: ``(height, width)``.
        patient: ``PatientID``; empty if not stated.
    """

    frames: int | None
    size: tuple[int, int]
    patient: str


def read_medical_header(path: Path) -> MedicalHeader:
    """Read the header of a DICOM or NIfTI file, without its pixels.

    Raises:
        ImportError: If pydicom or nibabel is missing; the message says how to install it.
        MissingDataError: If the file does not exist.
        DataFileError: If the file is damaged or implausibly large.
    """
    if _is_nifti(path):
        frames, height, width = read_volume_header(path).shape
        return MedicalHeader(frames, (height, width), "")
    with open_dicom(path, "DICOM image") as stream:
        tags = import_medical("pydicom").dcmread(stream, stop_before_pixels=True)
        if "Rows" not in tags:
            return MedicalHeader(0, (0, 0), str(tags.get("PatientID") or ""))
        frames = int(tags.get("NumberOfFrames") or 1)
        return MedicalHeader(frames if frames > 1 else None, _check_pixels(tags), str(tags.get("PatientID") or ""))


def open_medical(path: Path, frame: int | None = None, window: tuple[float, float] | None = None) -> Image.Image:
    """Read an image of a DICOM or NIfTI file, in mode ``RGB``, or ``F`` (gray in [0, 1]).

    Stored values are converted by the rescale slope and intercept or the lookup table of the file. The window maps them
    to gray: ``window``, or the first window or lookup table of the file. Without any, black and white are the ends of
    the range that a DICOM file can store, or the extremes of a NIfTI volume. ``MONOCHROME1`` is inverted, so that high
    values of X-ray absorption are bright in all files. DICOM pixels are oriented as stored, NIfTI slices in the
    radiological convention.

    Args:
        path: The file.
        frame: Number of the frame, or of the slice (0 = nearest to the feet); None = the only one.
        window: Values of black and white; None = the window of the file.

    Raises:
        ImportError: If pydicom or nibabel is missing; the message says how to install it.
        MissingDataError: If the file does not exist.
        DataFileError: If the file is damaged, has NaN, or a compression without an installed decoder.
    """
    if not _is_nifti(path):
        return _open_dicom_image(path, frame or 0, window)
    volume, extremes = _cached_volume(path, file_version(path))
    values = volume.values[frame or 0]
    if not np.isfinite(values).all():
        raise DataFileError(f"{path} has NaN or infinite values in slice {frame}; replace them by numbers.")
    return window_image(values, window or read_volume_header(path).window or extremes)


def read_medical_mask(path: Path, frame: int | None, image: Path) -> NDArray[np.bool_]:
    """Read a mask ``[h, w]`` from a DICOM or NIfTI file. Values are read as those of other mask files.

    Args:
        path: The file of the mask.
        frame: Number of the frame or slice; None = the only one.
        image: The file of its image. The affine of a NIfTI mask must match that of a NIfTI image.

    Raises:
        MissingDataError: If a file does not exist.
        DataFileError: If a file is damaged, or the mask does not match its image.
    """
    expected = None if is_image(image.name) else read_medical_header(image).frames
    frames = read_medical_header(path).frames
    if (frames or 1) != (expected or 1):
        raise DataFileError(
            f"{path} has {frames or 1} frame(s), but its image {image.name} has {expected or 1}; give one "
            "mask for each."
        )
    if not _is_nifti(path):
        with open_dicom(path, "DICOM image") as stream:
            pixels = import_medical("pydicom").pixels.pixel_array(stream, index=frame or 0)
        values = np.asarray(pixels)
        return mark_values(values.max(axis=2) if values.ndim == 3 else values, str(path), str(path.parent))
    volume, _ = _cached_volume(path, file_version(path))
    if _is_nifti(image) and are_misaligned(volume.header, _cached_volume(image, file_version(image))[0].header):
        raise DataFileError(f"{path} covers another region than its image {image.name}: their affines differ.")
    return np.asarray(_cached_mask(path, file_version(path))[frame or 0])


def _open_dicom_image(path: Path, frame: int, window: tuple[float, float] | None) -> Image.Image:
    pydicom = import_medical("pydicom")
    with open_dicom(path, "DICOM image") as stream:
        tags = pydicom.dcmread(stream, stop_before_pixels=True)
        transfer_syntax(tags)
        _check_pixels(tags)
        stream.seek(0)
        pixels = pydicom.pixels.pixel_array(stream, index=frame)
        kind = str(tags.PhotometricInterpretation)
        if kind == "PALETTE COLOR":
            pixels = pydicom.pixels.apply_color_lut(pixels, tags)
            return _to_rgb(pixels, 8 * pixels.dtype.itemsize)
        if kind not in _GRAY:
            return _to_rgb(pixels, int(tags.BitsStored))
        settings = _frame_settings(tags, frame)
        gray = np.asarray(_to_gray(pixels, tags, settings, window), dtype=np.float32)
        if float(np.ptp(gray)) < _LEAST_CONTRAST and window is None and "WindowWidth" not in settings:
            _warn_of_contrast(path.parent)
        if not np.isfinite(gray).all():
            raise ValueError("it has NaN or infinite values")
        return Image.fromarray(1 - gray if kind == "MONOCHROME1" else gray)


@functools.cache
def _warn_of_contrast(folder: Path) -> None:
    """Log a warning, once per folder."""
    _LOGGER.warning(
        "%s: DICOM files state no window, and their values are within a small part of the range that they can store, "
        "so the images are nearly uniform. Give window=(center, width).",
        folder,
    )


def _to_gray(pixels: NDArray[Any], tags: Any, settings: Any, window: tuple[float, float] | None) -> Any:
    """Return the pixels of a gray image in [0, 1]."""
    functions = import_medical("pydicom").pixels
    values = functions.apply_modality_lut(pixels, settings)
    if window is not None:
        return window_image(values, window)
    if settings.get("VOILUTSequence"):
        white = 2 ** int(settings.VOILUTSequence[0].LUTDescriptor[2]) - 1
        return functions.apply_voi(np.asarray(values).astype(np.int64), settings) / white
    if settings.get("WindowCenter") is not None and settings.get("WindowWidth") is not None:
        center, width = (float(np.atleast_1d(settings[name].value)[0]) for name in ("WindowCenter", "WindowWidth"))
        return _apply_file_window(values, center, width, str(settings.get("VOILUTFunction") or "LINEAR"))
    if "BitsStored" not in tags or pixels.dtype.kind == "f":
        raise ValueError("it has floating-point pixels and no window; give window=(center, width)")
    bits, signed = int(tags.BitsStored), int(tags.get("PixelRepresentation") or 0)
    stored = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] if signed else [0, 2**bits - 1])
    if settings.get("ModalityLUTSequence"):
        return window_image(values, (0, 2 ** int(settings.ModalityLUTSequence[0].LUTDescriptor[2]) - 1))
    low, high = sorted(np.asarray(functions.apply_modality_lut(stored, settings), dtype=np.float64).tolist())
    return window_image(values, (low, high))


def _apply_file_window(values: NDArray[Any], center: float, width: float, function: str) -> Any:
    """Apply the window of a file as defined in part 3 of DICOM, section C.11.2.1.2."""
    if function == "SIGMOID":
        return 1 / (1 + np.exp(-4 * (np.asarray(values, dtype=np.float64) - center) / width))
    if function == "LINEAR":
        center, width = center - 0.5, max(width - 1, 1e-6)
    if not width > 0:
        raise ValueError(f"its window has width {width:g}, expected more than 0; give window=(center, width)")
    return window_image(values, (center - width / 2, center + width / 2))


def _frame_settings(tags: Any, frame: int) -> Any:
    """Return the tags of one frame that decide its gray levels."""
    shared = tags.get("SharedFunctionalGroupsSequence") or []
    own = tags.get("PerFrameFunctionalGroupsSequence") or []
    groups = [*shared[:1], *own[frame : frame + 1]]
    nested = [
        group[name].value[0]
        for group in groups
        for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence")
        if group.get(name)
    ]
    settings = import_medical("pydicom").Dataset()
    for source in (tags, *nested):
        for name in _PER_FRAME:
            if name in source:
                settings[name] = source[name]
    return settings


def _check_pixels(tags: Any) -> tuple[int, int]:
    """Return rows and columns. They are checked, since decoders allocate what a header states."""
    rows, columns = int(tags.Rows), int(tags.Columns)
    frames, channels = int(tags.get("NumberOfFrames") or 1), int(tags.get("SamplesPerPixel") or 1)
    each = (int(tags.get("BitsAllocated") or 8) + 7) // 8
    check_size(frames * rows * columns * channels * each, f"{frames:,} frames of {rows}×{columns} pixels")
    if not 0 < rows * columns <= _MAX_PIXELS:
        raise ValueError(f"its stated size is {rows}×{columns} pixels, expected at most 8192×8192")
    return rows, columns


def _to_rgb(pixels: NDArray[Any], bits: int) -> Image.Image:
    scaled = pixels if bits == 8 else np.round(pixels.astype(np.float64) * (255 / (2**bits - 1)))
    return Image.fromarray(np.ascontiguousarray(scaled.astype(np.uint8)))


@functools.lru_cache(maxsize=4)
def _cached_volume(path: Path, version: tuple[int, int]) -> tuple[Volume, tuple[float, float]]:
    """Return a volume and its extremes. A volume is decompressed as a whole, but its slices are read one by one."""
    volume = read_volume(path)
    if volume.values.dtype == np.float64:
        volume = volume._replace(values=volume.values.astype(np.float32))
    low, high = float(np.nanmin(volume.values)), float(np.nanmax(volume.values))
    return volume, (low, high if high > low else low + 1)


@functools.lru_cache(maxsize=4)
def _cached_mask(path: Path, version: tuple[int, int]) -> NDArray[np.bool_]:
    return mark_values(_cached_volume(path, version)[0].values, str(path), str(path.parent))


def file_version(path: Path) -> tuple[int, int]:
    """Return modification time and size of a file, which are part of the key of cached contents.

    Raises:
        MissingDataError: If the file does not exist.
    """
    with wrap_file_errors(path):
        status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _is_nifti(path: Path) -> bool:
    return path.name.lower().endswith((".nii", ".nii.gz"))
