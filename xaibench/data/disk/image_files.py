"""Reading images and label masks that others made: one rule for depth, transparency and orientation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from xaibench.data.disk.file_readers import BoundedFile, DataFileError, naming

#: Suffixes of the files that count as images, in any case.
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})

#: EXIF orientations that exchange height and width.
_LYING = (5, 6, 7, 8)
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


def is_image(name: str) -> bool:
    """Whether a file of this name counts as an image; hidden ones do not."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def open_image(
    path: str | os.PathLike[str],
    size: int,
    *,
    upright: bool = False,
    scale: float | None = None,
    ground: float = 1.0,
) -> Image.Image:
    """An image, decoded: mode ``RGB``; one of more than 8 bits mode ``F``, grey in [0, 1].

    A JPEG at least twice as large as ``size`` is decoded at a half, quarter or eighth of its size, never below
    ``size``: several times faster, and the same but for the antialiasing of the step down.

    Args:
        path: Any format that Pillow reads, whatever its suffix says.
        size: The side that the image will be scaled to.
        upright: Turn the image as its EXIF orientation says, as every viewer does. The public sets are read as they are
            stored, for so their masks lie.
        scale: The value that is white in a file of more than 8 bits. None = 65,535 for 16 bits, 1 for floating-point
            numbers; whole numbers of 32 bits must state it. It never depends on the values in the file.
        ground: The grey, from 0 (black) to 1 (white), that is seen through transparent pixels.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is truncated or no image, or holds NaN or values outside [0, ``scale``].
    """
    with naming(path), BoundedFile(path) as file, Image.open(file) as image:
        image.draft("RGB", (size, size))
        image.load()
        if upright:
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith("I") or image.mode == "F":
            return _deep(image, path, scale)
        if image.mode in _WITH_ALPHA or "transparency" in image.info:
            return _on_ground(image, ground)
        return image if image.mode == "RGB" else image.convert("RGB")  # convert() would copy it


def _deep(image: Image.Image, path: str | os.PathLike[str], scale: float | None) -> Image.Image:
    """Grey of more than 8 bits as values in [0, 1]."""
    values = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataFileError(f"{os.fspath(path)} holds NaN or infinite values; put numbers in their place.")
    white = scale
    if white is None and image.mode == "F":
        white = 1.0
    elif white is None and (image.mode != "I" or image.format == "PNG"):  # a PNG has 16 bits at most
        white = 65535.0
    if white is None or values.min() < 0 or values.max() > white:
        found = f"{os.fspath(path)} holds values from {values.min():g} to {values.max():g}"
        if white is None:
            raise DataFileError(f"{found} in 32 bits, and nothing says which is white; state it, such as scale=4095.")
        raise DataFileError(f"{found}, expected 0 (black) to {white:g} (white); state the value of white as scale=.")
    return Image.fromarray((values / white).astype(np.float32))


def _on_ground(image: Image.Image, ground: float) -> Image.Image:
    grey = round(255 * ground)
    return Image.alpha_composite(Image.new("RGBA", image.size, (grey, grey, grey, 255)), image.convert("RGBA")).convert(
        "RGB"
    )


def image_size(path: str | os.PathLike[str], *, upright: bool = False) -> tuple[int, int]:
    """``(height, width)`` of an image file, from its head alone.

    Args:
        path: The file.
        upright: As its EXIF orientation turns it.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no image.
    """
    with naming(path), BoundedFile(path) as file, Image.open(file) as image:
        # Pillow itself turns a TIFF, and says its size so.
        lies = upright and image.format != "TIFF" and image.getexif().get(ExifTags.Base.Orientation) in _LYING
        return (image.width, image.height) if lies else (image.height, image.width)


def read_indices(path: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None) -> NDArray[np.uint8]:
    """``[h, w]`` label of each pixel of a palette or 8 bit grey image: the palette's indices, never its colours.

    Args:
        path: The mask file.
        like: An image file whose size the mask must have.

    Raises:
        MissingDataError: If a file is not there.
        DataFileError: If it cannot be read, has colours where labels are expected, or another size than the image.
    """
    with naming(path), BoundedFile(path) as file, Image.open(file) as mask:
        if mask.mode not in ("P", "L", "1"):
            raise DataFileError(
                f"{os.fspath(path)} is a mask with mode {mask.mode!r}; expected labels (P, L or 1). Save it so."
            )
        labels = np.array(mask.convert("L") if mask.mode == "1" else mask, dtype=np.uint8)
    if like is not None:
        check_same_size(labels, path, like)
    return labels


def check_same_size(
    mask: NDArray[np.generic], path: str | os.PathLike[str], image: str | os.PathLike[str], *, upright: bool = False
) -> None:
    """A mask ``[h, w]`` read from ``path`` has the size of the file ``image``, turned upright or as it is stored.

    Raises:
        DataFileError: If it has not; names both files and sizes.
    """
    expected = image_size(image, upright=upright)
    if mask.shape == expected:
        return
    advice = "one of them is of another version."
    if upright and mask.shape == image_size(image):
        advice = (
            "the mask lies as the image is stored, the image is shown as its EXIF orientation turns it. Turn the mask, "
            "or remove the orientation from the image."
        )
    raise DataFileError(
        f"{os.fspath(path)} is {mask.shape[0]}×{mask.shape[1]}, but its image {Path(image).name} is "
        f"{expected[0]}×{expected[1]} (height×width); {advice}"
    )
