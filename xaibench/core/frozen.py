"""Parameters of a part as a value: they can be hashed and compared, and never change."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

#: What a TOML file can hold beside tables and lists; ``None`` comes from Python alone.
_PLAIN = (str, bool, int, float, datetime.datetime, datetime.date, datetime.time, type(None))


class Frozen(Mapping[str, Any]):
    """A table that cannot change: what a suite says of a part, handed on as ``part(**frozen)``.

    ``dict(frozen)`` is the table that it was made of, to the type of every number (``1``, ``1.0`` and ``True`` are
    three values) and in its order; what it hands out are copies. Two are equal where their tables would be written
    alike: order counts, because it decides which of ``rules = { "features.*" = "z+", "*" = "epsilon" }`` is looked at
    first, and nan is nan.

    Args:
        table: Names to texts, numbers, booleans, dates, times, ``None``, and lists (or tuples, which become lists) and
            tables of such.

    Raises:
        TypeError: For anything else; says where it stands.

    Example:
        >>> frozen = Frozen({"rules": {"conv*": "z+"}, "low": [0, 0.5]})
        >>> dict(frozen)
        {'rules': {'conv*': 'z+'}, 'low': [0, 0.5]}
        >>> frozen == Frozen(frozen), frozen == Frozen({"rules": {"conv*": "z+"}, "low": [0.0, 0.5]})
        (True, False)
    """

    __slots__ = ("_table", "_written")

    def __init__(self, table: Mapping[str, Any] | None = None) -> None:
        self._table: dict[str, Any] = _copy(table or {}, "")
        # Python writes numbers, texts and dates so that nothing but themselves is written alike.
        self._written = repr(self._table)

    @classmethod
    def keywords(cls, *tables: Mapping[str, Any]) -> Frozen:
        """Keyword arguments, of which later tables change earlier ones: by name, because their order decides nothing.

        Example:
            >>> Frozen.keywords({"n": 1, "alpha": 0.5}, {"n": 2})
            Frozen({'alpha': 0.5, 'n': 2})
        """
        joined = {name: value for table in tables for name, value in table.items()}
        return cls({name: joined[name] for name in sorted(joined)})

    def __getitem__(self, name: str) -> Any:
        return _copy(self._table[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._written == other._written

    def __hash__(self) -> int:
        return hash(self._written)

    def __repr__(self) -> str:
        return f"Frozen({self._written})"

    def __reduce__(self) -> tuple[type[Frozen], tuple[dict[str, Any]]]:
        return Frozen, (self._table,)

    def as_json(self) -> list[list[Any]]:
        """Pairs by name, of what JSON can hold; different for different tables, so that a hash of it can name a result.

        Example:
            >>> Frozen({"b": [1, 2], "a": {"z": 1}}).as_json()
            [['a', {'table': [['z', 1]]}], ['b', [1, 2]]]
        """
        return [[name, _json(self._table[name])] for name in sorted(self._table)]


def _copy(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{place or 'table'}: the name {name!r} is {type(name).__name__}, expected a text.")
        return {name: _copy(item, f"{place}.{name}" if place else name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if type(value) in _PLAIN:
        return value
    raise TypeError(
        f"{place} is {type(value).__name__}; expected a text, a number, true or false, a date, or a list or table of "
        "such, as a TOML file holds them."
    )


def _json(value: Any) -> Any:
    """Lists as they are; what JSON has no word for as an object of one entry, which nothing else becomes."""
    if isinstance(value, dict):  # in its order, unlike the keyword arguments: see the class
        return {"table": [[name, _json(item)] for name, item in value.items()]}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return {type(value).__name__: value.isoformat()}
    return value
