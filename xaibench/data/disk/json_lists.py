"""Reading long lists from a JSON file item by item, since the parsed file would take ten times its size in memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, TextIO

#: Characters that may follow a value.
_DELIMITERS = frozenset(",:]} \t\n\r")
_BLANK = re.compile(r"[ \t\n\r]*")
#: Number of characters read at a time, and maximum number of one item.
_CHUNK, _MAX_ITEM = 2**20, 2**26


def read_items(path: str | os.PathLike[str], *names: str) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, item)`` for each item of the lists ``names`` of a JSON object, in the order of the file.

    Only one item is in memory at a time; other keys are skipped.

    Args:
        path: A UTF-8 file with one JSON object.
        names: Keys of the lists.

    Raises:
        ValueError: If the file is not a JSON object, or the value of a name is not a list; states the position.
        KeyError: If a name is missing.
        OSError: If the file cannot be read.
    """
    left = set(names)
    with open(path, encoding="utf-8") as stream:
        text = _JsonStream(stream)
        for _ in text.between("{", "}"):
            name = text.value()
            text.take(":")
            if name in names:
                left.discard(name)
                for _ in text.between("[", "]"):
                    yield name, text.value()
            else:
                text.value()
        if text.next():
            text.fail("expected the end of the file")
    if left:
        raise KeyError(min(left))


class _JsonStream:
    """An incremental JSON reader with one chunk of the file in memory."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text, self._at, self._before = "", 0, 0
        self._decode = json.JSONDecoder().raw_decode

    def between(self, first: str, last: str) -> Iterator[None]:
        """Yield once per item of a comma-separated list between two brackets; the caller reads the item."""
        self.take(first)
        if self.next() != last:
            yield
            while self.next() == ",":
                self.take(",")
                yield
        self.take(last)

    def value(self) -> Any:
        """Return the next value."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._read_more():
                    self.fail(error.msg)
                continue
            if self._text[end : end + 1] not in _DELIMITERS and self._read_more():
                continue  # a number may continue in the next chunk
            self._at = end
            return value

    def take(self, character: str) -> None:
        """Consume the next character that is not blank, which must be this one."""
        if self.next() != character:
            self.fail(f"expected {character!r}")
        self._at += 1

    def next(self) -> str:
        """Return the next character that is not blank, without consuming it; empty at the end of the file."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches the empty string
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def fail(self, reason: str) -> None:
        """Raise an error that states the position."""
        found = self._text[self._at : self._at + 20] or "the end"
        raise ValueError(f"after {self._before + self._at:,} characters: {reason}, got {found!r}")

    def _read_more(self) -> bool:
        """Read more characters; False at the end of the file or if the item is too long."""
        rest = self._text[self._at :]
        # Doubling the text bounds how often an item longer than a chunk is decoded.
        added = self._stream.read(max(_CHUNK, len(rest))) if len(rest) < _MAX_ITEM else ""
        if added:
            self._before, self._text, self._at = self._before + self._at, rest + added, 0
        return bool(added)
