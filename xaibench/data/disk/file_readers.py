"""Reading text and markup that others made: whole, or with an error that names the file."""

from __future__ import annotations

import io
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree.ElementTree import Element

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException
from PIL import Image, UnidentifiedImageError


def composed(name: str) -> str:
    """A name with every accent in one character (NFC): macOS unpacks names with it in two, and both are one name.

    Example:
        >>> composed("cafe\u0301") == "caf\u00e9"
        True
    """
    return unicodedata.normalize("NFC", name)


class MissingDataError(FileNotFoundError):
    """A set that is not there; says where it was looked for and how to get it."""

    def __str__(self) -> str:
        return str(self.args[0])


class DataFileError(ValueError):
    """A file of a set that cannot be used; names the file."""


class BoundedFile(io.BufferedReader):
    """A file open for reading that asks for no more memory than it has bytes left.

    Parsers read as many bytes as a file says that it has, which may be made up, and Python makes room for all of them.

    Attributes:
        size: Its bytes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(io.FileIO(path))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes; None or -1 = all that are left."""
        left = max(self.size - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


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
    except (OSError, SyntaxError, ValueError, EOFError, LookupError) as error:  # the last: an encoding that is none
        raise DataFileError(f"{os.fspath(path)} cannot be read ({error}); get the file anew.") from error


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
