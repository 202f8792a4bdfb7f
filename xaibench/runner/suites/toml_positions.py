"""Find the line of each entry of a TOML file, which ``tomllib`` does not give."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

#: Path of an entry: names of tables and entries, and positions in lists, such as ``("cells", 0, "models")``.
Path: TypeAlias = tuple[str | int, ...]

_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_NAME = re.compile(r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^=\]"'#\n])+""")
_REST = re.compile(r"[^,\]}#\n]*")


def entry_lines(text: str) -> dict[Path, int]:
    r"""Return the line number, from 1, of each table and entry of a TOML file.

    The entries found are compared with the result of ``tomllib``. If they differ, no lines are returned, because a
    wrong line is worse than none.

    Args:
        text: Valid TOML.

    Returns:
        Line numbers by path; empty if they cannot be determined.

    Example:
        >>> entry_lines('name = "s"  # a comment\n[lime]\n"n samples" = [\n  1,\n  2]')
        {('name',): 1, ('lime',): 2, ('lime', 'n samples'): 3, ('lime', 'n samples', 0): 4, ('lime', 'n samples', 1): 5}
    """
    try:
        lines = _Scanner(text).scan()
    except (_ScanError, tomllib.TOMLDecodeError):
        return {}
    return lines if set(lines) == set(entry_paths(tomllib.loads(text))) else {}


class _ScanError(Exception):
    pass


class _Scanner:
    """Scans valid TOML, and records the lines on which entries begin."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.replace("\r\n", "\n"), 0
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}  # position of the last table of each [[array of tables]]

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_blank() < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)
        return self._lines

    def _header(self) -> Path:
        line, several = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if several else 1
        path = self._within((), self._name())
        self._at += 2 if several else 1
        if several:
            self._record(path, line)
            number = self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, number)
        self._record(path, line)
        return path

    def _entry(self, table: Path) -> None:
        line = self._line()
        path = self._within(table, self._name())
        self._record(path, line)
        self._take("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip_blank()
        opening = self._text[self._at : self._at + 1]
        if opening in ("[", "{"):
            self._at += 1
            number = 0
            while self._skip_blank() < len(self._text) and self._text[self._at] not in "]}":
                if opening == "{":
                    self._entry(path)
                else:
                    self._record((*path, number), self._line())
                    self._value((*path, number))
                    number += 1
                self._skip_blank()
                if self._text.startswith(",", self._at):
                    self._at += 1
            self._take("]" if opening == "[" else "}")
        else:
            self._match(_STRING if opening in ('"', "'") else _REST)

    def _name(self) -> tuple[str, ...]:
        """Read a dotted name: ``a."b c".d`` has three parts."""
        table: Any = tomllib.loads(f"{self._match(_NAME)} = 0")
        steps = []
        while isinstance(table, dict):
            ((step, table),) = table.items()
            steps.append(step)
        return tuple(steps)

    def _within(self, table: Path, steps: tuple[str, ...]) -> Path:
        """Return the path of a dotted name; in an array of tables it refers to the last table."""
        path = table
        for i, step in enumerate(steps):
            path = (*path, step)
            if i < len(steps) - 1:
                if path in self._counts:
                    path = (*path, self._counts[path])
                self._record(path, self._line())
        return path

    def _record(self, path: Path, line: int) -> None:
        self._lines.setdefault(path, line)

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _skip_blank(self) -> int:
        self._match(_BLANK)
        return self._at

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _ScanError
        self._at = found.end()
        return found[0]

    def _take(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise _ScanError
        self._at += len(sign)


def entry_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all entries of parsed TOML."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield (*path, step)
        yield from entry_paths(item, (*path, step))
