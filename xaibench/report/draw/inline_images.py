"""What turns a drawing or an array into a piece of a page that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable
from html import escape

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from xaibench.report.draw.score_figures import THEME

#: Longest side of a map on the page in pixels; larger ones are reduced (the files beside the page are not).
TILE = 32


def inline_svg(svg: bytes, prefix: str, title: str) -> Markup:
    """An SVG of matplotlib's as an element of a page: theme colours as CSS variables, the page's font, no other names.

    Args:
        svg: As :func:`xaibench.report.draw.score_figures.save` gives it.
        prefix: Put before every id, so that drawings do not meet on one page.
        title: Text alternative.
    """
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "var(--sans)", text)
    text = text.replace(f"fill: {THEME['paper']}", "fill: none", 1)  # the sheet itself: the page has its own
    for role, colour in THEME.items():
        text = text.replace(colour, f"var(--{role})")
    box = re.search(r'viewBox="0 0 (\S+)[^"]*"', text)
    body, styles = _classes(_without_plain_groups(_rounded(text[text.index(">") + 1 :])))
    size = f'{box.group()} style="--width: {float(box.group(1)):.0f}px"' if box else ""
    opening = f'<svg {size} role="img" aria-label="{escape(title)}">'
    # Safe as it is: matplotlib has escaped every label.
    return Markup(f"{opening}<style>{styles}</style>" + re.sub(r"\s*\n\s*", "\n", body))


def _rounded(svg: str) -> str:
    """Coordinates to a tenth of a point: what is beyond cannot be seen and is half of the file."""

    def attribute(match: re.Match[str]) -> str:
        return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number.group()):.1f}".removesuffix(".0"), match.group())

    return re.sub(r'<[a-z][^>]*? (?:d|x|y|transform)="[^>]*>', _attributes(attribute), svg)


def _attributes(change: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    return lambda tag: re.sub(r' (?:d|x|y|transform)="[^"]*"', change, tag.group())


def _without_plain_groups(svg: str) -> str:
    """Leave out the groups that have no attribute: they change nothing."""
    kept: list[bool] = []

    def group(match: re.Match[str]) -> str:
        if match.group() == "</g>":
            return "</g>" if kept.pop() else ""
        kept.append(match.group() != "<g>")
        return match.group() if kept[-1] else ""

    return re.sub(r"<g\b[^>]*(?<!/)>|</g>", group, svg)


def _classes(svg: str) -> tuple[str, str]:
    """Give equal styles one class, named after what it holds, so that drawings do not meet on one page."""
    rules: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        name = "s" + hashlib.sha256(match.group(1).encode()).hexdigest()[:7]
        rules[name] = match.group(1)
        return f' class="{name}"'

    svg = re.sub(r'(?<=[a-z"]) style="([^"<>{}]*)"(?=[^<>]*>)', named, svg)
    return svg, "".join(f".{name}{{{rule}}}" for name, rule in rules.items())


def tile_uri(colours: NDArray[np.uint8]) -> str:
    """``[H, W, 3]`` as a ``data:`` address: PNG, exact, up to 16 pixels a side; WebP, a third of it, above."""
    kind, options = ("png", {"optimize": True}) if max(colours.shape[:2]) <= 16 else ("webp", {"quality": 75})
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def shrink(array: NDArray[np.float64], side: int = TILE) -> NDArray[np.float64]:
    """``[H, W]`` reduced by whole-number block means until no side is above ``side``; edges are padded.

    Example:
        >>> shrink(np.arange(16.0).reshape(4, 4), side=2)
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    factor = -(-max(array.shape) // side)
    if factor == 1:
        return array
    array = np.pad(array, [(0, -length % factor) for length in array.shape], mode="edge")
    height, width = (length // factor for length in array.shape)
    blocks = array.reshape(height, factor, width, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))
