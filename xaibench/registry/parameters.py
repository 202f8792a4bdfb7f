"""Parameters of parts: immutable tables of their values, and their names and types.

A *part* is a function, a class or a callable object: a data set, a model, an explainer or a metric. This module imports
neither torch nor numpy.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import datetime
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from xaibench.core.checks import ParameterError, is_beyond_int64

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
        joined: dict[str, Any] = {}
        for table in tables:
            joined |= table
        return cls(dict(sorted(joined.items())))

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
        table = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{place or 'table'}: the name {name!r} is {type(name).__name__}, expected a string.")
            table[name] = _copy(item, f"{place}.{name}" if place else name)
        return table
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


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_DESCRIPTIONS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", type(None): "None"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "strings"}


def named_parameters(part: Any, *, skip: int = 0, without: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """Return the parameters of a part that can be given by name.

    Args:
        part: A function, a class or a callable object.
        skip: Number of leading parameters to leave out, such as the images and the targets of an explainer.
        without: Names to leave out.

    Returns:
        Parameters by name, in their order; empty if the part has no signature.

    Example:
        >>> list(named_parameters(lambda x, y, *, z=0, **more: x, skip=1))
        ['y', 'z']
    """
    left_out = set(without)
    found = list(_signature(part).values())[skip:]
    return {one.name: one for one in found if one.kind not in _VARIADIC and one.name not in left_out}


def has_any_parameter(part: Any) -> bool:
    """Return whether a part accepts any name (``**kwargs``)."""
    return any(one.kind is one.VAR_KEYWORD for one in _signature(part).values())


def _signature(part: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(part).parameters
    except (TypeError, ValueError):  # not callable, or written in C
        return {}


def check_types(values: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Raise an error if a value is not of the annotated type of its parameter.

    Args:
        values: Values by parameter.
        annotations: Types by parameter (:func:`annotations_of`). Parameters without one are not checked.

    Raises:
        ParameterError: Gives the value, and describes the type.
    """
    for name, value in values.items():
        if is_beyond_int64(value):
            raise ParameterError(f"{name} is {value}; expected a number below 2**63.", parameter=name)
        if name in annotations and not is_of_type(value, annotations[name]):
            expected = describe_type(annotations[name])
            raise ParameterError(f"{name} is {value!r}; expected {expected}.", parameter=name)


def annotations_of(part: Any) -> dict[str, Any]:
    """Return the annotated types of the parameters of a part.

    Args:
        part: A function, a class or a callable object; for a dataclass, the types of its fields.

    Returns:
        Types by parameter. Annotations that cannot be evaluated at run time are left out.
    """
    if inspect.isclass(part):
        owners = reversed(part.__mro__) if dataclasses.is_dataclass(part) else [part.__init__]
    elif inspect.isroutine(part):
        owners = [part]
    else:  # a subclass may pass parameters on to its base class
        owners = [vars(base)["__call__"] for base in reversed(type(part).__mro__) if "__call__" in vars(base)]
    hints: dict[str, Any] = {}
    for owner in map(inspect.unwrap, owners):
        names = vars(sys.modules[owner.__module__]) if inspect.isclass(owner) else getattr(owner, "__globals__", {})
        for name, annotation in getattr(owner, "__annotations__", {}).items():
            with contextlib.suppress(NameError, TypeError, AttributeError):  # imported for type checkers only
                one: Any = types.SimpleNamespace(__annotations__={name: annotation})
                hints |= typing.get_type_hints(one, names)
    return hints


def is_of_type(value: Any, annotation: Any) -> bool:
    """Return whether a value is of an annotated type; True if this cannot be decided.

    Args:
        value: A string, number, boolean, date, list or table; from Python also a tensor, an array or a function.
        annotation: The type.

    Example:
        >>> [is_of_type(3, float), is_of_type(True, int), is_of_type([1, 2], tuple[float, ...])]
        [True, False, True]
        >>> is_of_type("sum", Literal["sum"] | None)
        True
    """
    if annotation is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if annotation in (bool, str, type(None)):
        return isinstance(value, annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, one) for one in inner)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(is_of_type(item, inner[1]) for item in value.values())
    if origin in (list, tuple, collections.abc.Sequence):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and inner[-1:] != (...,):
            return len(inner) == len(value) and all(map(is_of_type, value, inner))
        return all(is_of_type(item, inner[0]) for item in value)
    kind = origin or annotation
    if inspect.isclass(kind) and kind.__module__.partition(".")[0] in ("torch", "numpy"):
        return isinstance(value, kind)
    # Other classes may be built from what a TOML file holds.
    return origin is not collections.abc.Callable or callable(value)


def describe_type(annotation: Any) -> str:
    """Describe a type for the "expected ..." of an error. Types that a TOML file cannot hold are left out of a union.

    Args:
        annotation: The type.

    Example:
        >>> describe_type(float | Literal["blur"]), describe_type(tuple[int, ...] | None)
        ("a number or 'blur'", 'a list of whole numbers')
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(one) for one in list(filter(_is_writable, inner)) or inner))
    if origin in (dict, collections.abc.Mapping):
        return "a table"
    if origin in (list, tuple, collections.abc.Sequence):
        items = {_PLURALS.get(one) for one in inner if one is not ...}
        return f"a list of {items.pop()}" if len(items) == 1 and None not in items else "a list"
    return _DESCRIPTIONS.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _is_writable(annotation: Any) -> bool:
    tried: tuple[object, ...] = (0, 0.5, False, "", [], {}, *get_args(annotation))
    return annotation is not type(None) and any(is_of_type(value, annotation) for value in tried)
