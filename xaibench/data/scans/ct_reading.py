"""Reading CT slices from DICOM files in Hounsfield units, and windowing.

pydicom and nibabel are part of the extra ``medical`` and are imported when the first file is read.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.file_readers import BoundedFile, DataFileError, MissingDataError, wrap_file_errors
from xaibench.data.disk.image_files import missing_dicom_start

_TAGS = [
    "SOPInstanceUID",
    "SeriesInstanceUID",
    "Modality",
    "InstanceNumber",
    "Rows",
    "Columns",
    "BitsAllocated",
    "PixelSpacing",
    "ImagePositionPatient",
    "ImageOrientationPatient",
]
#: Maximum number of pixels of a slice; scanners produce 512×512.
_MAX_PIXELS = 4096 * 4096


@dataclass(frozen=True)
class SliceHeader:
    """Header of a CT slice.

    Attributes:
        path: The file.
        image: ``SOPInstanceUID``.
        series: ``SeriesInstanceUID``.
        z: Position along the body axis in mm, increasing towards the head.
        number: ``InstanceNumber``; 0 if missing.
        rows: Height in pixels.
        columns: Width in pixels.
        spacing: Row and column spacing in mm.
    """

    path: Path
    image: str
    series: str
    z: float
    number: int
    rows: int
    columns: int
    spacing: tuple[float, float]


def import_medical(module: str) -> Any:
    """Import ``pydicom`` or ``nibabel``.

    Raises:
        ImportError: If the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'Medical images need {module}: pip install "xaibench[medical]".') from error


def check_center_width(window: str | Sequence[float]) -> tuple[float, float]:
    """Return the lower and upper end of a window that is given by its center and width, as radiologists do.

    Args:
        window: Two numbers, or a string of two numbers, such as ``"40, 400"``.

    Raises:
        ValueError: If these are not two finite numbers with a positive width.

    Example:
        >>> check_center_width((40, 400)), check_center_width("-600,1500")
        ((-160.0, 240.0), (-1350.0, 150.0))
    """
    try:
        center, width = (float(one) for one in (window.split(",") if isinstance(window, str) else window))
    except (TypeError, ValueError):
        center, width = math.nan, math.nan
    if not (math.isfinite(center) and 0 < width < math.inf):
        raise ValueError(f"window={window!r}: expected (center, width) with a positive width, such as (40, 400).")
    return center - width / 2, center + width / 2


def dicom_files(folder: Path) -> dict[Path, list[Path]]:
    """Return the DICOM files (``*.dcm``) below a folder, grouped by their folder, without hidden files."""
    series: dict[Path, list[Path]] = {}
    for directory, folders, names in os.walk(folder):
        folders.sort()
        files = [Path(directory, name) for name in sorted(names) if name.lower().endswith(".dcm") and name[0] != "."]
        if files:
            series[Path(directory)] = files
    return series


def read_modality(path: Path) -> str:
    """Return the modality, such as ``"CT"``.

    Raises:
        DataFileError: If the file is not a DICOM file, or its header is truncated.
    """
    with open_dicom(path) as stream:
        return str(import_medical("pydicom").dcmread(stream, stop_before_pixels=True, specific_tags=_TAGS).Modality)


def read_header(path: Path) -> SliceHeader:
    """Read the header of a CT slice, and check without reading the pixels that the file is long enough for them.

    Raises:
        DataFileError: If the file is not a DICOM file, lacks a required tag of a CT slice, or is truncated.
    """
    with open_dicom(path) as stream:
        tags = import_medical("pydicom").dcmread(stream, stop_before_pixels=True, specific_tags=_TAGS)
        rows, columns = _check_size(tags)
        spacing = (float(tags.PixelSpacing[0]), float(tags.PixelSpacing[1]))
        z = float(tags.ImagePositionPatient[2])
        if not math.isfinite(z + sum(spacing)):
            raise ValueError(f"its position is {z} mm, its spacing {spacing} mm")
        head = SliceHeader(
            path=path,
            image=str(tags.SOPInstanceUID),
            series=str(tags.SeriesInstanceUID),
            z=z,
            number=int(tags.get("InstanceNumber") or 0),
            rows=rows,
            columns=columns,
            spacing=spacing,
        )
        syntax = transfer_syntax(tags)
        needed = 1
        if not syntax.is_compressed:
            needed = (8 if syntax.is_implicit_VR else 12) + rows * columns * int(tags.BitsAllocated) // 8
        left = stream.size - stream.tell()
        if left < needed:
            raise ValueError("its pixels are truncated" if left else "it ends before its pixels")
        return head


def read_slice(path: Path, *, radiological: bool = False) -> NDArray[np.float32]:
    """Read a CT slice as ``[rows, columns]`` Hounsfield units: slope · stored value + intercept.

    Args:
        path: A DICOM file, uncompressed or in a compression for which pydicom has a decoder.
        radiological: Orient the slice as in :func:`turn_radiological`; otherwise pixels are as stored.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is not a CT slice, is truncated, or has a compression without an installed decoder.
    """
    with open_dicom(path) as stream:
        tags = import_medical("pydicom").dcmread(stream)
        transfer_syntax(tags)
        _check_size(tags)
        slope, intercept = float(tags.RescaleSlope), float(tags.RescaleIntercept)
        stored = tags.pixel_array
        if stored.ndim != 2:
            raise ValueError(f"its pixels have shape {stored.shape}, expected one gray slice")
        values = np.asarray(slope * stored.astype(np.float64) + intercept, dtype=np.float32)
        return turn_radiological(values, tags.ImageOrientationPatient) if radiological else values


