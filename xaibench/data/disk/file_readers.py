"""Reading images, masks and markup that others made: whole, or with an error that names the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

#: Suffixes of the files that count as images, in any case.
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})


class MissingDataError(FileNotFoundError):
    """A set that is not there; says where it was looked for and how to get it."""

    def __str__(self) -> str:
        return str(self.args[0])


class DataFileError(ValueError):
    """A file of a set that cannot be used; names the file."""


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong with a file inside the block is said with its name.

    Raises:
        MissingDataError: If the file is not there.
        DataFileError: If it cannot be read or understood.
    """
    try:
        yield
    except (DataFileError, MissingDataError):
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{os.fspath(path)} is missing; the download is not whole.") from error
    except UnidentifiedImageError as error:
        raise DataFileError(f"{os.fspath(path)} is no image that Pillow knows; get the file anew.") from error
    except Image.DecompressionBombError as error:
        raise DataFileError(f"{os.fspath(path)} is larger than is safe to decode ({error}) Scale it down.") from error
    except DefusedXmlException as error:
        raise DataFileError(
            f"{os.fspath(path)} declares a document type or entities, refused as unsafe; get the file anew."
        ) from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataFileError(f"{os.fspath(path)} cannot be read ({error}); get the file anew.") from error


def is_image(name: str) -> bool:
    """Whether a file of this name counts as an image; hidden ones do not."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def open_image(path: str | os.PathLike[str], size: int, *, mode: str = "RGB") -> Image.Image:
    """An image in ``mode``, decoded.

    A JPEG at least twice as large as ``size`` is decoded at a half, quarter or eighth of its size, never below
    ``size``: several times faster, and the same but for the antialiasing of the step down.

    Args:
        path: Any format that Pillow reads, whatever its suffix says.
        size: The side that the image will be scaled to.
        mode: ``"RGB"`` or ``"L"``. Palettes and alpha are resolved; 16 bit grey becomes 8 bit by scaling its range.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is truncated or no image.
    """
    with naming(path), Image.open(path) as image:
        image.draft(mode, (size, size))
        image.load()
        if image.mode == mode:
            return image  # convert() would copy it
        return (_eight_bit(image) if image.mode.startswith("I") else image).convert(mode)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bit as 8 bit; Pillow's own conversion would clip at 255 what scanners write."""
    values = np.asarray(image, dtype=np.float64)
    top = 65535.0 if values.max() > 255 else 255.0
    return Image.fromarray((values * (255.0 / top)).round().clip(0, 255).astype(np.uint8))


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """``(height, width)`` of an image file, from its head alone.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no image.
    """
    with naming(path), Image.open(path) as image:
        return image.height, image.width


def read_indices(path: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None) -> NDArray[np.uint8]:
    """``[h, w]`` label of each pixel of a palette or 8 bit grey image: the palette's indices, never its colours.

    Args:
        path: The mask file.
        like: An image file whose size the mask must have.

    Raises:
        MissingDataError: If a file is not there.
        DataFileError: If it cannot be read, has colours where labels are expected, or another size than the image.
    """
    with naming(path), Image.open(path) as mask:
        if mask.mode not in ("P", "L", "1"):
            raise DataFileError(
                f"{os.fspath(path)} is a mask with mode {mask.mode!r}; expected labels (P, L or 1). Save it so."
            )
        labels = np.array(mask.convert("L") if mask.mode == "1" else mask, dtype=np.uint8)
    if like is not None:
        check_same_size(labels, path, like)
    return labels


def check_same_size(mask: NDArray[np.generic], path: str | os.PathLike[str], image: str | os.PathLike[str]) -> None:
    """A mask ``[h, w]`` read from ``path`` has the size of the file ``image``.

    Raises:
        DataFileError: If it has not; names both files and sizes.
    """
    expected = image_size(image)
    if mask.shape != expected:
        raise DataFileError(
            f"{os.fspath(path)} is {mask.shape[0]}×{mask.shape[1]}, but its image {Path(image).name} is "
            f"{expected[0]}×{expected[1]} (height×width); one of them is of another version."
        )


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a text file that are not blank, without the space around them.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no text.
    """
    with naming(path), open(path, encoding="utf-8-sig") as stream:
        return [line.strip() for line in stream if line.strip()]


def read_xml(path: str | os.PathLike[str]) -> Element:
    """The root of an XML file. Entities are refused: they can make a small file fill the memory, or read other files.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is no XML, or has a document type that declares entities.
    """
    with naming(path), open(path, "rb") as stream:
        root: Element = ElementTree.parse(stream, forbid_dtd=True).getroot()
        return root
