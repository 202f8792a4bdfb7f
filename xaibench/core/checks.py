"""Checks of arguments that all parts share: counts, amounts, choices. One form of message for each.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable


def check_count(name: str, value: object, least: int = 1, *, owner: str = "", none: str = "") -> None:
    """Refuse anything but a whole number of at least ``least``; numpy's integers are whole numbers.

    Args:
        name: Of the argument.
        value: As given.
        least: The smallest that will do.
        owner: Class whose argument it is; empty for a function's.
        none: What None means, where it will do, such as ``"for all"``.

    Raises:
        ValueError: Says what was got.

    Example:
        >>> check_count("n_samples", 0, owner="LIME")
        Traceback (most recent call last):
            ...
        ValueError: LIME(n_samples=0): expected an integer of at least 1.
        >>> check_count("samples", None, none="for all")
    """
    if value is None and none:
        return
    if not (_is_whole(value) and value >= least):  # type: ignore[operator]
        hint = f", or None {none}" if none else ""
        raise ValueError(f"{_got(owner, name, value)}: expected an integer of at least {least}{hint}.")


def check_amount(name: str, value: object, *, above: bool = True, owner: str = "") -> None:
    """Refuse anything but a finite number above 0, or (``above=False``) of at least 0.

    Args:
        name: Of the argument.
        value: As given.
        above: Whether 0 is refused.
        owner: Class whose argument it is; empty for a function's.

    Raises:
        ValueError: Says what was got.

    Example:
        >>> check_amount("lr", -0.1)
        Traceback (most recent call last):
            ...
        ValueError: lr=-0.1: expected a number above 0.
    """
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and (number > 0 or (number == 0 and not above))):
        raise ValueError(f"{_got(owner, name, value)}: expected a number {'above 0' if above else 'of at least 0'}.")


def check_choice(name: str, value: object, choices: Iterable[str], *, owner: str = "") -> None:
    """Refuse anything but one of the choices.

    Args:
        name: Of the argument.
        value: As given.
        choices: What will do, in the order in which it is said.
        owner: Class whose argument it is; empty for a function's.

    Raises:
        ValueError: Says what was got, and the choices.

    Example:
        >>> check_choice("finetune", "tail", ("head", "all"))
        Traceback (most recent call last):
            ...
        ValueError: finetune='tail': expected one of 'head', 'all'.
    """
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{_got(owner, name, value)}: expected one of {', '.join(map(repr, choices))}.")


def _is_whole(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)


def _got(owner: str, name: str, value: object) -> str:
    return f"{owner}({name}={value!r})" if owner else f"{name}={value!r}"
