"""Is a difference more than chance? Intervals, paired tests and ranks of scores of the same samples."""

from xaibench.statistics.intervals import bootstrap_intervals
from xaibench.statistics.paired_tests import AgainstControls, against_controls, holm, paired_test
from xaibench.statistics.rank_tests import average_ranks, critical_difference

__all__ = [
    "AgainstControls",
    "against_controls",
    "average_ranks",
    "bootstrap_intervals",
    "critical_difference",
    "holm",
    "paired_test",
]
