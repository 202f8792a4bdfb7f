"""Convert formulas of the documentation to MathML, which needs no script and no server.

In a page they are ```` ```math ```` blocks and ``$...$``, as GitHub reads them too.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

_INLINE = r"(?<![\\$\w])\$(?=\S)([^$]+?)(?<=\S)\$(?!\w)"


def block(source: str, *_: Any, **__: Any) -> str:
    """Return a displayed formula, for a fence of pymdownx.superfences."""
    return f'<div class="formula">{mathml(source, "block")}</div>'


def mathml(source: str, display: str = "inline") -> str:
    r"""Return a LaTeX formula as MathML; ``\bigl`` is dropped, since brackets stretch automatically."""
    plain = re.sub(r"\\[bB]ig[lr]?(?![a-zA-Z])", "", html.unescape(source).strip())
    made = str(convert(plain, display=display))
    # Bars are brackets here, not relations, which would have space on both sides.
    return made.replace('<mo stretchy="false">&#x0007C;', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;')


class Formulas(Extension):
    """Markdown extension for ``$...$`` in a line."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # the name that Markdown calls
        """Add the pattern."""
        md.inlinePatterns.register(_Inline(_INLINE, md), "formula", 185)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:  # type: ignore[override]  # noqa: N802
        element = ElementTree.Element("span", {"class": "formula"})
        element.text = self.md.htmlStash.store(mathml(m[1]))
        return element, m.start(0), m.end(0)
