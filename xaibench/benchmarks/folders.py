"""Discovery of what the benchmarks' folders define."""

from __future__ import annotations

import functools
import importlib
from importlib import resources
from types import ModuleType


@functools.cache
def benchmark_modules(name: str) -> tuple[ModuleType, ...]:
    """Import the module with a name from each benchmark's folder that has it, in the order of the folders' names.

    Example:
        >>> [module.__name__ for module in benchmark_modules("facets")]
        ['xaibench.benchmarks.xai_tris.facets']
    """
    folders = sorted((each for each in resources.files(__package__).iterdir() if each.is_dir()), key=lambda f: f.name)
    found = [each.name for each in folders if each.joinpath(f"{name}.py").is_file()]
    return tuple(importlib.import_module(f"{__package__}.{folder}.{name}") for folder in found)
