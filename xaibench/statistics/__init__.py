"""Is a difference more than chance? Intervals, paired tests and ranks of scores of the same samples."""

from xaibench.statistics.intervals import average_ranks, bootstrap_intervals, critical_difference, holm, paired_test

__all__ = ["average_ranks", "bootstrap_intervals", "critical_difference", "holm", "paired_test"]
