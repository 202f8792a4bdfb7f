"""Write tables as TOML."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any


def to_toml(tables: Mapping[str, Any]) -> str:
    """Format tables as TOML: entries first, then tables and arrays of tables.

    Example:
        >>> print(to_toml({"name": "s", "data": {"seeds": [0]}}))
        name = "s"
        <BLANKLINE>
        [data]
        seeds = [0]
        <BLANKLINE>
    """
    lines = [f"{_format_key(k)} = {_format_value(v)}" for k, v in tables.items() if not _is_table_or_tables(v)]
    for name, value in tables.items():
        if not _is_table_or_tables(value):
            continue
        key = _format_key(name)
        for header, table in [(f"[[{key}]]", t) for t in value] if isinstance(value, list) else [(f"[{key}]", value)]:
            lines += ["", header, *(f"{_format_key(k)} = {_format_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _is_table_or_tables(value: Any) -> bool:
    tables = value if isinstance(value, list) and value else [value]
    return all(isinstance(table, Mapping) for table in tables)


def _format_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _format_string(name)


def _format_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = ", ".join(f"{_format_key(k)} = {_format_value(v)}" for k, v in value.items())
        return f"{{ {entries} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_format_value(item) for item in value) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return _format_string(value) if isinstance(value, str) else str(value).lower()  # true, nan
