"""Checksum of a file stored inside the file, which detects any changed bit.

The file is first written with a placeholder of zeros in its text metadata; then the zeros are replaced by the SHA-256
of all its bytes. The file remains valid in its format (safetensors, Parquet), and needs no second file that an
interrupted write could separate from it.
"""

from __future__ import annotations

import hashlib

_PREFIX = "sha256 of this file with zeros here: "
_DIGITS = 64

#: Text that a writer puts into the metadata of the file.
PLACEHOLDER = _PREFIX + "0" * _DIGITS


def insert_checksum(data: bytes, stop: int | None = None) -> bytes:
    """Return ``data`` with its checksum in the place of :data:`PLACEHOLDER`.

    Args:
        data: Content of a file that contains :data:`PLACEHOLDER` once.
        stop: End of the part that the checksum covers; None = all of it.

    Example:
        >>> data = insert_checksum(b"one two " + PLACEHOLDER.encode() + b" three")
        >>> has_valid_checksum(data), has_valid_checksum(data.replace(b"two", b"twp")), has_valid_checksum(b"one two")
        (True, False, False)
    """
    start, end = _find_checksum(data[:stop])
    return data[:start] + hashlib.sha256(data[:stop]).hexdigest().encode() + data[end:]


def has_valid_checksum(data: bytes) -> bool:
    """Return whether ``data`` contains its correct checksum."""
    try:
        start, end = _find_checksum(data)
    except ValueError:
        return False
    digest = hashlib.sha256(data[:start])
    digest.update(b"0" * _DIGITS)
    digest.update(memoryview(data)[end:])
    return digest.hexdigest().encode() == data[start:end]


def _find_checksum(data: bytes) -> tuple[int, int]:
    start = data.rindex(_PREFIX.encode()) + len(_PREFIX)
    return start, start + _DIGITS
