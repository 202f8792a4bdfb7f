"""Reading text, XML and array files, with errors that name the file and a bound on the unpacked size."""

from __future__ import annotations

import codecs
import io
import math
import os
import struct
import tokenize
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any
from xml.etree.ElementTree import Element

import numpy as np
from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from xaibench.core.files import check_regular

#: Formats of image files that are opened. Pillow also has readers that run other programs (EPS) or are rarely tested.
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM")

#: What libraries raise for damaged files: NumPy tokenizes headers as Python, zip has errors of its own (a
#: ``RuntimeError`` for encrypted members), encodings are looked up, and deep nesting recurses.
DAMAGED_FILE_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, RuntimeError, OverflowError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def to_nfc(name: str) -> str:
    """Normalize a name to Unicode NFC. macOS unpacks accented names in decomposed form (NFD), which must match too.

    Example:
        >>> to_nfc("cafe\u0301") == "caf\u00e9"
        True
    """
    return unicodedata.normalize("NFC", name)


def legible(name: str) -> str:
    r"""Replace the bytes of a file name that are not UTF-8 by their codes, so that it can be printed and stored.

    Example:
        >>> legible("caf\udce9.png")
        'caf\\xe9.png'
    """
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


class MissingDataError(FileNotFoundError):
    """A data set or file is missing; the message says where it was expected and how to get it.

    Attributes:
        download: Size and folder of the download that ``download=True`` makes; empty if there is none.
    """

    download = ""

    def __str__(self) -> str:
        return str(self.args[0])


class DataFileError(ValueError):
    """A file of a data set cannot be used; the message names the file."""


class BoundedFile(io.BufferedReader):
    """A file opened for reading whose ``read`` never allocates more memory than the file has bytes left.

    Parsers read as many bytes as a header states, which may be forged, and Python allocates all of them first.

    Attributes:
        size: File size in bytes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_regular(path)
        super().__init__(io.FileIO(path))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes; None or -1 = all that are left."""
        left = max(self.size - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


class ContentSizeError(ValueError):
    """A file states more content than may be read."""


def largest_size() -> float:
    """Return how many bytes a file may take in memory: ``XAIBENCH_MAX_GB`` (an environment variable, default 4).

    Raises:
        ValueError: If the variable is not a number.
    """
    given = os.environ.get("XAIBENCH_MAX_GB") or "4"
    try:
        return float(given) * 1e9
    except ValueError as error:
        raise ValueError(f"XAIBENCH_MAX_GB={given!r}: expected a number of gigabytes.") from error


def check_size(size: int, what: str) -> None:
    """Refuse content that would take more memory than :func:`largest_size`.

    Headers state sizes, which may be forged, and readers allocate them first.

    Args:
        size: Stated size in bytes.
        what: Its description, such as ``"512×512×100 voxels"``.

    Raises:
        ContentSizeError: If it is larger.
    """
    if size > largest_size():
        raise ContentSizeError(
            f"it states {what}, {size:,} bytes in memory, expected at most {largest_size():,.0f}; set the environment "
            "variable XAIBENCH_MAX_GB to allow more"
        )


def read_array_headers(path: str | os.PathLike[str]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return ``{name: (shape, dtype)}`` of the arrays in an ``.npz`` file; of an ``.npy`` file, with the name ``""``.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it is not such a file, or states too much content (:func:`check_size`).
    """
    with wrap_file_errors(path), BoundedFile(path) as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            headers = {"": _read_array_header(file)}
        else:
            headers = {}
            with zipfile.ZipFile(file) as archive:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        headers[name.removesuffix(".npy")] = _read_array_header(member)
        shapes = ", ".join("×".join(map(str, shape)) for shape, _ in headers.values())
        check_size(sum(math.prod(shape) * kind.itemsize for shape, kind in headers.values()), f"{shapes} values")
        return headers


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name; that of an ``.npy`` file has the name ``""``.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: As for :func:`read_array_headers`, or if the file is damaged. Pickled objects are refused.
    """
    headers = read_array_headers(path)
    with wrap_file_errors(path):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in headers}


def _read_array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    if any(side < 0 for side in shape):
        raise ValueError(f"its header states the shape {list(shape)}")
    return shape, kind


@contextmanager
def wrap_file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors of reading a file inside the block into errors that name the file.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it cannot be read or parsed.
    """
    try:
        yield
    except (DataFileError, MissingDataError):
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{os.fspath(path)} is missing; the download is incomplete.") from error
    except UnidentifiedImageError as error:
        raise DataFileError(f"{os.fspath(path)} is not an image that Pillow reads; get the file again.") from error
    except ContentSizeError as error:
        raise DataFileError(f"{os.fspath(path)} cannot be read ({error}).") from error
    except Image.DecompressionBombError as error:
        raise DataFileError(
            f"{os.fspath(path)} is too large to decode safely ({error}) Scale it down, or raise "
            "PIL.Image.MAX_IMAGE_PIXELS."
        ) from error
    except DefusedXmlException as error:
        raise DataFileError(
            f"{os.fspath(path)} declares a document type or entities, which is unsafe; get the file again."
        ) from error
    except DAMAGED_FILE_ERRORS as error:
        raise DataFileError(f"{os.fspath(path)} cannot be read ({error}); get the file again.") from error


@contextmanager
def opened_image(path: str | os.PathLike[str]) -> Iterator[Image.Image]:
    """Open an image file of one of :data:`IMAGE_FORMATS`, with the errors of :func:`wrap_file_errors`."""
    with wrap_file_errors(path), BoundedFile(path) as file, Image.open(file, formats=IMAGE_FORMATS) as image:
        yield image


def text_encoding(path: str | os.PathLike[str]) -> str:
    """Return the encoding of a table: UTF-8; UTF-16, if there is a byte order mark; otherwise Windows-1252.

    Excel writes tables in all of them.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it cannot be read.
    """
    with wrap_file_errors(path), open(path, "rb") as stream:
        if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        stream.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            while block := stream.read(2**20):
                decoder.decode(block)
        except UnicodeDecodeError:
            return "cp1252"
        return "utf-8-sig"


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the stripped lines of a text file that are not blank.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it is not a text file.
    """
    with wrap_file_errors(path), open(path, encoding="utf-8-sig") as stream:
        return [line.strip() for line in stream if line.strip()]


def read_xml(path: str | os.PathLike[str]) -> Element:
    """Return the root of an XML file. Entities are rejected, since they can exhaust the memory or read other files.

    Raises:
        MissingDataError: If the file does not exist.
        DataFileError: If it is not XML, or has a document type that declares entities.
    """
    with wrap_file_errors(path), open(path, "rb") as stream:
        root: Element = ElementTree.parse(stream, forbid_dtd=True).getroot()
        return root
