"""What the two papers found, held against a run: each statement as a number with an interval and a verdict."""

from __future__ import annotations

from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.run_results import RunResults
from xaibench.report.statements import saliency_bench_statements, xai_tris_statements
from xaibench.report.statements.tested_statements import Claim, hold_against

RESAMPLES = 2000


def claims(run: RunResults, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Claim]:
    """The statements of the papers that the run has the cells for, for each of its metrics.

    Args:
        run: The run.
        resamples: How many, for the intervals.
        seed: Of their draw.

    Returns:
        The claims, metric by metric; last those on pairs of metrics. Empty for a run of other data sets.
    """
    statements = (*xai_tris_statements.STATEMENTS, *saliency_bench_statements.STATEMENTS)
    matrices = [each for each in cell_matrices(run) if xai_tris_statements.of_the_paper(each.cell)]
    found = hold_against(run, matrices, statements, resamples, seed)
    return found + saliency_bench_statements.correlations(run, matrices, resamples, seed)
