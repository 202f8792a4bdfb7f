"""Reading CT: slices of DICOM in Hounsfield units, and windows of them.

pydicom and nibabel come with the extra ``medical`` and are imported when the first file is read.
"""

from __future__ import annotations

import hashlib
import importlib
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

from xaibench.data.disk.file_readers import BoundedFile, DataFileError, MissingDataError, naming

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
]
#: Of a slice; scanners make 512×512.
_MOST_PIXELS = 4096 * 4096


@dataclass(frozen=True)
class Head:
    """What the head of a CT slice says.

    Attributes:
        path: The file.
        image: ``SOPInstanceUID``.
        series: ``SeriesInstanceUID``.
        z: Position along the body in mm, upwards.
        number: ``InstanceNumber``; 0 if it has none.
        rows: Height in pixels.
        columns: Width in pixels.
        spacing: Distance of rows and of columns in mm.
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
    """``pydicom`` or ``nibabel``.

    Raises:
        ImportError: If it is not installed; says how to.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'Medical images need {module}: pip install "xaibench[medical]".') from error


def dicom_files(folder: Path) -> dict[Path, list[Path]]:
    """The DICOM files (``*.dcm``) below a folder, by the folder they lie in; hidden files are passed over."""
    found: dict[Path, list[Path]] = {}
    for place, folders, names in os.walk(folder):
        folders.sort()
        files = [Path(place, name) for name in sorted(names) if name.lower().endswith(".dcm") and name[0] != "."]
        if files:
            found[Path(place)] = files
    return found


def read_modality(path: Path) -> str:
    """``"CT"`` for a slice of a CT scan.

    Raises:
        DataFileError: If it is no DICOM file, or its head is cut off.
    """
    with _opened(path) as stream:
        return str(import_medical("pydicom").dcmread(stream, stop_before_pixels=True, specific_tags=_TAGS).Modality)


def read_head(path: Path) -> Head:
    """The head of a CT slice; a file that is too short for its pixels is found out without reading them.

    Raises:
        DataFileError: If it is no DICOM file, lacks what a CT slice must say, or is cut off.
    """
    with _opened(path) as stream:
        said = import_medical("pydicom").dcmread(stream, stop_before_pixels=True, specific_tags=_TAGS)
        rows, columns = _size(said)
        spacing = (float(said.PixelSpacing[0]), float(said.PixelSpacing[1]))
        z = float(said.ImagePositionPatient[2])
        if not math.isfinite(z + sum(spacing)):
            raise ValueError(f"its position is {z} mm, its spacing {spacing} mm")
        head = Head(
            path=path,
            image=str(said.SOPInstanceUID),
            series=str(said.SeriesInstanceUID),
            z=z,
            number=int(said.get("InstanceNumber") or 0),
            rows=rows,
            columns=columns,
            spacing=spacing,
        )
        syntax = _syntax(said)
        needed = 1
        if not syntax.is_compressed:
            needed = (8 if syntax.is_implicit_VR else 12) + rows * columns * int(said.BitsAllocated) // 8
        left = stream.size - stream.tell()
        if left < needed:
            raise ValueError("its pixels are cut off" if left else "it ends before its pixels")
        return head


def read_slice(path: Path, *, radiological: bool = False) -> NDArray[np.float32]:
    """``[rows, columns]`` Hounsfield units of a CT slice: slope · stored value + intercept.

    Args:
        path: A DICOM file, compressed in any way that pydicom can undo here.
        radiological: Turn it as :func:`turn_radiological` says; otherwise pixels come as they are stored.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no slice of a CT, cut off, or compressed in a way for which no decoder is installed.
    """
    with _opened(path) as stream:
        said = import_medical("pydicom").dcmread(stream)
        _syntax(said)
        _size(said)
        slope, intercept = float(said.RescaleSlope), float(said.RescaleIntercept)
        stored = said.pixel_array
        if stored.ndim != 2:
            raise ValueError(f"its pixels are {stored.shape}, expected one slice of grey")
        values = np.asarray(slope * stored.astype(np.float64) + intercept, dtype=np.float32)
        return turn_radiological(values, said.ImageOrientationPatient) if radiological else values


