"""Tests of papers' statements about small and large images, on one run of each size."""

from __future__ import annotations

from xaibench.benchmarks.claims import Cells, Means, PaperClaims, all_claims
from xaibench.report.claims.evaluation import Claim, cell_means, evaluate_statement, supported_cells
from xaibench.report.numbers.inference import cell_matrices, resampled_means
from xaibench.report.read.results import RunResults


def across_sizes(small: RunResults, large: RunResults, *, resamples: int = 2000, seed: int = 0) -> list[Claim]:
    """Test the statements about both image sizes on the cells that both runs have.

    Args:
        small: Run on the small images.
        large: Run on the large images.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples, which are independent between the two runs.

    Returns:
        Claims, metric by metric; empty if the runs share no cell or no skill.
    """
    found: list[Claim] = []
    for paper in all_claims():
        if paper.size_statements:
            found += _check_paper(paper, (small, large), resamples, seed)
    return found


def _check_paper(paper: PaperClaims, runs: tuple[RunResults, RunResults], resamples: int, seed: int) -> list[Claim]:
    small, large = runs
    matrices = [supported_cells(run, cell_matrices(run), paper) for run in runs]
    resampled = [resampled_means(cells, resamples, seed + k) for k, cells in enumerate(matrices)]
    methods = tuple(
        name
        for name, part in small.explainers.items()
        if not part.control and name in large.explainers and paper.is_about(name)
    )
    found = []
    for metric, part in small.metrics.items():
        if part.skill_of and metric in large.metrics:
            means: list[Means] = [
                cell_means(cells, draws, metric, part.higher_is_better)
                for cells, draws in zip(matrices, resampled, strict=True)
            ]
            cells = Cells(means[0], methods, (), {"large": means[1]})
            claims = (evaluate_statement(each, metric, cells) for each in paper.size_statements)
            found += [claim for claim in claims if claim is not None]
    return found
