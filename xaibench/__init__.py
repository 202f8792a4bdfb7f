"""xaibench: is this saliency map right?

The public names are loaded on first use (PEP 562), so that ``import xaibench`` stays light: it loads neither torch nor
captum.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xaibench._version import __version__

if TYPE_CHECKING:
    from xaibench import data, explainers, hub, metrics, models, report, runner
    from xaibench.data import load, loading
    from xaibench.evaluation import evaluate
    from xaibench.explainers import explain
    from xaibench.metrics import (
        adversarial,
        auc,
        average_drop,
        average_precision,
        complexity,
        comprehensiveness,
        data_consistency,
        deletion,
        emd,
        emd_perf,
        f1,
        hit,
        increase_in_confidence,
        infidelity,
        insertion,
        iou,
        mass_accuracy,
        parameter_randomisation,
        precision,
        recall,
        road,
        sensitivity_max,
        sparseness,
        sufficiency,
        topk_precision,
    )

__all__ = [
    "__version__",
    "adversarial",
    "auc",
    "average_drop",
    "average_precision",
    "complexity",
    "comprehensiveness",
    "data",
    "data_consistency",
    "deletion",
    "emd",
    "emd_perf",
    "evaluate",
    "explain",
    "explainers",
    "f1",
    "hit",
    "hub",
    "increase_in_confidence",
    "infidelity",
    "insertion",
    "iou",
    "load",
    "loading",
    "mass_accuracy",
    "metrics",
    "models",
    "parameter_randomisation",
    "precision",
    "recall",
    "report",
    "road",
    "runner",
    "sensitivity_max",
    "sparseness",
    "sufficiency",
    "topk_precision",
]

#: Public function -> the package that has it. All other public names are packages of their own.
_HOME = {
    "load": "data",
    "loading": "data",
    "explain": "explainers",
    "evaluate": "evaluation",
    "auc": "metrics",
    "average_precision": "metrics",
    "complexity": "metrics",
    "emd": "metrics",
    "emd_perf": "metrics",
    "f1": "metrics",
    "hit": "metrics",
    "iou": "metrics",
    "mass_accuracy": "metrics",
    "precision": "metrics",
    "recall": "metrics",
    "sparseness": "metrics",
    "topk_precision": "metrics",
    "adversarial": "metrics",
    "average_drop": "metrics",
    "comprehensiveness": "metrics",
    "data_consistency": "metrics",
    "deletion": "metrics",
    "increase_in_confidence": "metrics",
    "infidelity": "metrics",
    "insertion": "metrics",
    "parameter_randomisation": "metrics",
    "road": "metrics",
    "sensitivity_max": "metrics",
    "sufficiency": "metrics",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'xaibench' has no attribute {name!r}")
    if name in _HOME:
        return getattr(importlib.import_module(f"xaibench.{_HOME[name]}"), name)
    return importlib.import_module(f"xaibench.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
