"""Draw small pictures as SVG: a few kilobytes each, deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape, unescape

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]
Point = tuple[float, float]

CELL, GAP, TOP, BELOW = 15, 26, 26, 24
INK, FAINT, PAPER = "#222b36", "#66707c", "#ffffff"
RED, BLUE, GREEN, ORANGE = (178, 24, 43), (33, 102, 172), "#2f8f5b", "#e08a1e"


def signed(value: float) -> str:
    """Return the color of a signed value: red for 1, white for 0, blue for -1."""
    end, share = (RED, value) if value >= 0 else (BLUE, -value)
    return "#" + "".join(f"{round(255 + (channel - 255) * min(share, 1.0)):02x}" for channel in end)


def gray(value: float) -> str:
    """Return the gray level of a value: black for -1, white for 1."""
    level = round(255 * (min(max(value, -1.0), 1.0) + 1) / 2)
    return f"#{level:02x}{level:02x}{level:02x}"


@dataclass
class Drawing:
    """Panels from left to right on a white card.

    Attributes:
        about: What the picture shows, for who cannot see it.
        parts: The elements so far.
        x: Where the next panel begins.
        height: Of the tallest panel.
    """

    about: str
    parts: list[str] = field(default_factory=list)
    x: float = 14
    height: float = 0

    def grid(
        self,
        values: Grid,
        color: Callable[[float], str],
        title: str,
        note: str = "",
        mask: NDArray[np.bool_] | None = None,
        cell: float = CELL,
    ) -> Callable[[float, float], Point]:
        """Draw an image of square cells with the outline of the mask; return the center of a row and column."""
        rows, columns = values.shape
        left, side = self.x, columns * cell
        for row, column in np.ndindex(rows, columns):
            fill = color(float(values[row, column]))
            x, y = left + column * cell, TOP + row * cell
            self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{cell:g}" height="{cell:g}" fill="{fill}"/>')
        self.parts.append(
            f'<rect x="{left:g}" y="{TOP}" width="{side:g}" height="{rows * cell:g}" fill="none" stroke="#c3c9d1"/>'
        )
        if mask is not None:
            self.parts.append(f'<path d="{_outline(mask, left, cell)}" fill="none" stroke="{INK}" stroke-width="2"/>')
        self._labels(left, side, rows * cell, title, note)
        return lambda row, column: (left + (column + 0.5) * cell, TOP + (row + 0.5) * cell)

    def axes(
        self, title: str, note: str, width: float = 150, height: float = 8 * CELL
    ) -> Callable[[float, float], Point]:
        """Draw an empty plot; return a function from [0, 1] × [0, 1] to positions."""
        left = self.x
        self.parts.append(f'<path d="M{left:g} {TOP}V{TOP + height:g}H{left + width:g}" fill="none" stroke="{FAINT}"/>')
        self._labels(left, width, height, title, note)
        return lambda x, y: (left + x * width, TOP + (1 - y) * height)

    def curve(self, points: Iterable[Point], color: str = INK, fill: str = "", dash: str = "") -> None:
        """Draw a line through points."""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        kind = f'fill="{fill}" stroke="none"' if fill else f'fill="none" stroke="{color}" stroke-width="2"'
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{text}" {kind}{dashed}/>')

    def line(self, start: Point, end: Point, width: float, color: str = INK) -> None:
        """Draw a straight line with a dot at its end."""
        self.parts.append(
            f'<path d="M{start[0]:.1f} {start[1]:.1f}L{end[0]:.1f} {end[1]:.1f}" stroke="{color}" '
            f'stroke-width="{width:.1f}" stroke-opacity="0.75"/>'
        )
        self.dot(end, 1.2 + width / 2, color)

    def dot(self, at: Point, radius: float, color: str = INK, *, hollow: bool = False) -> None:
        """Draw a disc or a ring."""
        kind = f'fill="none" stroke="{color}" stroke-width="2"' if hollow else f'fill="{color}"'
        self.parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}" {kind}/>')

    def write(self, at: Point, text: str, color: str = FAINT, anchor: str = "start", size: int = 11) -> None:
        """Draw a line of text."""
        self.parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">'
            f"{escape(text)}</text>"
        )

    def sign(self, text: str) -> None:
        """Draw a sign between two panels, such as × or −."""
        self.write((self.x - GAP / 2, TOP + 4 * CELL + 5), text, INK, "middle", 16)

    def result(self, lines: Sequence[str], score: str, width: float = 120) -> str:
        """Draw the last panel, formula and score, and return the picture."""
        top = TOP + (self.height - TOP - BELOW) / 2 - 9 * len(lines)
        for number, line in enumerate(lines):
            self.write((self.x, top + 18 * number), line, INK, size=12)
        self.write((self.x, top + 18 * len(lines) + 10), score, INK, size=20)
        self.x += width
        size = f'width="{self.x:g}" height="{self.height:g}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.x:g} {self.height:g}" {size} role="img" '
            'font-family="system-ui, sans-serif">',
            f"<title>{escape(self.about)}</title>",
            f'<rect {size} rx="6" fill="{PAPER}"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _labels(self, left: float, width: float, height: float, title: str, note: str) -> None:
        self.write((left + width / 2, TOP - 9), title, INK, "middle", 12)
        self.write((left + width / 2, TOP + height + 16), note, FAINT, "middle")
        self.x = left + width + GAP
        self.height = max(self.height, TOP + height + BELOW)


def _outline(mask: NDArray[np.bool_], left: float, cell: float) -> str:
    """Return the outline of the mask as a path."""
    inside = np.pad(mask, 1)
    steps = []
    for row, column in np.argwhere(mask):
        for down, right, step in ((0, -1, "v"), (-1, 0, "h"), (0, 1, "v"), (1, 0, "h")):
            if not inside[row + 1 + down, column + 1 + right]:
                x, y = left + (column + max(right, 0)) * cell, TOP + (row + max(down, 0)) * cell
                steps.append(f"M{x:g} {y:g}{step}{cell:g}")
    return "".join(steps)


def title_of(svg: str) -> str:
    """Return the title of a picture."""
    return unescape(svg.partition("<title>")[2].partition("</title>")[0])
