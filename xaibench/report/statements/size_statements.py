"""What the XAI-TRIS paper says of its two image sizes beside each other: needs a run of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xaibench.report.numbers.inference import Floats, cell_matrices, resampled_means
from xaibench.report.read.run_results import RunResults
from xaibench.report.statements.tested_statements import Cells, Claim, Means, Statement, cell_means, claim_of
from xaibench.report.statements.xai_tris_statements import of_the_paper

_PAPER = "Clark, Wilming, Haufe 2024"


def across_sizes(small: RunResults, large: RunResults, *, resamples: int = 2000, seed: int = 0) -> list[Claim]:
    """The statements about both sizes, worked out on the cells that both runs have.

    Scores of two sizes are compared by their skill, which reads each against what noise gets at that size: noise has an
    EMD performance of its own at each.

    Args:
        small: Of 8×8 pixels.
        large: Of 64×64.
        resamples: How many, for the intervals.
        seed: Of their draw; the two runs are drawn apart.

    Returns:
        Claims, metric by metric; none where no cell or no skill is in both.
    """
    runs = (small, large)
    matrices = [[each for each in cell_matrices(run) if of_the_paper(each.cell)] for run in runs]
    resampled = [resampled_means(cells, resamples, seed + k) for k, cells in enumerate(matrices)]
    methods = tuple(name for name, part in small.explainers.items() if not part.control and name in large.explainers)
    claims = []
    for metric, part in small.metrics.items():
        if part.skill_of and metric in large.metrics:
            means: list[Means] = [
                cell_means(cells, draws, metric, part.higher_is_better)
                for cells, draws in zip(matrices, resampled, strict=True)
            ]
            cells = Cells(means[0], methods, (), {"large": means[1]})
            claims += [claim for each in STATEMENTS if (claim := claim_of(each, metric, cells)) is not None]
    return claims


def _both(cells: Cells) -> Iterator[tuple[dict[str, Floats], dict[str, Floats]]]:
    """The methods of each cell at both sizes, those that both have."""
    for cell, small in cells.of_methods():
        large = cells.others["large"].get(cell, {})
        names = [name for name in small if name in large]
        if names:
            yield {name: small[name] for name in names}, {name: large[name] for name in names}


def _lime_gains(cells: Cells) -> Iterator[Floats]:
    for small, large in _both(cells):
        if "lime" in small:
            yield small["lime"] - large["lime"]


def _same_order(cells: Cells) -> Iterator[Floats]:
    for small, large in _both(cells):
        if len(small) > 2:
            yield _kendall(np.stack(list(small.values())), np.stack(list(large.values())))


def _kendall(first: Floats, second: Floats) -> Floats:
    """Kendall's tau-b of the methods ``[M, 1 + R]``, for each draw."""
    one, other = np.triu_indices(len(first), 1)
    a, b = (np.sign(means[one] - means[other]) for means in (first, second))
    untied = np.sqrt((a != 0).sum(axis=0) * (b != 0).sum(axis=0))
    tau: Floats = (a * b).sum(axis=0) / np.maximum(untied, 1)
    return tau


STATEMENTS = (
    Statement(
        "LIME does better at 8×8 than at 64×64",
        f"{_PAPER}, Figures 6 and 8",
        "its skill at 8×8 less that at 64×64, mean over the cells",
        0.0,
        True,
        _lime_gains,
    ),
    Statement(
        "Trends remain largely consistent between the sizes",
        f"{_PAPER}, reply to the reviewers",
        "Kendall’s tau between the orders of the methods at both sizes, mean over the cells; largely = over 0.5",
        0.5,
        True,
        _same_order,
    ),
)
