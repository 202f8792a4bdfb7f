"""Benchmarks: one folder each, with its data, networks, suites, published tables and claims.

The public functions of the benchmarks are imported on first use (PEP 562).
"""

from pathlib import Path

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def benchmark_files(pattern: str) -> list[Path]:
    """Return the files of all benchmarks that match a pattern below their folders, in alphabetical order.

    Example:
        >>> [file.name for file in benchmark_files("suites/pets*.toml")]
        ['pets-offline.toml', 'pets.toml']
    """
    return sorted(Path(__file__).parent.glob(f"*/{pattern}"))
