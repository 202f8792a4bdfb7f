"""Building blocks of cards: YAML header, Markdown tables, and text without local paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# An absolute path with at least two parts. In a URL, the slash follows another slash or a word.
_PATH = re.compile(
    r"""(?<![\w/.])(?:~?/(?!/)|[A-Za-z]:\\+)   # where it begins
        (?:[^\s"'/\\<>|]+[/\\]+)+               # the folders to remove
        (?=[^\s"'/\\<>|])                       # the name to keep""",
    re.VERBOSE,
)


def strip_folders(text: str) -> str:
    """Remove the folders from absolute paths, which may identify the user.

    Example:
        >>> strip_folders("folder:/home/ann/sets/dogs is not like https://example.org/sets/dogs or lin/white")
        'folder:…/dogs is not like https://example.org/sets/dogs or lin/white'
    """
    return _PATH.sub("…/", text)


def strip_folders_nested(value: Any) -> Any:
    """Apply :func:`strip_folders` to all strings in nested lists, tuples and dicts."""
    if isinstance(value, str):
        return strip_folders(value)
    if isinstance(value, Mapping):
        return {key: strip_folders_nested(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(strip_folders_nested(one) for one in value)
    return value


def readme(head: Mapping[str, Any], body: str) -> str:
    """Return a README with the YAML header that the Hub reads."""
    from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined, unused-ignore]

    return f"---\n{yaml_dump(dict(head), sort_keys=False)}---\n\n{body.strip()}\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a Markdown table with numbers right-aligned and cells escaped.

    Example:
        >>> print(markdown_table(["name", "n"], [["a|b", 1200]]))
        | name | n |
        | --- | --: |
        | a\|b | 1,200 |
    """
    rows = [list(row) for row in rows]
    right = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    lines = [[escape_markdown(name) for name in columns], ["--:" if one else "---" for one in right]]
    lines += [[_cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_markdown(text: str) -> str:
    r"""Escape untrusted text, such as class names, for Markdown.

    Example:
        >>> escape_markdown("a_b <script>")
        'a\\_b &lt;script&gt;'
    """
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)


def code_block(text: str, language: str) -> str:
    """Return a fenced code block whose fence does not occur in the text.

    Example:
        >>> print(code_block("a ``` b", "text"))
        ````text
        a ``` b
        ````
    """
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape_markdown(str(value))
    if value != value:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
