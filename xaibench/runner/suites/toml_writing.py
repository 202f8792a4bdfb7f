"""Writing plain tables as TOML."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any


def to_toml(tables: Mapping[str, Any]) -> str:
    """Write plain tables as TOML: scalars first, then tables, then arrays of tables.

    Example:
        >>> print(to_toml({"name": "s", "data": {"seeds": [0]}}))
        name = "s"
        <BLANKLINE>
        [data]
        seeds = [0]
        <BLANKLINE>
    """
    lines = [f"{_key(k)} = {_value(v)}" for k, v in tables.items() if not _is_table(v)]
    for name, value in tables.items():
        if not _is_table(value):
            continue
        key = _key(name)
        for header, table in [(f"[[{key}]]", t) for t in value] if isinstance(value, list) else [(f"[{key}]", value)]:
            lines += ["", header, *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    tables = value if isinstance(value, list) and value else [value]
    return all(isinstance(table, Mapping) for table in tables)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return _text(value) if isinstance(value, str) else str(value).lower()  # true, nan
