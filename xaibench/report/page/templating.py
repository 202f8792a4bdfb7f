"""The page's templates, number formats and script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from xaibench.benchmarks.facets import facet_headings
from xaibench.core.progress import format_bytes
from xaibench.core.truth_kinds import TRUTHS, question_of
from xaibench.plots.map_sheets import COLUMNS
from xaibench.scores.render import Table, to_csv, to_latex
from xaibench.scores.results import place

#: Largest file, in bytes, that a link of the page contains; links to larger ones lead to the folder.
INLINE_BYTES = 60_000
_TEMPLATES = Path(__file__).parent / "templates"
#: The parts of the page's script, in order.
_SCRIPTS = ("state", "theme", "table", "board", "pairs", "pictures", "samples", "page")


@functools.cache
def template_environment() -> jinja2.Environment:
    """Return the template environment: it escapes all values and raises on undefined names; templates compile once."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"number": number, "p": p_value, "place": place, "duration": format_duration, "memory": memory}
    templates.filters |= {"question": question_of, "file_links": file_links, "signed": signed, "breakable": breakable}
    templates.globals |= {"truths": TRUTHS, "map_columns": COLUMNS}
    templates.globals["facet_headings"] = facet_headings
    return templates


@dataclass(frozen=True)
class Script:
    """The page's script, with the hash that the page's content security policy allows."""

    text: Markup
    hash: str


def script(names: Sequence[str] = _SCRIPTS) -> Script:
    """Join parts of the script in one function scope; by default all parts of the report page."""
    parts = [(_TEMPLATES / "js" / f"{name}.js").read_text(encoding="utf-8") for name in names]
    text = '(function () {\n"use strict";\n' + "\n".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return Script(Markup(text), f"sha256-{digest}")


def json_block(value: Any) -> Markup:
    """Return a value as content of ``<script type="application/json">``, safe against closing tags in text.

    Example:
        >>> "</script>" in json_block({"name": "</script>"})
        False
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def file_links(table: Table) -> list[dict[str, str]]:
    """Return the links to the CSV and the LaTeX file of a table: ``file`` (name), ``address`` and ``title``.

    The address is the content as a ``data:`` address, or the path next to the page if the file is large.
    """
    files = (("csv", "CSV", "text/csv", to_csv(table)), ("tex", "LaTeX", "application/x-tex", to_latex(table)))
    links = []
    for suffix, title, media_type, text in files:
        file, content = f"{table.name}.{suffix}", text.encode()
        inline = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
        address = inline if len(content) <= INLINE_BYTES else f"tables/{file}"
        links.append({"file": file, "address": address, "title": title})
    return links


def breakable(text: str) -> Markup:
    """Let a name break into lines after its separators."""
    return Markup(re.sub(r"([/_.,-])(?=\S)", r"\1<wbr>", str(Markup.escape(text))))


def p_value(p: float | None) -> str:
    """Format a p-value with three decimals."""
    return "–" if p is None or p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: Any, digits: int = 3) -> str:
    """Format a number with ``digits`` decimals and a typographic minus; an en dash if missing.

    Example:
        >>> number(-0.5, 1), number(-0.0001, 2), number(None)
        ('−0.5', '0.00', '–')
    """
    if value is None or value is pd.NA or value != value:
        return "–"
    rounded = round(float(value), digits) + 0.0  # no minus sign before a zero
    return f"{rounded:.{digits}f}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """Format a difference, with a plus sign if it is positive.

    Example:
        >>> signed(0.25, 1), signed(-0.25, 2), signed(0.0001, 2)
        ('+0.2', '−0.25', '0.00')
    """
    return f"{'+' if round(value, digits) > 0 else ''}{number(value, digits)}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds with its units.

    Example:
        >>> [format_duration(seconds) for seconds in (0.004, 0.25, 59.7, 61, 3605, 7260)]
        ['4 ms', '0.25 s', '59.7 s', '1 min 1 s', '1 h 0 min', '2 h 1 min']
    """
    if seconds < 0.01:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def memory(megabytes: float) -> str:
    """Format a size in memory.

    Example:
        >>> memory(342), memory(2300)
        ('342 MB', '2.3 GB')
    """
    return format_bytes(1e6 * megabytes)
