"""Reading the user's own image files: pictures of any bit depth, DICOM and NIfTI."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from xaibench.data.disk.file_readers import DataFileError
from xaibench.data.disk.image_files import image_size, is_image, list_pages, open_image
from xaibench.data.disk.image_lists import PATIENT, ImageEntry
from xaibench.data.scans.ct_reading import check_center_width
from xaibench.data.scans.medical_images import MedicalHeader, file_version, open_medical, read_medical_header


@dataclass(frozen=True)
class ImageReader:
    """A picklable reader of image files, with the options of the user.

    Attributes:
        scale: The value of white in pictures with more than 8 bits, such as 4095. None = 65,535 for 16 bits, 1 for
            floating-point numbers.
        ground: Gray level behind transparent pixels, from 0 (black) to 1 (white).
        window: ``(center, width)`` of the values shown from black to white, in DICOM and NIfTI files and in gray
            pictures with more than 8 bits; a string ``"40,400"`` is accepted. None = the window of the file; without
            one, the range of values that the file can store (for NIfTI: the range of values of the volume).
        slices: Numbers of the slices of a NIfTI volume, the frames of a DICOM file and the pages of a TIFF file that
            are images, from 0; a string ``"10,11"`` is accepted. None = all.

    Raises:
        ValueError: If an option is out of range.
    """

    scale: float | None = None
    ground: float = 1.0
    window: str | Sequence[float] | None = None
    slices: str | Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < np.inf:
            raise ValueError(f"scale={self.scale!r}: expected the value of white, such as 4095, or None.")
        if not 0 <= self.ground <= 1:
            raise ValueError(f"ground={self.ground!r}: expected a gray level from 0 (black) to 1 (white).")
        _ = self._ends, self._chosen

    def __call__(self, file: Path, size: int, frame: int | None = None) -> Image.Image:
        """Read an image, in mode ``RGB``, or ``F`` (gray in [0, 1]). The EXIF orientation is applied.

        Args:
            file: The file.
            size: Height and width to which the caller will resize the image.
            frame: Number of the image in a file with several images.

        Raises:
            MissingDataError: If the file does not exist.
            DataFileError: If it cannot be read.
            ImportError: If it is a DICOM or NIfTI file, and the package that reads it is missing.
        """
        if is_image(file.name):
            return open_image(
                file, size, upright=True, scale=self.scale, ground=self.ground, window=self._ends, page=frame or 0
            )
        return open_medical(file, frame, self._ends)

    def frames(self, file: Path) -> Sequence[int] | None:
        """Return the numbers of the images in a file; None for a file with a single image, empty for one without.

        Raises:
            DataFileError: If the header cannot be read, or the file lacks one of ``slices``.
        """
        known = self._list_frames(file)
        if self._chosen is None or not known:
            return known
        if outside := [number for number in self._chosen if number not in known]:
            raise DataFileError(
                f"{file} has the slices 0 to {known[-1]}, but slices={self.slices!r} names {outside[0]}."
            )
        return self._chosen

    def _list_frames(self, file: Path) -> Sequence[int] | None:
        """Return the numbers of all images in a file; None for a file with a single image."""
        if is_image(file.name):
            pages = list_pages(file) if file.suffix.lower() in (".tif", ".tiff") else []
            return pages if len(pages) > 1 else None
        count = _header(file).frames
        return None if count is None else range(count)

    def size_of(self, file: Path) -> tuple[int, int]:
        """Return ``(height, width)`` from the header of a file.

        Raises:
            DataFileError: If the header cannot be read.
        """
        return image_size(file, upright=True) if is_image(file.name) else _header(file).size

    def group_patients(self, folder: Path, images: Sequence[ImageEntry]) -> list[ImageEntry]:
        """Return the images, with DICOM files grouped by ``PatientID`` where no other group is known.

        Identifiers are not used if all of them are equal, as in data sets from which they were removed.
        """
        of_image = {
            image.file: _header(folder / image.file).patient
            for image in images
            if image.group is None and not is_image(image.file)
        }
        if len(set(of_image.values())) < 2:
            return list(images)
        return [
            dataclasses.replace(image, group=f"{PATIENT}{patient}") if (patient := of_image.get(image.file)) else image
            for image in images
        ]

    @functools.cached_property
    def _ends(self) -> tuple[float, float] | None:
        return None if self.window is None else check_center_width(self.window)

    @functools.cached_property
    def _chosen(self) -> tuple[int, ...] | None:
        if self.slices is None:
            return None
        given = self.slices.split(",") if isinstance(self.slices, str) else self.slices
        try:
            numbers = tuple(int(one) for one in given)
        except (TypeError, ValueError):
            numbers = ()
        if not numbers or len(set(numbers)) != len(numbers):
            raise ValueError(f"slices={self.slices!r}: expected different numbers from 0, such as [40, 41], or None.")
        return numbers


@functools.lru_cache(maxsize=2**14)
def _cached_header(file: Path, version: tuple[int, int]) -> MedicalHeader:
    return read_medical_header(file)


def _header(file: Path) -> MedicalHeader:
    return _cached_header(file, file_version(file))
