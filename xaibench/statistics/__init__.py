"""Statistical inference for scores of the same samples: confidence intervals, tests and mean ranks."""

from xaibench.statistics.grouped_scores import paired_differences
from xaibench.statistics.multiple_tests import AgainstControls, against_controls, holm
from xaibench.statistics.nested_draws import Drawn, NestedMeans, nested_means, unpaired_difference
from xaibench.statistics.rank_tests import MeanRanks, average_ranks, critical_difference, friedman, mean_ranks

__all__ = [
    "AgainstControls",
    "Drawn",
    "MeanRanks",
    "NestedMeans",
    "against_controls",
    "average_ranks",
    "critical_difference",
    "friedman",
    "holm",
    "mean_ranks",
    "nested_means",
    "paired_differences",
    "unpaired_difference",
]
