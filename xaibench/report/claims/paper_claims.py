"""Statements of two papers, tested on a run: each as a number with an interval and a verdict."""

from __future__ import annotations

from xaibench.report.claims import saliency_bench_statements, xai_tris_statements
from xaibench.report.claims.claim import Claim, check_statements
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
        The claims, metric by metric, followed by those on pairs of metrics. Empty for a run of other data sets.
    """
    statements = (*xai_tris_statements.STATEMENTS, *saliency_bench_statements.STATEMENTS)
    matrices = [each for each in cell_matrices(run) if xai_tris_statements.is_in_paper(each.cell)]
    found = check_statements(run, matrices, statements, resamples, seed)
    return found + saliency_bench_statements.correlations(run, matrices, resamples, seed)
