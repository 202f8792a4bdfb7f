"""Table of all metrics. To add a metric, add its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xaibench.registry.table import Registry

#: Module -> its metrics.
_MODULES = {
    "localization.emd": ("emd_perf", "emd"),
    "localization.fni_emd": ("fni_emd",),
    "localization.topk_precision": ("topk_precision", "mass_accuracy", "relative_importance"),
    "localization.iou": ("iou", "precision", "recall", "f1"),
    "localization.pointing_game": ("hit",),
    "localization.roc_auc": ("roc_auc", "average_precision"),
    "localization.skill": ("emd_skill", "fni_emd_skill", "precision_skill", "iou_skill", "average_precision_skill"),
    "localization.used_pixels": ("mass_outside", "grid_pointing", "use_auc", "use_ap"),
    "sparsity": ("sparseness", "complexity"),
    "faithfulness.insertion_deletion": ("deletion", "insertion", "srg"),
    "faithfulness.idsds": ("idsds",),
    "faithfulness.part_rank": ("part_rank",),
    "faithfulness.saco": ("saco",),
    "faithfulness.f_fidelity": ("f_fidelity",),
    "faithfulness.completeness": ("completeness_error",),
    "faithfulness.average_drop": ("average_drop", "increase_in_confidence"),
    "faithfulness.comprehensiveness": ("comprehensiveness", "sufficiency"),
    "faithfulness.adversarial": ("adversarial",),
    "faithfulness.infidelity": ("infidelity",),
    "faithfulness.sensitivity_n": ("sensitivity_n",),
    "faithfulness.monotonicity_correlation": ("monotonicity_correlation",),
    "faithfulness.road": ("road",),
    "sensitivity": ("data_consistency", "sensitivity_max"),
    "randomization.mprt": ("parameter_randomization", "smooth_mprt", "efficient_mprt", "random_logit"),
}

#: Name -> function of maps and masks, of maps, of a model, images, maps and targets, or of an explainer
#: (``info.kind``).
METRICS = Registry(
    "metric",
    {name: f"xaibench.metrics.{module}:{name}" for module, names in _MODULES.items() for name in names},
    aliases={
        "relevance_rank_accuracy": "topk_precision",
        "relevance_mass_accuracy": "mass_accuracy",
        "riw": "relative_importance",
        "pointing_game": "hit",
        "focus": "grid_pointing",
        "jaccard": "iou",
        "dice": "f1",
        "gini": "sparseness",
        "entropy": "complexity",
        "mprt": "parameter_randomization",
    },
    record="MetricInfo",
)


def name_aliases(load: Callable[[str], Any], module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module of metrics, whose errors state the metric that an alias stands for.

    Args:
        load: Returns an attribute, or raises an AttributeError.
        module: Name of the module.

    Returns:
        The function.

    Example:
        >>> import xaibench
        >>> xaibench.pointing_game
        Traceback (most recent call last):
            ...
        AttributeError: module 'xaibench' has no attribute 'pointing_game'; it is another name of xaibench.hit.
    """

    def get(name: str) -> Any:
        try:
            return load(name)
        except AttributeError as error:
            metric = METRICS.canonical(name)
            if metric == name or metric not in METRICS:
                raise
            text = f"module {module!r} has no attribute {name!r}; it is another name of {module}.{metric}."
            raise AttributeError(text) from error

    return get
