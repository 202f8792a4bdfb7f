"""Statements of the XAI-TRIS paper about its two image sizes, tested on one run of each size.

Scores of two sizes are compared by their skill, since the score of a random map depends on the image size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xaibench.benchmarks.claims import Cells, Floats, Statement

_PAPER = "Clark, Wilming, Haufe 2024"


def _shared_methods(cells: Cells) -> Iterator[tuple[dict[str, Floats], dict[str, Floats]]]:
    """Yield the methods of each cell that have scores at both sizes."""
    for cell, small in cells.of_methods():
        large = cells.others["large"].get(cell, {})
        names = [name for name in small if name in large]
        if names:
            yield {name: small[name] for name in names}, {name: large[name] for name in names}


def _lime_gains(cells: Cells) -> Iterator[Floats]:
    for small, large in _shared_methods(cells):
        if "lime" in small:
            yield small["lime"] - large["lime"]


def _same_order(cells: Cells) -> Iterator[Floats]:
    for small, large in _shared_methods(cells):
        if len(small) > 2:
            yield _kendall(np.stack(list(small.values())), np.stack(list(large.values())))


def _kendall(first: Floats, second: Floats) -> Floats:
    """Return Kendall's tau-b of the methods ``[M, 1 + R]`` for each resample."""
    one, other = np.triu_indices(len(first), 1)
    a, b = (np.sign(means[one] - means[other]) for means in (first, second))
    untied = np.sqrt((a != 0).sum(axis=0) * (b != 0).sum(axis=0))
    tau: Floats = (a * b).sum(axis=0) / np.maximum(untied, 1)
    return tau


SIZE_STATEMENTS = (
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
        tried=(0.4, 0.6),
    ),
)
