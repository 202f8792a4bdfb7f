"""Table of all metrics. To add a metric, add its line."""

from __future__ import annotations

from xaibench.component.registry import Registry

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
    "faithfulness.insertion_deletion": ("deletion", "insertion"),
    "faithfulness.srg": ("srg",),
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
    "randomization.mprt": ("parameter_randomization", "smooth_mprt", "efficient_mprt"),
    "randomization.random_logit": ("random_logit",),
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
)
