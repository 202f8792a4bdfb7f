"""Do the metrics judge well? Each is asked about maps of which it is known in what order they are right."""

from xaibench.evaluation.meta_evaluation.ranking_trials import MetaEvaluation, meta_evaluate

__all__ = ["MetaEvaluation", "meta_evaluate"]
