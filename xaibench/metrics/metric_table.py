"""Every metric by name: to add one, add its line."""

from __future__ import annotations

from xaibench.core.registry import Registry

#: Name -> function of maps and masks, of maps alone, or of a model, images, maps and targets, by ``info.kind``.
METRICS = Registry(
    "metric",
    {
        "emd_perf": "xaibench.metrics.truth.earth_mover:emd_perf",
        "emd": "xaibench.metrics.truth.earth_mover:emd",
        "topk_precision": "xaibench.metrics.truth.localization:topk_precision",
        "mass_accuracy": "xaibench.metrics.truth.localization:mass_accuracy",
        "iou": "xaibench.metrics.truth.overlap:iou",
        "precision": "xaibench.metrics.truth.overlap:precision",
        "recall": "xaibench.metrics.truth.overlap:recall",
        "f1": "xaibench.metrics.truth.overlap:f1",
        "hit": "xaibench.metrics.truth.pointing_game:hit",
        "auc": "xaibench.metrics.truth.ranking:auc",
        "average_precision": "xaibench.metrics.truth.ranking:average_precision",
        "emd_skill": "xaibench.metrics.truth.skill:emd_skill",
        "precision_skill": "xaibench.metrics.truth.skill:precision_skill",
        "iou_skill": "xaibench.metrics.truth.skill:iou_skill",
        "average_precision_skill": "xaibench.metrics.truth.skill:average_precision_skill",
        "leak": "xaibench.metrics.use.unused_mass:leak",
        "grid_pointing": "xaibench.metrics.use.unused_mass:grid_pointing",
        "use_auc": "xaibench.metrics.use.used_ranking:use_auc",
        "use_ap": "xaibench.metrics.use.used_ranking:use_ap",
        "sparseness": "xaibench.metrics.map.concentration:sparseness",
        "complexity": "xaibench.metrics.map.concentration:complexity",
        "deletion": "xaibench.metrics.model.insertion_deletion:deletion",
        "insertion": "xaibench.metrics.model.insertion_deletion:insertion",
        "srg": "xaibench.metrics.model.symmetric_relevance_gain:srg",
        "average_drop": "xaibench.metrics.model.confidence:average_drop",
        "increase_in_confidence": "xaibench.metrics.model.confidence:increase_in_confidence",
        "comprehensiveness": "xaibench.metrics.model.erasure:comprehensiveness",
        "sufficiency": "xaibench.metrics.model.erasure:sufficiency",
        "adversarial": "xaibench.metrics.model.attack:adversarial",
        "infidelity": "xaibench.metrics.model.disturbance:infidelity",
        "road": "xaibench.metrics.model.imputation:road",
        "data_consistency": "xaibench.metrics.explainer.stability:data_consistency",
        "sensitivity_max": "xaibench.metrics.explainer.stability:sensitivity_max",
        "parameter_randomisation": "xaibench.metrics.explainer.randomisation:parameter_randomisation",
    },
    aliases={
        "relevance_rank_accuracy": "topk_precision",
        "relevance_mass_accuracy": "mass_accuracy",
        "pointing_game": "hit",
        "roc_auc": "auc",
        "jaccard": "iou",
        "dice": "f1",
        "gini": "sparseness",
        "entropy": "complexity",
    },
)
