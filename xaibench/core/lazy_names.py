"""Lazy loading of a package's public names (PEP 562), so that importing the package is fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from xaibench.core.renamed import MOVED


def load_public_name(package: str, name: str, home: Mapping[str, str]) -> Any:
    """Return a public name of a package; the implementation of its ``__getattr__``.

    Args:
        package: ``__name__`` of the package.
        name: Requested attribute.
        home: Public name -> module of the package that defines it.

    Returns:
        The attribute of that module.

    Raises:
        AttributeError: If it is not a public name; Python suggests a similar one.

    Example:
        >>> load_public_name("xaibench.benchmarks", "blind", {"blind": "certified.blind_networks"}).__name__
        'blind'
    """
    if name in home:
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)
    if new := MOVED.get(f"{package}.{name}"):
        raise AttributeError(f"{package}.{name} is now {new}.", name=name)
    # With name and obj, Python suggests similar names.
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