def turn_radiological(values: NDArray[np.float32], orientation: Sequence[float]) -> NDArray[np.float32]:
    """Orient an axial slice in the radiological convention: anterior at the top, the patient's right on the left.

    Args:
        values: ``[rows, columns]``.
        orientation: ``ImageOrientationPatient``: the directions of increasing column and row index, with x to the
            patient's left, y to the back and z to the head.

    Raises:
        ValueError: If the slice is not axial.
    """
    directions = np.array([float(one) for one in orientation]).reshape(2, 3)
    along = np.abs(directions).argmax(axis=1).tolist()
    if sorted(along) != [0, 1]:
        raise ValueError(f"its orientation {list(orientation)} is not axial")
    if along == [1, 0]:  # the rows run along the front-back axis
        values, directions = values.T, directions[::-1]
    return np.ascontiguousarray(values[:: int(np.sign(directions[1, 1])), :: int(np.sign(directions[0, 0]))])


def window_values(values: NDArray[np.generic], window: tuple[float, float]) -> NDArray[np.float32]:
    """Map Hounsfield units to gray values in [0, 1]: 0 at and below the lower end of the window, 1 at the upper.

    Example:
        >>> window_values(np.array([-2000.0, -300.0, 400.0]), (-1000, 400)).tolist()
        [0.0, 0.5, 1.0]
    """
    low, high = window
    scaled = (np.asarray(values, dtype=np.float32) - low) / (high - low)
    return np.asarray(np.clip(scaled, 0, 1), dtype=np.float32)


def window_image(values: NDArray[np.generic], window: tuple[float, float]) -> Image.Image:
    """Return :func:`window_values` as an image of mode ``F``.

    Example:
        >>> image = window_image(np.array([[-2000.0, -300.0, 400.0]]), (-1000, 400))
        >>> image.mode, np.asarray(image).tolist()
        ('F', [[0.0, 0.5, 1.0]])
    """
    return Image.fromarray(window_values(values, window))


def check_window(window: Sequence[float]) -> tuple[float, float]:
    """Return the lower and upper end of a window as floats.

    Raises:
        ValueError: If the window is not two numbers, the lower first.
    """
    ends = tuple(float(end) for end in window)
    if len(ends) != 2 or not -np.inf < ends[0] < ends[1] < np.inf:
        raise ValueError(f"window={window!r}: expected two Hounsfield values, the lower first, such as (-1000, 400).")
    return ends[0], ends[1]


def scan_rng(seed: int, scan: str) -> np.random.Generator:
    """Return the random generator of one scan, which does not depend on the other scans.

    Args:
        seed: Seed of the data set.
        scan: Unique name of the scan.
    """
    digest = hashlib.sha256(scan.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest[:16], dtype="<u4").tolist()])


def _check_size(tags: Any) -> tuple[int, int]:
    """Return rows and columns of a gray slice. They are checked, since decoders allocate what a header states."""
    rows, columns = int(tags.Rows), int(tags.Columns)
    frames, channels = int(tags.get("NumberOfFrames") or 1), int(tags.get("SamplesPerPixel") or 1)
    if frames != 1 or channels != 1:
        raise ValueError(f"its pixels are {frames} frames of {channels} channels, expected one gray slice")
    if not 0 < rows * columns <= _MAX_PIXELS:
        raise ValueError(f"its stated size is {rows}×{columns} pixels, expected at most 4096×4096")
    return rows, columns


def transfer_syntax(tags: Any) -> Any:
    """Return the transfer syntax of a DICOM file.

    Raises:
        ValueError: If it is not one that DICOM defines.
    """
    syntax = tags.file_meta.TransferSyntaxUID
    if syntax.type != "Transfer Syntax":
        raise ValueError(f"its transfer syntax is {str(syntax)!r}, which DICOM does not define")
    return syntax


class _DicomFile(BoundedFile):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:  # pydicom reads everything before it inflates a deflated file to any size
            raise ValueError("it is a deflated DICOM file, which is not supported; save it as Explicit VR")
        return super().read(size)


class _CompletedDicom(io.BytesIO):
    """The content of a DICOM file without preamble, with one."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.size = len(content)


@contextmanager
def open_dicom(path: Path, kind: str = "CT slice") -> Iterator[_DicomFile | _CompletedDicom]:
    """Open a DICOM file, and turn the errors of pydicom inside the block into errors that name the file.

    Args:
        path: The file.
        kind: The expected content, for error messages.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it cannot be read.
    """
    errors = import_medical("pydicom").errors
    with wrap_file_errors(path), _DicomFile(path) as stream:
        begin = missing_dicom_start(stream.read(132))
        stream.seek(0)
        try:
            yield stream if begin is None else _CompletedDicom(begin + stream.read(stream.size))
        except (DataFileError, MissingDataError, OSError, MemoryError):
            raise
        except errors.InvalidDicomError as error:
            raise DataFileError(
                f"{path} is not a DICOM file: it has neither the preamble of one nor its first tags. If a program "
                "shows it, save it there as DICOM."
            ) from error
        except (AttributeError, KeyError, IndexError, TypeError) as error:  # truncated files lack tags
            raise DataFileError(f"{path} is truncated or not a {kind} ({error}); get it again.") from error
        except (RuntimeError, NotImplementedError) as error:
            raise DataFileError(
                f"{path} has a compression for which no decoder is installed, or is damaged; pip install pylibjpeg "
                f"pylibjpeg-libjpeg pylibjpeg-openjpeg, or get it again. Error of pydicom: {error}"
            ) from error
        except Exception as error:  # further exceptions of pydicom, mostly undocumented
            raise ValueError(str(error) or type(error).__name__) from error
