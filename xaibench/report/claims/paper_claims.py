"""Statements of the benchmarks' papers, tested on a run: each as a number with an interval and a verdict."""

from __future__ import annotations

from xaibench.benchmarks.claims import all_claims
from xaibench.report.claims.correlations import check_correlations
from xaibench.report.claims.evaluation import Claim, check_statements, left_out, supported_cells
from xaibench.report.claims.sample_pairs import check_pairs
from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.results import RunResults, place

RESAMPLES = 2000


def claims(run: RunResults, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Claim]:
    """Test the papers' statements for which the run has the cells, by each of its metrics.

    Args:
        run: The run.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Returns:
        The claims paper by paper: metric by metric, followed by those on pairs of metrics and of samples. Empty for a
        run of other data sets.
    """
    matrices = list(cell_matrices(run))
    found: list[Claim] = []
    for paper in all_claims():
        cells = supported_cells(run, matrices, paper)
        found += check_statements(run, cells, paper, resamples, seed)
        found += check_correlations(run, cells, paper.correlations, resamples, seed)
        found += check_pairs(run, paper, resamples, seed)
    return found


def exclusions(run: RunResults) -> list[str]:
    """Return a phrase per reason for which cells of a run are left out of the claims: the cells, and the reason."""
    cells: dict[str, list[str]] = {}
    for paper in all_claims():
        for (subset, variant, model), reason in left_out(run, paper).items():
            names = (place(subset), place(variant), run.models[model].label)
            cells.setdefault(reason, []).append(" ".join(filter(None, names)))
    return [f"{', '.join(names)} ({reason})" for reason, names in cells.items()]
