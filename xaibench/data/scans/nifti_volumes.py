"""Reading volumes of NIfTI: none that claims or unpacks to more than a scan can be, and all the same way up."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import naming
from xaibench.data.scans.ct_reading import import_medical

#: 512×512×1,024, twice the largest scan of the sets here; as float64 it takes 2 GiB.
_MOST_VOXELS = 2**28
#: What may stand before the first voxel (bytes): the head and its extensions.
_MOST_NOTES = 2**24
#: What may follow the last voxel (bytes).
_SLACK = 2**16
#: Deflate never makes more than this of one byte.
_MOST_UNPACKED = 1032
_GZIP = b"\x1f\x8b"
#: How the head of a NIfTI-1 file ends.
_MAGIC = b"n+1\0"


class Volume(NamedTuple):
    """A scan, or the labels of one.

    Attributes:
        values: ``[slices, rows, columns]``: feet first, each slice as in
            :func:`~xaibench.data.scans.ct_reading.turn_radiological`.
        axes: Where the axes of the file point, such as ``"LPS"``.
        affine: ``[4, 4]`` from (x to the right, y to the front, z up), in voxels, to mm.
    """

    values: NDArray[Any]
    axes: str
    affine: NDArray[np.float64]


def read_volume(path: Path) -> Volume:
    """A NIfTI volume.

    NIfTI stores x (to the right), y (to the front), z, in whatever order and direction its affine says; all of them
    come out the same here, and the same as DICOM, so that nobody can tell the two by how the body lies.

    Memory is asked for when the head of the file has been checked, and for no more than it tells of.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no NIfTI, cut off, has not three axes, or claims or unpacks to more than a scan can be.
    """
    nibabel = import_medical("nibabel")
    with naming(path):
        try:
            stored = nibabel.Nifti1Image.from_bytes(_content(path))
            volume = nibabel.as_closest_canonical(stored)
            axes = "".join(nibabel.aff2axcodes(stored.affine))
            return Volume(np.asarray(volume.dataobj).transpose(2, 1, 0)[:, ::-1, ::-1], axes, volume.affine)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # whatever nibabel and zlib raise: a dozen kinds, few of them documented
            raise ValueError(str(error) or type(error).__name__) from error


def lie_apart(one: Volume, other: Volume) -> bool:
    """Whether two volumes of one shape, turned the same way, were not the same way before: one affine is flipped.

    Files whose axes point the same way belong together voxel by voxel, whatever they say of their place; others do if
    the corners of both are within half a voxel of each other.
    """
    if one.axes == other.axes:
        return False
    far = np.array(one.values.shape[::-1]) - 1
    corners = np.array([[0, 0, 0, 1], [*far, 1]], dtype=np.float64).T
    voxel = np.abs(one.affine[:3, :3]).sum(axis=1)
    return bool((np.abs(((one.affine - other.affine) @ corners)[:3]) > voxel[:, None] / 2).any())


def _content(path: Path) -> bytes:
    """The unpacked file: its head is checked first, its checksum read last, which nibabel never sees."""
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            return _checked(file, os.fstat(file.fileno()).st_size)
        with gzip.GzipFile(fileobj=file) as unpacked:
            return _checked(cast("IO[bytes]", unpacked), _MOST_UNPACKED * os.fstat(file.fileno()).st_size)


def _checked(stream: IO[bytes], most: int) -> bytes:
    """All of a stream that can hold ``most`` bytes."""
    kind = import_medical("nibabel").Nifti1Header
    start = stream.read(kind.template_dtype.itemsize)
    if not start.endswith(_MAGIC):
        raise ValueError("it is no NIfTI-1 volume in one file")
    head = kind(start)
    shape = tuple(int(side) for side in head.get_data_shape())
    said = "×".join(map(str, shape))
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"it has axes {shape}, expected three")
    if math.prod(shape) > _MOST_VOXELS:
        raise ValueError(f"it claims to hold {said} voxels, expected at most {_MOST_VOXELS:,}, as 512×512×1024 are")
    kind_of_voxel = head.get_data_dtype()
    if kind_of_voxel.kind not in "iuf" or kind_of_voxel.itemsize > 8:
        raise ValueError(f"its voxels are {kind_of_voxel}, expected numbers of 64 bits at most")
    offset = int(head.get_data_offset())
    if not len(start) <= offset <= _MOST_NOTES:
        raise ValueError(f"its voxels begin at byte {offset}, expected {len(start)} to {_MOST_NOTES:,}")
    size = offset + math.prod(shape) * kind_of_voxel.itemsize
    if size > most:
        raise ValueError(f"it claims to hold {said} voxels, more than a file of its size can")
    content = start + stream.read(size - len(start))
    if len(content) < size:
        raise ValueError(f"it is cut off: {len(content):,} of {size:,} bytes are there")
    if len(stream.read(_SLACK + 1)) > _SLACK:
        raise ValueError(f"it goes on after the {size:,} bytes that its {said} voxels take")
    return content
