"""Locations of the entries of a suite, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xaibench.runner.suites.toml_positions import Path


@dataclass(frozen=True)
class Origin:
    """The file that a suite was read from.

    Attributes:
        name: Path of the file, or name of a built-in suite.
        lines: Line numbers of the entries; empty if they are unknown.
    """

    name: str = "the suite"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def place(self, words: str = "", *path: str | int) -> Place:
        """Return the location of an entry. ``words`` name it in errors, such as ``[metrics] iou``."""
        return Place(self, path, words)


@dataclass(frozen=True)
class Place:
    """The location of an entry of a suite. The entry need not exist: then the line is that of its table.

    Example:
        >>> place = Origin("my.toml", {("metrics",): 3, ("metrics", "iou"): 5}).place("[metrics] iou", "metrics", "iou")
        >>> str(place), str(place.of("threshold")), str(Origin("my.toml").place("[metrics]", "metrics"))
        ('my.toml, line 5, [metrics] iou', 'my.toml, line 5, [metrics] iou', 'my.toml, [metrics]')
    """

    origin: Origin
    path: Path
    words: str

    def of(self, *steps: str | int) -> Place:
        """Return the location of an entry inside this one, with the same words."""
        return Place(self.origin, (*self.path, *steps), self.words)

    def __str__(self) -> str:
        known = (self.origin.lines.get(self.path[:end]) for end in range(len(self.path), 0, -1))
        line = next((number for number in known if number is not None), None)
        return ", ".join(part for part in (self.origin.name, line and f"line {line}", self.words) if part)
