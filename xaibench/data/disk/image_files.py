"""Reading image files and label masks, with fixed rules for bit depth, transparency and orientation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from xaibench.data.disk.file_readers import DataFileError, opened_image

#: Suffixes of image files, in lower case.
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})

#: Suffixes of DICOM and NIfTI files, in lower case.
MEDICAL_SUFFIXES = (".dcm", ".dicom", ".nii", ".nii.gz")

#: EXIF orientations that swap height and width.
_TRANSPOSED = (5, 6, 7, 8)
#: Value representations of the first tag of a DICOM file: lengths, codes, dates, times and identifiers.
_FIRST_REPRESENTATIONS = (b"UL", b"CS", b"DA", b"TM", b"UI")
#: The first tag is one of group 8 up to SOPInstanceUID.
_LAST_FIRST_TAG = 0x18
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


def is_image(name: str) -> bool:
    """Return whether a file name has an image suffix and is not hidden."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def is_medical(path: Path) -> bool:
    """Return whether a file is DICOM or NIfTI: by its suffix, or by its content, since DICOM files often have none."""
    name = path.name.lower()
    if name.startswith(".") or is_image(name) or name == "dicomdir":  # a DICOMDIR lists the files of a disk
        return False
    if name.endswith(MEDICAL_SUFFIXES):
        return True
    with open(path, "rb") as file:
        start = file.read(132)
    return start[128:] == b"DICM" or missing_dicom_start(start) is not None


def missing_dicom_start(start: bytes) -> bytes | None:
    """Return what a DICOM file lacks at its beginning, which older programs and network transfers leave out.

    Args:
        start: The first bytes of a file.

    Returns:
        The preamble and, if the file states none, the transfer syntax: little endian, with value representations
        (explicit) or without (implicit). None if the file does not begin with the first tags of a DICOM file.

    Example:
        >>> missing_dicom_start(b"a text"), missing_dicom_start(bytes.fromhex("0800050043530a00"))[128:132]
        (None, b'DICM')
    """
    group, element = int.from_bytes(start[:2], "little"), int.from_bytes(start[2:4], "little")
    is_explicit = start[4:6] in _FIRST_REPRESENTATIONS
    preamble = bytes(128) + b"DICM"
    if len(start) < 8 or start[128:132] == b"DICM":
        return None
    if (group, element) == (2, 0) and is_explicit:
        return preamble
    if group != 8 or element > _LAST_FIRST_TAG or not (is_explicit or int.from_bytes(start[4:8], "little") <= 64):
        return None
    syntax = b"1.2.840.10008.1.2.1\0" if is_explicit else b"1.2.840.10008.1.2\0"
    tag = b"\x02\0\x10\0UI" + len(syntax).to_bytes(2, "little") + syntax
    return preamble + b"\x02\0\0\0UL\x04\0" + len(tag).to_bytes(4, "little") + tag


def open_image(
    path: str | os.PathLike[str],
    size: int,
    *,
    upright: bool = False,
    scale: float | None = None,
    ground: float = 1.0,
    window: tuple[float, float] | None = None,
    page: int = 0,
) -> Image.Image:
    """Decode an image to mode ``RGB``, or to mode ``F`` (gray in [0, 1]) if it has more than 8 bits.

    A JPEG at least twice as large as ``size`` is decoded at a half, quarter or eighth of its size, never below
    ``size``. That is several times faster and differs only in the antialiasing.

    Args:
        path: A file in any format that Pillow reads; the suffix is ignored.
        size: Height and width to which the caller will resize the image.
        upright: Apply the EXIF orientation, as image viewers do. It is not applied to the public data sets, whose masks
            fit the images as stored.
        scale: The value of white in a file with more than 8 bits. None = 65,535 for 16 bits and 1 for floating-point
            numbers; required for 32-bit integers. It never depends on the values in the file.
        ground: Gray level behind transparent pixels, from 0 (black) to 1 (white).
        window: The values of black and white in a file with more than 8 bits, instead of 0 and ``scale``; values
            outside are clipped.
        page: Number of the page of a TIFF file (:func:`list_pages`).

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If the file is truncated, is not an image, or has NaN or values outside [0, ``scale``].
    """
    with opened_image(path) as image:
        image.seek(page)
        image.draft("RGB", (size, size))
        image.load()
        if upright:
            ImageOps.exif_transpose(image, in_place=True)
        return convert_image(image, os.fspath(path), scale=scale, ground=ground, window=window)


