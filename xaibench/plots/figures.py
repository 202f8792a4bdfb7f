"""Style of all figures, for matplotlib's object interface (no pyplot, no global state), and conversion to files."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from markupsafe import Markup

from xaibench.core.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colors of the light theme by role. Series colors are from the color-blind safe palette of Okabe and Ito.
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
#: Font size in points.
FONT = 8.5


@contextmanager
def house_style() -> Iterator[None]:
    """Use matplotlib's defaults with the library's settings, regardless of the user's configuration.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed; the message says how to install it.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Figures need matplotlib: pip install matplotlib.", name=error.name) from error
    defaults: dict[str, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
    ours: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "xaibench",
        "font.size": FONT,
        "axes.linewidth": 0.6,
        "axes.facecolor": "none",
        "figure.facecolor": THEME["paper"],
        "savefig.facecolor": THEME["paper"],
        # Labels are names, not formulas: dollar signs are printed.
        "text.parse_math": False,
    }
    settings: Any = defaults | ours
    with matplotlib.rc_context(settings):
        yield


#: The longest label of a figure in characters.
_LONGEST = 26


def save(figure: Figure, path: str | os.PathLike[str]) -> list[Path]:
    """Write a figure to a file, or to an SVG and a PNG file. The same figure gives the same bytes.

    Args:
        figure: The figure.
        path: The file, whose suffix is the format: ``.svg``, ``.png`` or ``.jpg`` (150 dpi), ``.pdf``, or another one
            of matplotlib. Without a suffix, ``.svg`` and ``.png`` files are written.

    Returns:
        The written files.

    Raises:
        ValueError: If matplotlib does not know the format.
        OSError: If the file cannot be written.
    """
    wanted = Path(path)
    files = [wanted] if wanted.suffix else [wanted.with_name(f"{wanted.name}.{kind}") for kind in ("svg", "png")]
    for file in files:
        content = encode(figure, file.suffix[1:].lower())
        with atomic_file(file, durable=False) as stream:
            stream.write(content)
    return files


def encode(figure: Figure, kind: str, dpi: int = 150) -> bytes:
    """Return the figure as ``"png"``, ``"jpg"``, ``"svg"`` or another format; deterministic."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"CreationDate" if kind == "pdf" else "Date": None}}
    if kind == "png":  # compressed in half of the time, to a file a sixth larger
        options = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
    elif kind not in ("svg", "pdf"):
        options = {"pil_kwargs": {"quality": 88}} if kind in ("jpg", "jpeg") else {}
    with house_style():
        figure.savefig(buffer, format=kind, dpi=dpi, **options)
    return buffer.getvalue()


def shorten_label(label: str) -> str:
    """Shorten a label so that it fits a figure."""
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


#: A figure, or None if there is nothing to draw.
Drawn: TypeAlias = "Figure | None"


def inline_svg(svg: bytes, prefix: str, title: str) -> Markup:
    """Return a matplotlib SVG as an element of a page, with theme colors as CSS variables and the page's font.

    Args:
        svg: Output of :func:`xaibench.plots.figures.encode`.
        prefix: Prefix of every id, which keeps the ids of several drawings on a page distinct.
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
    text = text.replace(f"fill: {THEME['paper']}", "fill: none", 1)  # the page has its own variant
    for role, color in THEME.items():
        text = text.replace(color, f"var(--{role})")
    box = re.search(r'viewBox="0 0 (\S+)[^"]*"', text)
    body, styles = _styles_to_classes(_remove_plain_groups(_round_coordinates(text[text.index(">") + 1 :])))
    size = f'{box.group()} style="--width: {float(box.group(1)):.0f}px"' if box else ""
    opening = f'<svg {size} role="img" aria-label="{escape(title)}">'
    # Safe: matplotlib has escaped every label.
    return Markup(f"{opening}<style>{styles}</style>" + re.sub(r"\s*\n\s*", "\n", body))


def _round_coordinates(svg: str) -> str:
    """Round coordinates to a tenth of a point, which halves the file without visible difference."""

    def attribute(match: re.Match[str]) -> str:
        return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number.group()):.1f}".removesuffix(".0"), match.group())

    return re.sub(r'<[a-z][^>]*? (?:d|x|y|transform)="[^>]*>', _attributes(attribute), svg)


def _attributes(change: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    return lambda tag: re.sub(r' (?:d|x|y|transform)="[^"]*"', change, tag.group())


def _remove_plain_groups(svg: str) -> str:
    """Remove groups without attributes."""
    kept: list[bool] = []

    def group(match: re.Match[str]) -> str:
        if match.group() == "</g>":
            return "</g>" if kept.pop() else ""
        kept.append(match.group() != "<g>")
        return match.group() if kept[-1] else ""

    return re.sub(r"<g\b[^>]*(?<!/)>|</g>", group, svg)


def _styles_to_classes(svg: str) -> tuple[str, str]:
    """Replace equal styles by a class named after its content, which keeps the classes of several drawings distinct."""
    rules: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        name = "s" + hashlib.sha256(match.group(1).encode()).hexdigest()[:7]
        rules[name] = match.group(1)
        return f' class="{name}"'

    svg = re.sub(r'(?<=[a-z"]) style="([^"<>{}]*)"(?=[^<>]*>)', named, svg)
    return svg, "".join(f".{name}{{{rule}}}" for name, rule in rules.items())
