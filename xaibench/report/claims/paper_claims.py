"""Statements of the benchmarks' papers, tested on a run: each as a number with an interval and a verdict."""

from __future__ import annotations

from xaibench.benchmarks.claims import all_claims
from xaibench.report.claims.correlations import check_correlations
from xaibench.report.claims.evaluation import Claim, check_statements
from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.results import RunResults

RESAMPLES = 2000


def claims(run: RunResults, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Claim]:
    """Test the papers' statements for which the run has the cells, by each of its metrics.

    Args:
        run: The run.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Returns:
        The claims paper by paper: metric by metric, followed by those on pairs of metrics. Empty for a run of other
        data sets.
    """
    matrices = list(cell_matrices(run))
    found: list[Claim] = []
    for paper in all_claims():
        cells = [each for each in matrices if paper.applies(each.cell)]
        found += check_statements(run, cells, paper, resamples, seed)
        found += check_correlations(run, cells, paper.correlations, resamples, seed)
    return found
