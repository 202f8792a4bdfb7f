"""What all figures share: colours, font, and how a figure becomes a file or a piece of a page.

Figures are drawn with matplotlib's object interface (no pyplot, no global state left behind), in the light theme, whose
colours are all different, so that the page can turn each of them in the SVG into a CSS variable (:data:`THEME`) and
follow the reader's light or dark setting with the same drawing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, TypeAlias

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

#: A figure, or None where there is nothing to draw.
Drawn: TypeAlias = Figure | None

#: Role to colour in the light theme. Series colours are from Okabe and Ito's palette for colour-blind readers.
THEME = {
    "ink": "#1b2330",
    "soft": "#5b6675",
    "line": "#d5dae1",
    "band": "#f3f5f8",
    "paper": "#fffffe",
    "series-1": "#0072b2",
    "series-2": "#d55e00",
    "series-3": "#009e73",
    "series-4": "#cc79a7",
}
#: Size of the font in points, and the longest label in a figure.
FONT, _LONGEST = 8.5, 26


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user has configured, with text kept as text in SVG."""
    defaults: dict[str, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
    ours: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "xaibench",
        "font.size": FONT,
        "axes.linewidth": 0.6,
        "axes.facecolor": "none",
        "figure.facecolor": THEME["paper"],
        "savefig.facecolor": THEME["paper"],
        # A label is a name: a dollar sign in it is a dollar sign.
        "text.parse_math": False,
    }
    settings: Any = defaults | ours
    with matplotlib.rc_context(settings):
        yield


def save(figure: Figure, kind: str) -> bytes:
    """The figure as ``"png"``, ``"jpg"`` (150 dpi) or ``"svg"``; the same bytes for the same figure."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"Date": None} if kind == "svg" else {"Software": None}}
    if kind == "jpg":
        options = {"pil_kwargs": {"quality": 88}}
    with house_style():
        figure.savefig(buffer, format=kind, dpi=150, **options)
    return buffer.getvalue()


def short(label: str) -> str:
    """A label that fits a figure."""
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def inline_svg(svg: bytes, prefix: str, title: str) -> Markup:
    """An SVG of matplotlib's as an element of a page: theme colours as CSS variables, the page's font, no other names.

    Args:
        svg: As :func:`xaibench.report.draw.figure_style.save` gives it.
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
