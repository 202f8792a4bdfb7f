"""Reading long lists out of a JSON file item by item: the whole would take ten times the file in memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, TextIO

#: What may follow a value.
_AFTER = frozenset(",:]} \t\n\r")
_BLANK = re.compile(r"[ \t\n\r]*")
#: Characters that are read at a time, and those that one item may have.
_CHUNK, _LONGEST = 2**20, 2**26


def read_items(path: str | os.PathLike[str], *names: str) -> Iterator[tuple[str, Any]]:
    """``(name, item)`` of each item of the lists ``names`` in a file that is one JSON object, in the file's order.

    Only one item is in memory at a time; what stands under other names is read and dropped.

    Args:
        path: The file, in UTF-8.
        names: Of the lists.

    Raises:
        ValueError: If it is no JSON object, or one of the names holds no list; says where.
        KeyError: If it has no list of a name.
        OSError: If it cannot be read.
    """
    left = set(names)
    with open(path, encoding="utf-8") as stream:
        text = _Text(stream)
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


class _Text:
    """The characters of a file, of which those not yet read are not in memory."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text, self._at, self._before = "", 0, 0
        self._decode = json.JSONDecoder().raw_decode

    def between(self, first: str, last: str) -> Iterator[None]:
        """Once before each of the items between two brackets, commas between them; the caller reads the item."""
        self.take(first)
        if self.next() != last:
            yield
            while self.next() == ",":
                self.take(",")
                yield
        self.take(last)

    def value(self) -> Any:
        """The next value, whatever it is."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    self.fail(error.msg)
                continue
            if self._text[end : end + 1] not in _AFTER and self._more():
                continue  # a number may go on in what was not read yet
            self._at = end
            return value

    def take(self, character: str) -> None:
        """The next character that is not blank must be this one."""
        if self.next() != character:
            self.fail(f"expected {character!r}")
        self._at += 1

    def next(self) -> str:
        """The next character that is not blank, which is left where it is; empty at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def fail(self, reason: str) -> None:
        """Say where something is wrong."""
        found = self._text[self._at : self._at + 20] or "the end"
        raise ValueError(f"after {self._before + self._at:,} characters: {reason}, got {found!r}")

    def _more(self) -> bool:
        """Read on; False at the end of the file, or of what one item may be."""
        rest = self._text[self._at :]
        # As much again as there is: an item that is longer than a chunk is not decoded anew for every chunk.
        added = self._stream.read(max(_CHUNK, len(rest))) if len(rest) < _LONGEST else ""
        if added:
            self._before, self._text, self._at = self._before + self._at, rest + added, 0
        return bool(added)
