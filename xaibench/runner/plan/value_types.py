"""Whether a value that a suite states is of the type that a part's signature asks for."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "None"}


def stated_types(part: Any) -> dict[str, Any]:
    """Name -> annotation of each parameter of a class, a function or a callable object, as far as it can be read."""
    if inspect.isclass(part) and dataclasses.is_dataclass(part):
        owners = [(vars(base), vars(sys.modules[base.__module__])) for base in reversed(part.__mro__)]
        written = [(owner.get("__annotations__", {}), names) for owner, names in owners]
    else:
        called = part.__init__ if inspect.isclass(part) else part if inspect.isroutine(part) else type(part).__call__
        function = inspect.unwrap(called)
        written = [(getattr(function, "__annotations__", {}), getattr(function, "__globals__", {}))]
    found: dict[str, Any] = {}
    for stated, names in written:
        for name, annotation in stated.items():
            with contextlib.suppress(NameError, TypeError, AttributeError):  # what only type checkers import
                one: Any = types.SimpleNamespace(__annotations__={name: annotation})
                found |= typing.get_type_hints(one, names)
    return found


def is_of(value: Any, annotation: Any) -> bool:
    """Whether ``value``, as a TOML file states it, is of a type; True where that cannot be told.

    Example:
        >>> is_of(3, float), is_of(True, int), is_of([1, 2], tuple[float, ...]), is_of("sum", Literal["sum"] | None)
        (True, False, True, True)
    """
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation in (bool, str, type(None)):
        return isinstance(value, annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if origin in (Union, types.UnionType):
        return any(is_of(value, one) for one in inner)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(is_of(item, inner[1]) for item in value.values())
    if origin in (list, tuple, collections.abc.Sequence):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and inner[-1:] != (...,):
            return len(inner) == len(value) and all(map(is_of, value, inner))
        return all(is_of(item, inner[0]) for item in value)
    # A TOML file holds no tensors and no functions; of other classes it may hold what they are made from.
    of_arrays = inspect.isclass(annotation) and annotation.__module__.partition(".")[0] in ("torch", "numpy")
    return not of_arrays and origin not in (np.ndarray, collections.abc.Callable)


def in_words(annotation: Any) -> str:
    """A type, for "expected ...".

    Example:
        >>> in_words(float | Literal["blur"]), in_words(tuple[int, ...] | None)
        ("a number or 'blur'", 'a list')
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(one) for one in inner if _can_be_written(one)))
    if origin in (dict, collections.abc.Mapping):
        return "a table"
    if origin in (list, tuple, collections.abc.Sequence):
        return "a list"
    return _IN_WORDS.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _can_be_written(annotation: Any) -> bool:
    tried: tuple[object, ...] = (0, 0.5, False, "", [], {}, *get_args(annotation))
    return annotation is not type(None) and any(is_of(value, annotation) for value in tried)