def turn_radiological(values: NDArray[np.float32], orientation: Sequence[float]) -> NDArray[np.float32]:
    """An axial slice as radiologists look at it: front of the body on top, the patient's right on the left.

    Args:
        values: ``[rows, columns]``.
        orientation: ``ImageOrientationPatient``: the direction of rising columns and of rising rows, x to the patient's
            left, y to the back, z to the head.

    Raises:
        ValueError: If the slice is not axial.
    """
    directions = np.array([float(one) for one in orientation]).reshape(2, 3)
    along = np.abs(directions).argmax(axis=1).tolist()
    if sorted(along) != [0, 1]:
        raise ValueError(f"its orientation {list(orientation)} is not axial")
    if along == [1, 0]:
        values, directions = values.T, directions[::-1]
    return np.ascontiguousarray(values[:: int(np.sign(directions[1, 1])), :: int(np.sign(directions[0, 0]))])


def window_image(values: NDArray[np.generic], window: tuple[float, float]) -> Image.Image:
    """Grey (mode ``F``) in [0, 1] of Hounsfield units: 0 at the lower end of the window and below, 1 at the upper.

    Example:
        >>> image = window_image(np.array([[-2000.0, -300.0, 400.0]]), (-1000, 400))
        >>> image.mode, np.asarray(image).tolist()
        ('F', [[0.0, 0.5, 1.0]])
    """
    low, high = window
    scaled = (np.asarray(values, dtype=np.float32) - low) / (high - low)
    return Image.fromarray(np.clip(scaled, 0, 1).astype(np.float32))


def check_window(window: Sequence[float]) -> tuple[float, float]:
    """The lower and upper end of a window as floats.

    Raises:
        ValueError: If they are not two numbers, the lower first.
    """
    ends = tuple(float(end) for end in window)
    if len(ends) != 2 or not -np.inf < ends[0] < ends[1] < np.inf:
        raise ValueError(f"window={window!r}: expected two Hounsfield values, the lower first, such as (-1000, 400).")
    return ends[0], ends[1]


def scan_rng(seed: int, scan: str) -> np.random.Generator:
    """The generator for what is drawn from one scan: the same whatever other scans are there.

    Args:
        seed: The set's.
        scan: A name that no other scan has.
    """
    digest = hashlib.sha256(scan.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest[:16], dtype="<u4").tolist()])


def _size(said: Any) -> tuple[int, int]:
    """Rows and columns of one slice of grey: decoders make room for whatever a head claims."""
    rows, columns = int(said.Rows), int(said.Columns)
    frames, channels = int(said.get("NumberOfFrames") or 1), int(said.get("SamplesPerPixel") or 1)
    if frames != 1 or channels != 1:
        raise ValueError(f"its pixels are {frames} frames of {channels} channels, expected one slice of grey")
    if not 0 < rows * columns <= _MOST_PIXELS:
        raise ValueError(f"it claims to be {rows}×{columns} pixels, expected at most 4096×4096")
    return rows, columns


def _syntax(said: Any) -> Any:
    """How the file is written."""
    syntax = said.file_meta.TransferSyntaxUID
    if syntax.type != "Transfer Syntax":
        raise ValueError(f"its transfer syntax is {str(syntax)!r}, which is none of DICOM's")
    return syntax


class _DicomFile(BoundedFile):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:  # pydicom asks so where it would then inflate the whole, to any size
            raise ValueError("it is deflated as a whole, which slices of CT are not; save it as Explicit VR")
        return super().read(size)


@contextmanager
def _opened(path: Path) -> Iterator[_DicomFile]:
    """As :func:`naming`, for what pydicom raises: cut-off files lack tags, and tags are attributes."""
    errors = import_medical("pydicom").errors
    with naming(path), _DicomFile(path) as stream:
        try:
            yield stream
        except (DataFileError, MissingDataError, OSError, MemoryError):
            raise
        except errors.InvalidDicomError as error:
            raise DataFileError(f"{path} is no DICOM file; get it anew.") from error
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise DataFileError(f"{path} is cut off or no CT slice ({error}); get it anew.") from error
        except (RuntimeError, NotImplementedError) as error:
            raise DataFileError(
                f"{path} is compressed in a way for which no decoder is installed, or damaged; pip install pylibjpeg "
                f"pylibjpeg-libjpeg pylibjpeg-openjpeg, or get it anew. pydicom says: {error}"
            ) from error
        except Exception as error:  # a dozen kinds more, few of them documented
            raise ValueError(str(error) or type(error).__name__) from error
