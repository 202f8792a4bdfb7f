"""Reading NIfTI volumes, with limits on their size and in a common orientation."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import DataFileError, check_size, wrap_file_errors
from xaibench.data.scans.ct_reading import import_medical

#: Maximum number of bytes before the first voxel: the header and its extensions.
_MAX_OFFSET = 2**24
#: Maximum number of bytes after the last voxel.
_MAX_TRAILER = 2**16
#: Maximum compression ratio of deflate.
_MAX_RATIO = 1032
_GZIP = b"\x1f\x8b"
#: Last bytes of the header of a NIfTI-1 file.
_MAGIC = b"n+1\0"


class VolumeHeader(NamedTuple):
    """Header of a NIfTI volume.

    Attributes:
        shape: ``(slices, rows, columns)`` of the values that :func:`read_volume` returns.
        axes: Directions of the axes in the file, such as ``"LPS"``.
        affine: ``[4, 4]`` map from voxel coordinates (x to the right, y to the front, z up) to mm.
        window: Range of values to display (``cal_min``, ``cal_max``); None if the header has none.
    """

    shape: tuple[int, int, int]
    axes: str
    affine: NDArray[np.float64]
    window: tuple[float, float] | None = None

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distance of neighboring slices, rows and columns in mm."""
        x, y, z = np.sqrt((self.affine[:3, :3] ** 2).sum(axis=0)).tolist()
        return z, y, x


class Volume(NamedTuple):
    """A scan or its label volume.

    Attributes:
        values: ``[slices, rows, columns]``, from the feet to the head, each slice oriented as in
            :func:`~xaibench.data.scans.ct_reading.turn_radiological`.
        header: Its header.
    """

    values: NDArray[Any]
    header: VolumeHeader


def read_volume(path: Path) -> Volume:
    """Read a NIfTI volume.

    The axes of a NIfTI file may have any order and direction, given by its affine. Volumes are reoriented to the
    convention of the DICOM slices, so that the orientation does not reveal the source of a scan.

    Memory is allocated after the header has been checked, and only as much as the header states.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is not NIfTI, is truncated, is not 3-D, or is implausibly large.
    """
    nibabel = import_medical("nibabel")
    with wrap_file_errors(path):
        try:
            stored = nibabel.Nifti1Image.from_bytes(_read_content(path))
            values = np.asarray(nibabel.as_closest_canonical(stored).dataobj)
            values = values.reshape(values.shape[:3])
            return Volume(values.transpose(2, 1, 0)[:, ::-1, ::-1], _make_header(stored.header))
        except (OSError, MemoryError, DataFileError):
            raise
        except Exception as error:  # nibabel and zlib raise many exceptions, mostly undocumented
            raise ValueError(str(error) or type(error).__name__) from error


def read_volume_header(path: Path) -> VolumeHeader:
    """Read the header of a NIfTI volume, without its voxels.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is not NIfTI, is not 3-D, or is implausibly large.
    """
    nibabel = import_medical("nibabel")
    with wrap_file_errors(path), _open_unpacked(path) as (stream, limit):
        try:
            start, _ = _read_start(path, stream, limit)
            return _make_header(nibabel.Nifti1Header(start))
        except (OSError, MemoryError, DataFileError):
            raise
        except Exception as error:  # nibabel raises errors of many types for damaged files
            raise ValueError(str(error) or type(error).__name__) from error


def _make_header(head: Any) -> VolumeHeader:
    nibabel = import_medical("nibabel")
    stored, shape = head.get_best_affine(), head.get_data_shape()[:3]
    order = nibabel.io_orientation(stored)
    sides = {int(axis): int(side) for axis, side in zip(order[:, 0], shape, strict=True)}
    low, high = float(head["cal_min"]), float(head["cal_max"])
    return VolumeHeader(
        (sides[2], sides[1], sides[0]),
        "".join(nibabel.aff2axcodes(stored)),
        stored @ nibabel.orientations.inv_ornt_aff(order, shape),
        (low, high) if low < high else None,
    )


def are_misaligned(one: VolumeHeader, other: VolumeHeader) -> bool:
    """Return whether two volumes of the same shape cover different regions, because one affine is flipped.

    Volumes whose axes point in the same directions are always aligned, regardless of their origins. Other volumes are
    aligned if the corners of both are within half a voxel of each other.
    """
    if one.axes == other.axes:
        return False
    far = np.array(one.shape[::-1]) - 1
    corners = np.array([[0, 0, 0, 1], [*far, 1]], dtype=np.float64).T
    voxel = np.abs(one.affine[:3, :3]).sum(axis=1)
    return bool((np.abs(((one.affine - other.affine) @ corners)[:3]) > voxel[:, None] / 2).any())


def _read_content(path: Path) -> bytes:
    """Read and decompress a file. The header is checked first, the checksum (which nibabel ignores) last."""
    with _open_unpacked(path) as (stream, limit):
        start, size = _read_start(path, stream, limit)
        content = start + stream.read(size - len(start))
        if len(content) < size:
            raise ValueError(f"it is truncated: it has {len(content):,} of {size:,} bytes")
        if len(stream.read(_MAX_TRAILER + 1)) > _MAX_TRAILER:
            raise ValueError(f"it continues after the {size:,} bytes that its header states")
        return content


@contextmanager
def _open_unpacked(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Open a file, decompressed if it is packed, and yield it with the largest number of bytes that it can have."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        if not packed:
            yield file, size
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast("IO[bytes]", unpacked), _MAX_RATIO * size


def _read_start(name: Path, stream: IO[bytes], limit: int) -> tuple[bytes, int]:
    """Return the header of a stream of at most ``limit`` bytes, and the number of bytes up to the last voxel."""
    kind = import_medical("nibabel").Nifti1Header
    start = stream.read(kind.template_dtype.itemsize)
    if not start.endswith(_MAGIC):
        raise ValueError("it is not a NIfTI-1 volume in a single file")
    head = kind(start)
    shape = tuple(int(side) for side in head.get_data_shape())
    size_text = "×".join(map(str, shape))
    if len(shape) < 3 or any(side != 1 for side in shape[3:]):
        advice = (
            "save it as a picture, or with a third axis of length 1" if len(shape) < 3 else "give one file per volume"
        )
        raise DataFileError(f"{name} has the shape {shape}, expected three axes (further ones of length 1); {advice}.")
    if min(shape) < 1:
        raise ValueError(f"it has shape {shape}, expected three axes")
    check_size(8 * math.prod(shape), f"{size_text} voxels")  # as float64
    kind_of_voxel = head.get_data_dtype()
    if kind_of_voxel.kind not in "iuf" or kind_of_voxel.itemsize > 8:
        raise ValueError(f"its voxels are {kind_of_voxel}, expected numbers with at most 64 bits")
    offset = int(head.get_data_offset())
    if not len(start) <= offset <= _MAX_OFFSET:
        raise ValueError(f"its voxels begin at byte {offset}, expected {len(start)} to {_MAX_OFFSET:,}")
    size = offset + math.prod(shape) * kind_of_voxel.itemsize
    if size > limit:
        raise ValueError(f"its header states {size_text} voxels, more than a file of its size can contain")
    return start, size
