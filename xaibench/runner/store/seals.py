"""A seal: the checksum of a file, within the file, so that a change of any bit of it is seen before any of it is used.

The file is written with a seal of zeros; the checksum of all its bytes then takes the place of the zeros. Where the
format has a place for notes in plain text, a sealed file is still a sound file of its format.
"""

from __future__ import annotations

import hashlib

_WORD = "sha256 of this file with zeros here: "
_DIGITS = 64

#: What a writer puts among the notes of a file that is to be sealed.
BLANK = _WORD + "0" * _DIGITS


def sealed(data: bytes, stop: int | None = None) -> bytes:
    """``data`` with its checksum in the place of :data:`BLANK`.

    Args:
        data: A file that holds :data:`BLANK` once.
        stop: Where the sealed part ends; None = all of it.

    Example:
        >>> whole = sealed(b"one two " + BLANK.encode() + b" three")
        >>> is_whole(whole), is_whole(whole.replace(b"two", b"twp")), is_whole(b"one two three")
        (True, False, False)
    """
    start, end = _place(data[:stop])
    return data[:start] + hashlib.sha256(data[:stop]).hexdigest().encode() + data[end:]


def is_whole(data: bytes) -> bool:
    """Whether the bytes carry a seal that is theirs."""
    try:
        start, end = _place(data)
    except ValueError:
        return False
    digest = hashlib.sha256(data[:start])
    digest.update(b"0" * _DIGITS)
    digest.update(memoryview(data)[end:])
    return digest.hexdigest().encode() == data[start:end]


def _place(data: bytes) -> tuple[int, int]:
    start = data.rindex(_WORD.encode()) + len(_WORD)
    return start, start + _DIGITS
