"""Geometry of volumes of CT: spacing, orientation and gaps of a stack of slices, and boxes of voxels.

Axes are D (slices, from the feet to the head), H (rows) and W (columns). An orientation is given as nibabel does
(``aff2axcodes``): one letter per axis for the direction in which its index increases, R, L, A, P, S or I. nibabel and
MONAI have the axes of a NIfTI file, x first; arrays and spacing of nnU-Net and SimpleITK have z first, as here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import ParameterError
from xaibench.data.scans.ct_reading import is_transposed, window_values

#: Numbers along the axes D, H and W.
Triple: TypeAlias = tuple[int, int, int]
_T = TypeVar("_T", bound=np.generic)

#: Hounsfield value of air, with which crops are padded beyond the border of a scan.
AIR = -1000.0
#: A step between slices that is larger than the median step by this factor is a gap: slices are missing.
_GAP = 1.5
#: Directions of increasing x, y and z of DICOM, and of decreasing ones.
_LETTERS = ("LPS", "RAI")


class StackGeometry(NamedTuple):
    """Geometry of the slices of a scan.

    Attributes:
        spacing: Distance of neighboring voxels in mm along D, H and W; the median over the slices for D.
        orientation: Directions of the axes D, H and W, such as ``"SPL"``.
        gaps: ``[S - 1]`` bool: whether slices are missing between two neighbors.
        deviation: Largest difference of a step between slices from the median in mm, apart from gaps.
    """

    spacing: tuple[float, float, float]
    orientation: str
    gaps: NDArray[np.bool_]
    deviation: float

    @property
    def is_uniform(self) -> bool:
        """Whether all steps between slices are within 5 % of the median, apart from gaps."""
        return self.deviation <= 0.05 * self.spacing[0]


def measure_stack(
    positions: NDArray[np.float64], orientation: Sequence[float], spacing: Sequence[float]
) -> StackGeometry:
    """Return the geometry of slices that are sorted from the feet to the head.

    Args:
        positions: ``[S, 3]`` positions of the first pixels (``ImagePositionPatient``) in mm.
        orientation: ``ImageOrientationPatient`` of all slices.
        spacing: Row and column spacing in mm.

    Raises:
        ValueError: If the orientation is missing or not axial, there is only one slice, two slices have the same
            position along their normal, or slices are shifted sideways (a tilted gantry).
    """
    directions = np.array([float(one) for one in orientation]).reshape(2, 3)
    if not np.isfinite(directions).all():
        raise ValueError("its slices have no orientation (ImageOrientationPatient), or several")
    is_transposed(orientation)
    if len(positions) < 2:
        raise ValueError("it has a single slice, expected at least two")
    normal = np.cross(*directions)
    steps = np.diff(positions, axis=0)
    along = steps @ (normal * np.sign(normal[2]))
    if not (along > 0).all():
        raise ValueError("its slices are not in one order along their normal and along the body")
    sideways = np.abs(steps @ directions.T).max(axis=0)
    if (sideways > spacing[::-1]).any():
        raise ValueError(f"its slices are shifted sideways by up to {sideways.max():.3g} mm each (a tilted gantry)")
    step = float(np.median(along))
    gaps = along > _GAP * step
    deviation = float(np.abs(along[~gaps] - step).max())
    codes = "S" + "".join(_letter(direction) for direction in directions[::-1])
    return StackGeometry((step, float(spacing[0]), float(spacing[1])), codes, gaps, deviation)


def _letter(direction: NDArray[np.float64]) -> str:
    axis = int(np.abs(direction).argmax())
    return _LETTERS[int(direction[axis] < 0)][axis]


@dataclass(frozen=True)
class Box:
    """A box of voxels in a scan, which may extend beyond its border.

    Attributes:
        origin: Index of the first voxel; negative = before the first voxel of the scan.
        shape: Number of voxels along D, H and W.
    """

    origin: Triple
    shape: Triple

    @classmethod
    def around(cls, low: Sequence[int], high: Sequence[int], shape: Triple) -> Box:
        """Return the box of a shape with the same center as the voxels from ``low`` up to ``high`` (exclusive)."""
        d, h, w = ((first + last - side) // 2 for first, last, side in zip(low, high, shape, strict=True))
        return cls((d, h, w), shape)

    def inside(self, scan: Triple) -> tuple[range, range, range]:
        """Return the indices of its voxels inside of a scan of this shape."""
        d, h, w = (
            range(max(first, 0), max(first, 0, min(first + side, limit)))
            for first, side, limit in zip(self.origin, self.shape, scan, strict=True)
        )
        return d, h, w

    def padding(self, scan: Triple) -> tuple[tuple[int, int], ...]:
        """Return the number of voxels before and after the scan along each axis."""
        return tuple(
            (min(max(-first, 0), side), min(max(first + side - limit, 0), side))
            for first, side, limit in zip(self.origin, self.shape, scan, strict=True)
        )

    def crosses(self, gaps: NDArray[np.bool_]) -> bool:
        """Return whether slices are missing between its slices."""
        return bool(gaps[max(self.origin[0], 0) : max(self.origin[0] + self.shape[0] - 1, 0)].any())

    def fill(self, scan: Triple, read: Callable[[int], NDArray[_T]], padding: _T) -> NDArray[_T]:
        """Return its voxels, read slice by slice.

        Args:
            scan: Shape of the scan.
            read: Returns a slice of the scan ``[rows, columns]``.
            padding: The value of voxels outside of the scan.
        """
        slices, rows, columns = self.inside(scan)
        out: NDArray[Any] = np.full(self.shape, padding)
        top, left = rows.start - self.origin[1], columns.start - self.origin[2]
        for number in slices:
            values = read(number)[rows.start : rows.stop, columns.start : columns.stop]
            out[number - self.origin[0], top : top + len(rows), left : left + len(columns)] = values
        return out


def common_value(values: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return the first of several vectors, such as the orientations of slices; NaN if another one differs from it."""
    rows = np.array(values)
    return np.asarray(rows[0] if np.allclose(rows, rows[0], atol=1e-4) else np.full(rows.shape[1], np.nan))


def window_air(window: tuple[float, float]) -> np.float32:
    """Return the gray value of air under a window, for voxels outside of a scan."""
    return np.float32(window_values(np.array(AIR), window))


def check_crop(crop: Sequence[int] | None) -> Triple | None:
    """Return the shape of crops as a tuple; None = whole scans.

    Raises:
        ParameterError: If these are not three positive integers.
    """
    if crop is None:
        return None
    sides = tuple(crop) if isinstance(crop, Sequence) and not isinstance(crop, str) else ()
    if len(sides) != 3 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ParameterError(
            f"crop={crop!r}: expected the number of slices, rows and columns, such as (32, 64, 64), or None for whole "
            "scans.",
            parameter="crop",
        )
    return sides[0], sides[1], sides[2]
