"""Statistical inference for scores of the same samples: confidence intervals, tests and mean ranks."""

from xaibench.scores.nested_draws import (
    NestedMeans,
    OneSidedTest,
    SamplingDesign,
    nested_means,
    one_sided_test,
    paired_differences,
    unpaired_difference,
)
from xaibench.scores.rank_tests import (
    ControlComparison,
    MeanRanks,
    average_ranks,
    compare_with_controls,
    critical_difference,
    explained_variance,
    holm,
    mean_ranks,
    rank_share,
)

__all__ = [
    "ControlComparison",
    "MeanRanks",
    "NestedMeans",
    "OneSidedTest",
    "SamplingDesign",
    "average_ranks",
    "compare_with_controls",
    "critical_difference",
    "explained_variance",
    "holm",
    "mean_ranks",
    "nested_means",
    "one_sided_test",
    "paired_differences",
    "rank_share",
    "unpaired_difference",
]
