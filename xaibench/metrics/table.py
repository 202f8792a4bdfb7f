"""Table of all metrics. To add a metric, add its line."""

from __future__ import annotations

from xaibench.core.registry import Registry

#: Name -> function of maps and masks, of maps, of a model, images, maps and targets, or of an explainer
#: (``info.kind``).
METRICS = Registry(
    "metric",
    {
        "emd_perf": "xaibench.metrics.localization.emd:emd_perf",
        "emd": "xaibench.metrics.localization.emd:emd",
        "topk_precision": "xaibench.metrics.localization.topk_precision:topk_precision",
        "mass_accuracy": "xaibench.metrics.localization.topk_precision:mass_accuracy",
        "iou": "xaibench.metrics.localization.iou:iou",
        "precision": "xaibench.metrics.localization.iou:precision",
        "recall": "xaibench.metrics.localization.iou:recall",
        "f1": "xaibench.metrics.localization.iou:f1",
        "hit": "xaibench.metrics.localization.pointing_game:hit",
        "roc_auc": "xaibench.metrics.localization.roc_auc:roc_auc",
        "average_precision": "xaibench.metrics.localization.roc_auc:average_precision",
        "emd_skill": "xaibench.metrics.localization.skill:emd_skill",
        "precision_skill": "xaibench.metrics.localization.skill:precision_skill",
        "iou_skill": "xaibench.metrics.localization.skill:iou_skill",
        "average_precision_skill": "xaibench.metrics.localization.skill:average_precision_skill",
        "mass_outside": "xaibench.metrics.localization.mass_outside:mass_outside",
        "grid_pointing": "xaibench.metrics.localization.mass_outside:grid_pointing",
        "use_auc": "xaibench.metrics.localization.use_ranking:use_auc",
        "use_ap": "xaibench.metrics.localization.use_ranking:use_ap",
        "sparseness": "xaibench.metrics.sparsity.sparseness:sparseness",
        "complexity": "xaibench.metrics.sparsity.sparseness:complexity",
        "deletion": "xaibench.metrics.faithfulness.insertion_deletion:deletion",
        "insertion": "xaibench.metrics.faithfulness.insertion_deletion:insertion",
        "srg": "xaibench.metrics.faithfulness.srg:srg",
        "idsds": "xaibench.metrics.faithfulness.idsds:idsds",
        "saco": "xaibench.metrics.faithfulness.saco:saco",
        "f_fidelity": "xaibench.metrics.faithfulness.f_fidelity:f_fidelity",
        "completeness_error": "xaibench.metrics.faithfulness.completeness:completeness_error",
        "average_drop": "xaibench.metrics.faithfulness.average_drop:average_drop",
        "increase_in_confidence": "xaibench.metrics.faithfulness.average_drop:increase_in_confidence",
        "comprehensiveness": "xaibench.metrics.faithfulness.comprehensiveness:comprehensiveness",
        "sufficiency": "xaibench.metrics.faithfulness.comprehensiveness:sufficiency",
        "adversarial": "xaibench.metrics.faithfulness.adversarial:adversarial",
        "infidelity": "xaibench.metrics.faithfulness.infidelity:infidelity",
        "road": "xaibench.metrics.faithfulness.road:road",
        "data_consistency": "xaibench.metrics.robustness.sensitivity:data_consistency",
        "sensitivity_max": "xaibench.metrics.robustness.sensitivity:sensitivity_max",
        "parameter_randomization": "xaibench.metrics.randomization.mprt:parameter_randomization",
        "smooth_mprt": "xaibench.metrics.randomization.smooth_mprt:smooth_mprt",
        "efficient_mprt": "xaibench.metrics.randomization.efficient_mprt:efficient_mprt",
        "random_logit": "xaibench.metrics.randomization.random_logit:random_logit",
    },
    aliases={
        "relevance_rank_accuracy": "topk_precision",
        "relevance_mass_accuracy": "mass_accuracy",
        "pointing_game": "hit",
        "jaccard": "iou",
        "dice": "f1",
        "gini": "sparseness",
        "entropy": "complexity",
        "mprt": "parameter_randomization",
    },
)
