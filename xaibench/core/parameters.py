"""Parameters of parts: their names and types, and the errors about them.

A *part* is a function, a class or a callable object: a data set, a model, an explainer or a metric. This module imports
neither torch nor numpy.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from xaibench.core.messages import unknown

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_DESCRIPTIONS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", type(None): "None"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "strings"}


class ParameterError(ValueError):
    """A parameter has a value that cannot be used.

    Args:
        message: The value received, the values expected, and what to do.
        parameter: Name of the parameter.

    Attributes:
        parameter: Name of the parameter, from which a suite finds the line of its file.
    """

    def __init__(self, message: str, *, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.args[0], self.parameter)


class UnknownParameterError(ParameterError, TypeError):
    """A part does not have a parameter of this name."""


def _restore_error(kind: type[ParameterError], message: str, parameter: str) -> ParameterError:
    return kind(message, parameter=parameter)


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


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error if a name is not among the known ones.

    Args:
        owner: The part, as the error names it: ``"LIME"``, ``"Metric 'iou'"``.
        given: Names of parameters.
        known: The parameters of the part, in the order in which the error lists them.

    Raises:
        UnknownParameterError: Names the nearest parameter, and lists all.

    Example:
        >>> check_names("LIME", ["n_sample"], ["n_samples", "seed"])
        Traceback (most recent call last):
            ...
        xaibench.core.parameters.UnknownParameterError: LIME has no parameter 'n_sample'; did you mean 'n_samples'? \
Known: n_samples, seed.
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise UnknownParameterError(unknown(f"{owner} has no parameter", name, known), parameter=name)


def check_types(values: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Raise an error if a value is not of the annotated type of its parameter.

    Args:
        values: Values by parameter, as a TOML file holds them.
        annotations: Types by parameter (:func:`annotations_of`). Parameters without one are not checked.

    Raises:
        ParameterError: Gives the value, and describes the type.
    """
    for name, value in values.items():
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
    if inspect.isclass(part) and dataclasses.is_dataclass(part):
        owners = [(vars(base), vars(sys.modules[base.__module__])) for base in reversed(part.__mro__)]
        written = [(owner.get("__annotations__", {}), names) for owner, names in owners]
    else:
        if inspect.isclass(part) or inspect.isroutine(part):
            called = [part.__init__ if inspect.isclass(part) else part]
        else:  # a subclass may pass parameters on to its base class
            called = [vars(base)["__call__"] for base in reversed(type(part).__mro__) if "__call__" in vars(base)]
        functions = [inspect.unwrap(one) for one in called]
        written = [(getattr(one, "__annotations__", {}), getattr(one, "__globals__", {})) for one in functions]
    found: dict[str, Any] = {}
    for stated, names in written:
        for name, annotation in stated.items():
            with contextlib.suppress(NameError, TypeError, AttributeError):  # imported for type checkers only
                one: Any = types.SimpleNamespace(__annotations__={name: annotation})
                found |= typing.get_type_hints(one, names)
    return found


def is_of_type(value: Any, annotation: Any) -> bool:
    """Return whether a value, as a TOML file holds it, is of an annotated type; True if this cannot be decided.

    Args:
        value: A string, number, boolean, date, list or table.
        annotation: The type.

    Example:
        >>> [is_of_type(3, float), is_of_type(True, int), is_of_type([1, 2], tuple[float, ...])]
        [True, False, True]
        >>> is_of_type("sum", Literal["sum"] | None)
        True
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
        return any(is_of_type(value, one) for one in inner)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(is_of_type(item, inner[1]) for item in value.values())
    if origin in (list, tuple, collections.abc.Sequence):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and inner[-1:] != (...,):
            return len(inner) == len(value) and all(map(is_of_type, value, inner))
        return all(is_of_type(item, inner[0]) for item in value)
    # A TOML file holds neither arrays nor functions. Other classes may be built from what it holds.
    kind = origin or annotation
    is_array = inspect.isclass(kind) and kind.__module__.partition(".")[0] in ("torch", "numpy")
    return not is_array and origin is not collections.abc.Callable


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
        return " or ".join(dict.fromkeys(describe_type(one) for one in inner if _is_writable(one)))
    if origin in (dict, collections.abc.Mapping):
        return "a table"
    if origin in (list, tuple, collections.abc.Sequence):
        items = {_PLURALS.get(one) for one in inner if one is not ...}
        return f"a list of {items.pop()}" if len(items) == 1 and None not in items else "a list"
    return _DESCRIPTIONS.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _is_writable(annotation: Any) -> bool:
    tried: tuple[object, ...] = (0, 0.5, False, "", [], {}, *get_args(annotation))
    return annotation is not type(None) and any(is_of_type(value, annotation) for value in tried)
