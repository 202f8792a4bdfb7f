"""Checks of parameter values that all parts share: counts, amounts and choices, each with one form of message.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable

from xaibench.core.parameters import ParameterError


def check_count(name: str, value: object, least: int = 1, *, owner: str = "", none: str = "") -> None:
    """Check that a value is an integer, of Python or numpy, of at least ``least``.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        least: The smallest accepted value.
        owner: The class that has the parameter; empty for a function.
        none: Meaning of None, such as ``"for all"``; empty if None is an error.

    Raises:
        ParameterError: Gives the value, and the expected ones.

    Example:
        >>> check_count("n_samples", 0, owner="LIME")
        Traceback (most recent call last):
            ...
        xaibench.core.parameters.ParameterError: LIME(n_samples=0): expected an integer of at least 1.
        >>> check_count("samples", None, none="for all")
    """
    if value is None and none:
        return
    if not (_is_integer(value) and value >= least):  # type: ignore[operator]
        hint = f", or None {none}" if none else ""
        raise ParameterError(
            f"{_describe(owner, name, value)}: expected an integer of at least {least}{hint}.", parameter=name
        )


def check_amount(name: str, value: object, *, above: bool = True, owner: str = "") -> None:
    """Check that a value is a finite number above 0, or (``above=False``) of at least 0.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        above: Whether 0 is an error.
        owner: The class that has the parameter; empty for a function.

    Raises:
        ParameterError: Gives the value, and the expected ones.

    Example:
        >>> check_amount("lr", -0.1)
        Traceback (most recent call last):
            ...
        xaibench.core.parameters.ParameterError: lr=-0.1: expected a number above 0.
    """
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and (number > 0 or (number == 0 and not above))):
        expected = "above 0" if above else "of at least 0"
        raise ParameterError(f"{_describe(owner, name, value)}: expected a number {expected}.", parameter=name)


def check_choice(name: str, value: object, choices: Iterable[str], *, owner: str = "") -> None:
    """Check that a value is one of the choices.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        choices: The accepted values, in the order in which the error lists them.
        owner: The class that has the parameter; empty for a function.

    Raises:
        ParameterError: Gives the value and the choices.

    Example:
        >>> check_choice("finetune", "tail", ("head", "all"))
        Traceback (most recent call last):
            ...
        xaibench.core.parameters.ParameterError: finetune='tail': expected one of 'head', 'all'.
    """
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        expected = ", ".join(map(repr, choices))
        raise ParameterError(f"{_describe(owner, name, value)}: expected one of {expected}.", parameter=name)


def _is_integer(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)


def _describe(owner: str, name: str, value: object) -> str:
    return f"{owner}({name}={value!r})" if owner else f"{name}={value!r}"
