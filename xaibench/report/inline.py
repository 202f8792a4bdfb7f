"""What turns a drawing or an array into a piece of a page that needs nothing from outside."""

from __future__ import annotations

import base64
import io
import re
from html import escape

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from xaibench.report.figures import THEME

#: Longest side of a map on the page in pixels; larger ones are reduced (the files beside the page are not).
TILE = 32


def inline_svg(svg: bytes, prefix: str, title: str) -> Markup:
    """An SVG of matplotlib's as an element of a page: theme colours as CSS variables, the page's font, no other names.

    Args:
        svg: As :func:`xaibench.report.figures.save` gives it.
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
    box = re.search(r'viewBox="[^"]*"', text)
    body = text[text.index(">") + 1 :]
    opening = f'<svg {box.group() if box else ""} role="img" aria-label="{escape(title)}">'
    # Safe as it is: matplotlib has escaped every label.
    return Markup(opening + re.sub(r"\s*\n\s*", "\n", body))


def png_uri(colours: NDArray[np.uint8]) -> str:
    """``[H, W, 3]`` as a ``data:`` address. Small images keep their colours, large ones get a palette of 64."""
    image = Image.fromarray(colours)
    if max(image.size) > 16:
        image = image.quantize(64)
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


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
