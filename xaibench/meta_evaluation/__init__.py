"""Meta-evaluation: tests whether metrics rank maps of known quality in the right order."""

from xaibench.meta_evaluation.ranking_trials import MetaEvaluation, meta_evaluate

__all__ = ["MetaEvaluation", "meta_evaluate"]
