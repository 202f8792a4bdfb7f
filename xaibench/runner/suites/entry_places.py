"""Where an entry of a suite stands, as its errors say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xaibench.runner.suites.toml_positions import Path


@dataclass(frozen=True)
class Origin:
    """The file that a suite was read from.

    Attributes:
        name: Its path, or the name of a built-in suite.
        lines: Of its entries; empty where they are not known.
    """

    name: str = "the suite"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def place(self, words: str = "", *path: str | int) -> Place:
        """The place of an entry; ``words`` name it for people, as ``[metrics] iou`` does ``("metrics", "iou")``."""
        return Place(self, path, words)


@dataclass(frozen=True)
class Place:
    """An entry of a suite, or what would be one.

    Example:
        >>> place = Origin("my.toml", {("metrics",): 3, ("metrics", "iou"): 5}).place("[metrics] iou", "metrics", "iou")
        >>> str(place), str(place.of("threshold")), str(Origin("my.toml").place("[metrics]", "metrics"))
        ('my.toml, line 5, [metrics] iou', 'my.toml, line 5, [metrics] iou', 'my.toml, [metrics]')
    """

    origin: Origin
    path: Path
    words: str

    def of(self, *steps: str | int) -> Place:
        """An entry within, in the same words: the error names it."""
        return Place(self.origin, (*self.path, *steps), self.words)

    def __str__(self) -> str:
        # Of what is not written, or written by Python, the line is that of what it would stand in.
        known = (self.origin.lines.get(self.path[:end]) for end in range(len(self.path), 0, -1))
        line = next((number for number in known if number is not None), None)
        return ", ".join(part for part in (self.origin.name, line and f"line {line}", self.words) if part)
