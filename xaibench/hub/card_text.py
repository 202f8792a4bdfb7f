"""What cards are made of: a YAML head, Markdown tables, and texts that tell nothing of the machine they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# An absolute path of two parts or more. A URL is none: its slashes follow one another, or a word.
_PATH = re.compile(
    r"""(?<![\w/.])(?:~?/(?!/)|[A-Za-z]:\\+)   # where it begins
        (?:[^\s"'/\\<>|]+[/\\]+)+               # the folders that are nobody's business
        (?=[^\s"'/\\<>|])                       # the name that stays""",
    re.VERBOSE,
)


def strip_folders(text: str) -> str:
    """Absolute paths without the folders they lie in: these tell who the user is, and nothing else.

    Example:
        >>> strip_folders("folder:/home/ann/sets/dogs is not like https://example.org/sets/dogs or lin/white")
        'folder:…/dogs is not like https://example.org/sets/dogs or lin/white'
    """
    return _PATH.sub("…/", text)


def strip_folders_nested(value: Any) -> Any:
    """:func:`strip_folders` of every text in lists, tuples and dicts."""
    if isinstance(value, str):
        return strip_folders(value)
    if isinstance(value, Mapping):
        return {key: strip_folders_nested(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(strip_folders_nested(one) for one in value)
    return value


def readme(head: Mapping[str, Any], body: str) -> str:
    """A README as the Hub reads it: YAML between dashes, then Markdown."""
    from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined, unused-ignore]

    return f"---\n{yaml_dump(dict(head), sort_keys=False)}---\n\n{body.strip()}\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""A Markdown table; numbers stand to the right, and what Markdown would read as its own is escaped.

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
    r"""Text from outside, such as a class's name, so that Markdown shows it as it is.

    Example:
        >>> escape_markdown("a_b <script>")
        'a\\_b &lt;script&gt;'
    """
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)


def code_block(text: str, language: str) -> str:
    """A block of code, whose fence is longer than any in the text.

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
