"""Convert docstrings, or parts of them, to Markdown."""

from __future__ import annotations

import re
import textwrap


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
