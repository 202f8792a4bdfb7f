"""Sanitizing of text from run folders, which may come from anyone, for pages and figures."""

from __future__ import annotations

import re
from typing import Any

#: Characters that XML does not allow: control characters except tab and line ends, surrogates, and noncharacters.
_ILLEGIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def sanitize_text(text: str) -> str:
    r"""Replace each character that cannot be displayed by its escape code.

    Example:
        >>> sanitize_text("a\0b"), sanitize_text("ü\n")
        ('a\\x00b', 'ü\n')
    """
    return _ILLEGIBLE.sub(lambda found: ascii(found.group())[1:-1], text)


def sanitize_json(value: Any) -> Any:
    r"""Apply :func:`sanitize_text` to all strings in a JSON value.

    Example:
        >>> sanitize_json({"a\0": ["b\0", 1]})
        {'a\\x00': ['b\\x00', 1]}
    """
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, list):
        return [sanitize_json(item) for item in value]
    if isinstance(value, dict):
        return {sanitize_json(name): sanitize_json(item) for name, item in value.items()}
    return value
