"""Table of all metrics. To add a metric, add its line."""

from __future__ import annotations

from xaibench.core.registry import Registry

#: Name -> function of maps and masks, of maps, of a model, images, maps and targets, or of an explainer
#: (``info.kind``).
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
        "roc_auc": "xaibench.metrics.truth.ranking:roc_auc",
        "average_precision": "xaibench.metrics.truth.ranking:average_precision",
        "emd_skill": "xaibench.metrics.truth.skill:emd_skill",
        "precision_skill": "xaibench.metrics.truth.skill:precision_skill",
        "iou_skill": "xaibench.metrics.truth.skill:iou_skill",
        "average_precision_skill": "xaibench.metrics.truth.skill:average_precision_skill",
        "mass_outside": "xaibench.metrics.use.unused_mass:mass_outside",
        "grid_pointing": "xaibench.metrics.use.unused_mass:grid_pointing",
        "use_auc": "xaibench.metrics.use.used_ranking:use_auc",
        "use_ap": "xaibench.metrics.use.used_ranking:use_ap",
        "sparseness": "xaibench.metrics.map.concentration:sparseness",
        "complexity": "xaibench.metrics.map.concentration:complexity",
        "deletion": "xaibench.metrics.model.insertion_deletion:deletion",
        "insertion": "xaibench.metrics.model.insertion_deletion:insertion",
        "srg": "xaibench.metrics.model.symmetric_relevance_gain:srg",
        "idsds": "xaibench.metrics.model.single_deletion:idsds",
        "saco": "xaibench.metrics.model.salience_guided:saco",
        "f_fidelity": "xaibench.metrics.model.fine_tuned_fidelity:f_fidelity",
        "completeness_error": "xaibench.metrics.model.completeness:completeness_error",
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
        "smooth_mprt": "xaibench.metrics.explainer.smooth_randomisation:smooth_mprt",
        "efficient_mprt": "xaibench.metrics.explainer.efficient_randomisation:efficient_mprt",
        "random_logit": "xaibench.metrics.explainer.logit_randomisation:random_logit",
    },
    aliases={
        "relevance_rank_accuracy": "topk_precision",
        "relevance_mass_accuracy": "mass_accuracy",
        "pointing_game": "hit",
        "jaccard": "iou",
        "dice": "f1",
        "gini": "sparseness",
        "entropy": "complexity",
        "mprt": "parameter_randomisation",
    },
)
