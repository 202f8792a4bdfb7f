"""xaibench: is this saliency map right?

The public names are loaded on first use (PEP 562), so that ``import xaibench`` stays light: it loads neither torch nor
captum.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xaibench._version import __version__

#: Public name -> the module that has it. A module that is public itself maps to its own path.
_PUBLIC = {
    "load": "xaibench.data",
    "loading": "xaibench.data",
    "explain": "xaibench.explainers",
    "emd": "xaibench.metrics",
    "emd_perf": "xaibench.metrics",
    "topk_precision": "xaibench.metrics",
}
_MODULES = ("data", "models", "explainers", "metrics", "runner", "report")

__all__ = ["__version__", *_PUBLIC, *_MODULES]  # noqa: PLE0604

if TYPE_CHECKING:
    from xaibench import data, explainers, metrics, models, report, runner
    from xaibench.data import load, loading
    from xaibench.explainers import explain
    from xaibench.metrics import emd, emd_perf, topk_precision


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"xaibench.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'xaibench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