def convert_image(
    image: Image.Image,
    name: str,
    *,
    scale: float | None = None,
    ground: float = 1.0,
    window: tuple[float, float] | None = None,
) -> Image.Image:
    """Convert a decoded image to mode ``RGB``, or to ``F`` (gray in [0, 1]) if it has more than 8 bits.

    Args:
        image: Any image of Pillow.
        name: Its file, for error messages.
        scale: As in :func:`open_image`.
        ground: As in :func:`open_image`.
        window: As in :func:`open_image`.

    Raises:
        DataFileError: If it has NaN or values outside [0, ``scale``].
    """
    if image.mode.startswith("I") or image.mode == "F":
        return _scale_high_depth(image, name, scale, window)
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        gray = round(255 * ground)
        behind = Image.new("RGBA", image.size, (gray, gray, gray, 255))
        return Image.alpha_composite(behind, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")  # convert() would copy it


def _scale_high_depth(
    image: Image.Image, name: str, scale: float | None, window: tuple[float, float] | None
) -> Image.Image:
    """Return a gray image with more than 8 bits as values in [0, 1]."""
    values = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataFileError(f"{name} has NaN or infinite values; replace them by numbers.")
    if window is not None:
        low, high = window
        return Image.fromarray(np.clip((values - low) / (high - low), 0, 1).astype(np.float32))
    white = scale
    if white is None and image.mode == "F":
        white = 1.0
    elif white is None and (image.mode != "I" or image.format == "PNG"):  # a PNG has 16 bits at most
        white = 65535.0
    if white is None or values.min() < 0 or values.max() > white:
        extent = f"{name} has values from {values.min():g} to {values.max():g}"
        if white is None:
            raise DataFileError(
                f"{extent} in 32 bits, so the value of white is not known; give it, such as scale=4095, or the range "
                "as window=(center, width)."
            )
        raise DataFileError(
            f"{extent}, expected 0 (black) to {white:g} (white); give the value of white as scale=, or the range as "
            "window=(center, width)."
        )
    return Image.fromarray((values / white).astype(np.float32))


def list_pages(path: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the images in a TIFF file: its pages, except pages of another size, such as previews.

    Args:
        path: The file.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it is not an image.
    """
    with opened_image(path) as image:
        sizes = []
        for page in range(getattr(image, "n_frames", 1)):
            image.seek(page)
            sizes.append(image.size)
    return [page for page, size in enumerate(sizes) if size == sizes[0]]


def image_size(path: str | os.PathLike[str], *, upright: bool = False) -> tuple[int, int]:
    """Return ``(height, width)`` of an image file from its header.

    Args:
        path: The file.
        upright: Apply the EXIF orientation.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it is not an image.
    """
    with opened_image(path) as image:
        # Pillow itself applies the orientation of a TIFF, and its size is that of the rotated image.
        orientation = image.getexif().get(ExifTags.Base.Orientation) if upright and image.format != "TIFF" else None
        return (image.width, image.height) if orientation in _TRANSPOSED else (image.height, image.width)


def read_indices(path: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None) -> NDArray[np.uint8]:
    """Return ``[h, w]`` the label of each pixel of a palette or 8-bit gray image: palette indices, not colors.

    Args:
        path: The mask file.
        like: An image file whose size the mask must have.

    Raises:
        MissingDataError: If a file does not exist.
        DataFileError: If the mask cannot be read, has colors instead of labels, or differs in size from the image.
    """
    with opened_image(path) as mask:
        if mask.mode not in ("P", "L", "1"):
            raise DataFileError(
                f"{os.fspath(path)} is a mask with mode {mask.mode!r}, expected labels (mode P, L or 1); convert it."
            )
        labels = np.array(mask.convert("L") if mask.mode == "1" else mask, dtype=np.uint8)
    if like is not None:
        check_same_size(labels, path, like)
    return labels


def check_same_size(
    mask: NDArray[np.generic], path: str | os.PathLike[str], image: str | os.PathLike[str], *, upright: bool = False
) -> None:
    """Check that a mask ``[h, w]`` read from ``path`` has the size of the file ``image``.

    Raises:
        DataFileError: If the sizes differ.
    """
    expected = image_size(image, upright=upright)
    if mask.shape == expected:
        return
    advice = "they are of different versions."
    if upright and mask.shape == image_size(image):
        advice = (
            "the mask fits the image before its EXIF orientation is applied. Rotate the mask, or remove the "
            "orientation from the image."
        )
    raise DataFileError(
        f"{os.fspath(path)} is {mask.shape[0]}×{mask.shape[1]}, but its image {Path(image).name} is "
        f"{expected[0]}×{expected[1]} (height×width); {advice}"
    )
