"""Discovery of the modules in the benchmarks' folders."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from types import ModuleType


@functools.cache
def benchmark_modules(name: str) -> tuple[ModuleType, ...]:
    """Import the module with a name from each benchmark's folder that has it, in the order of the folders' names.

    Example:
        >>> [module.__name__.split(".")[2] for module in benchmark_modules("facets")]
        ['certified', 'parts', 'pattern_gam', 'watermarks', 'whitening', 'xai_tris']
    """
    folders = [file.parent.name for file in benchmark_files(f"{name}.py")]
    return tuple(importlib.import_module(f"{__package__}.{folder}.{name}") for folder in folders)


def benchmark_files(pattern: str) -> list[Path]:
    """Return the files of all benchmarks that match a pattern below their folders, in alphabetical order.

    Example:
        >>> [file.name for file in benchmark_files("suites/xai-tris-8x8*.toml")]
        ['xai-tris-8x8-paper.toml', 'xai-tris-8x8.toml']
    """
    return sorted(Path(__file__).parent.glob(f"*/{pattern}"))
