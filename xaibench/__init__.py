"""xaibench: is this saliency map right?

The public names are loaded on first use (PEP 562), so that ``import xaibench`` stays light: it loads neither torch nor
captum.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xaibench._version import __version__
from xaibench.core.lazy_names import load_public_name as _public_name
from xaibench.metrics.table import METRICS as _METRICS

if TYPE_CHECKING:
    from xaibench import benchmarks, data, explainers, hub, leaderboard, metrics, models, plots, report, runner
    from xaibench.auditing import audit
    from xaibench.data import load, loading
    from xaibench.evaluation import evaluate
    from xaibench.explainers import explain, reliance
    from xaibench.meta_evaluation import meta_evaluate
    from xaibench.metrics import shares
    from xaibench.metrics.registered_functions import *  # noqa: F403  (written by docs/generate/typing_stubs.py)
    from xaibench.plots import show
    from xaibench.runner.published_networks import published_network

__all__ = [
    "__version__",
    "audit",
    "benchmarks",
    "data",
    "evaluate",
    "explain",
    "explainers",
    "hub",
    "leaderboard",
    "load",
    "loading",
    "meta_evaluate",
    "metrics",
    "models",
    "plots",
    "published_network",
    "reliance",
    "report",
    "runner",
    "shares",
    "show",
]
__all__ += _METRICS

#: Public function -> the package that has it. All other public names are packages of their own.
_HOME = {"audit": "auditing", "load": "data", "loading": "data", "explain": "explainers", "show": "plots"}
_HOME |= {"evaluate": "evaluation", "meta_evaluate": "meta_evaluation"}
_HOME |= {"reliance": "explainers", "shares": "metrics", "published_network": "runner.published_networks"}
_HOME |= dict.fromkeys(_METRICS, "metrics")


def __getattr__(name: str) -> Any:
    if name in __all__ and name not in _HOME:
        return importlib.import_module(f"xaibench.{name}")
    return _public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
