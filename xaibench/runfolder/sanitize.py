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


def quote_formula(value: Any) -> Any:
    """Quote a text that a spreadsheet would run as a formula: one that begins with =, @, a sign, a tab or a line break.

    Args:
        value: A cell of a CSV file.

    Returns:
        The text after an apostrophe; numbers and other values as they are.

    Example:
        >>> [quote_formula(value) for value in ("=1+1", "-x", "-0.5", "a=b", 3)]
        ["'=1+1", "'-x", '-0.5', 'a=b', 3]
    """
    bare = value.lstrip("'") if isinstance(value, str) else ""  # "'=" is quoted, too, so that each text can be read
    if len(bare) < 2 or bare[0] not in "=+-@\t\r\n":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def unquote_formula(text: str) -> str:
    """Return the text that :func:`quote_formula` quoted.

    Example:
        >>> [unquote_formula(quote_formula(text)) for text in ("=1+1", "'=1+1", "'a", "-0.5")]
        ['=1+1', "'=1+1", "'a", '-0.5']
    """
    return text[1:] if text[:1] == "'" and quote_formula(text[1:]) == text else text
