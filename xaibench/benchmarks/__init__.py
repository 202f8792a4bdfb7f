"""Benchmarks: one folder each, with its data, networks, suites, published tables and claims.

The public functions of the benchmarks are imported on first use (PEP 562).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
