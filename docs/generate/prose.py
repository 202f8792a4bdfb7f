"""Convert docstrings, or parts of them, to Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path


def plain(text: str) -> str:
    """Return the Sphinx roles and literals of a docstring as Markdown, on one line."""
    text = re.sub(r":(?:func|mod|class|meth|data):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return " ".join(text.replace("``", "`").split())


def section(doc: str, name: str) -> str:
    """Return the content of the docstring section ``name``."""
    found = re.search(rf"^{name}:\n((?: +.*\n|\n)*)", doc + "\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def from_subfolder(text: str) -> str:
    """Rewrite relative links for a page in a subfolder of the documentation."""
    return re.sub(r"\]\((?!https?:|#)", "](../", text)


def with_blocks(page: Path, blocks: Mapping[str, str]) -> str:
    """Return the page with new content between ``<!-- NAME -->`` and ``<!-- until here -->`` for each block."""
    text = page.read_text(encoding="utf-8")
    for name, content in blocks.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        if not start:
            raise ValueError(f"{page.name}: no line <!-- {name} -->; add it where the generated block belongs.")
        end = "<!-- until here -->"
        text = f"{before}{start}\n{content.strip()}\n\n{end}{rest.partition(end)[2]}"
    return text
