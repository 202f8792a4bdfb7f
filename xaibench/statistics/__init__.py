"""Statistical inference for scores of the same samples: confidence intervals, tests and mean ranks."""

from xaibench.statistics.effect_sizes import explained_variance, rank_share
from xaibench.statistics.grouped_scores import paired_differences
from xaibench.statistics.multiple_tests import ControlComparison, compare_with_controls, holm
from xaibench.statistics.nested_draws import NestedMeans, SamplingDesign, nested_means, unpaired_difference
from xaibench.statistics.rank_tests import MeanRanks, average_ranks, critical_difference, mean_ranks

__all__ = [
    "ControlComparison",
    "MeanRanks",
    "NestedMeans",
    "SamplingDesign",
    "average_ranks",
    "compare_with_controls",
    "critical_difference",
    "explained_variance",
    "holm",
    "mean_ranks",
    "nested_means",
    "paired_differences",
    "rank_share",
    "unpaired_difference",
]
