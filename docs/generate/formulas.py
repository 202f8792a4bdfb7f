"""Formulas of the docs as MathML, which browsers draw themselves: no script, no font, no server.

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
    """A formula on a line of its own, as a fence of pymdownx.superfences."""
    return f'<div class="formula">{mathml(source, "block")}</div>'


def mathml(source: str, display: str = "inline") -> str:
    r"""A formula in LaTeX as MathML, whose brackets grow by themselves, without ``\bigl``."""
    plain = re.sub(r"\\[bB]ig[lr]?(?![a-zA-Z])", "", html.unescape(source).strip())
    made = str(convert(plain, display=display))
    # Bars are brackets here, never a relation between what stands on their sides, which would have space around it.
    return made.replace('<mo stretchy="false">&#x0007C;', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;')


class Formulas(Extension):
    """``$...$`` inside a line."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # the name that Markdown calls
        """Add the pattern."""
        md.inlinePatterns.register(_Inline(_INLINE, md), "formula", 185)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:  # type: ignore[override]  # noqa: N802
        element = ElementTree.Element("span", {"class": "formula"})
        element.text = self.md.htmlStash.store(mathml(m[1]))
        return element, m.start(0), m.end(0)
