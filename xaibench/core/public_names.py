"""Public names of a package that are loaded on first use (PEP 562), so that to import the package costs little."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


def public_name(package: str, name: str, home: Mapping[str, str]) -> Any:
    """What a package's ``__getattr__`` returns.

    Args:
        package: Its ``__name__``.
        name: What is asked for.
        home: Public name -> the module of the package that has it.

    Returns:
        What the module calls so.

    Raises:
        AttributeError: If it is no public name; Python says which may be meant.

    Example:
        >>> public_name("xaibench.data", "checkerboard", {"checkerboard": "certified.planted_triggers"}).__name__
        'checkerboard'
    """
    if name in home:
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)
    # With name and obj, Python says what may be meant.
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
