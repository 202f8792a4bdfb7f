"""An immutable table of parameters, which can be hashed and compared."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

#: Types of the values of a TOML file other than tables and lists, and ``None``, which only Python can give.
_PLAIN = (str, bool, int, float, datetime.datetime, datetime.date, datetime.time, type(None))


class Frozen(Mapping[str, Any]):
    """An immutable table: the parameters that a suite gives to a part, passed on as ``part(**frozen)``.

    ``dict(frozen)`` equals the original table, in its order and with the type of every number (``1``, ``1.0`` and
    ``True`` are three values). Values are returned as copies. Two tables are equal if they would be written alike, so
    the order of the entries matters: it decides which entry of ``rules = { "features.*" = "z+", "*" = "epsilon" }`` is
    matched first. NaN equals NaN.

    Args:
        table: Strings, numbers, booleans, dates, times and ``None`` by name, and lists and tables of them. Tuples
            become lists.

    Raises:
        TypeError: If a value has another type; gives its path in the table.

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
        # repr() of numbers, strings and dates is unique, so equal reprs mean equal tables.
        self._written = repr(self._table)

    @classmethod
    def keywords(cls, *tables: Mapping[str, Any]) -> Frozen:
        """Merge tables of keyword arguments, sorted by name because their order has no effect. Later tables win.

        Args:
            *tables: Values by parameter.

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
        """Return pairs of names and JSON values, sorted by name. Different tables have different pairs.

        Example:
            >>> Frozen({"b": [1, 2], "a": {"z": 1}}).as_json()
            [['a', {'table': [['z', 1]]}], ['b', [1, 2]]]
        """
        return [[name, _json(self._table[name])] for name in sorted(self._table)]


def _copy(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{place or 'table'}: the name {name!r} is {type(name).__name__}, expected a string.")
        return {name: _copy(item, f"{place}.{name}" if place else name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if type(value) in _PLAIN:
        return value
    raise TypeError(
        f"{place} is {type(value).__name__}; expected a string, a number, true or false, a date, or a list or table "
        "of these, as in a TOML file."
    )


def _json(value: Any) -> Any:
    """Convert a value to JSON. Tables and dates, which JSON lacks, become objects with one entry: their type."""
    if isinstance(value, dict):  # keeps its order, unlike keyword arguments: see the class
        return {"table": [[name, _json(item)] for name, item in value.items()]}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return {type(value).__name__: value.isoformat()}
    return value
